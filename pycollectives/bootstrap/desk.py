"""What the broker does with the frames of a rank that it knows, and how it answers."""

from __future__ import annotations

import time

from pycollectives.bootstrap.matching import Contribution, Epochs, Outcome
from pycollectives.bootstrap.recorders import PREFIX, Recorders
from pycollectives.bootstrap.wire import Channel, Frame, Kind, ProtocolError


class Desk:
    """The exchanges of a job, and the recorders that it keeps."""

    def __init__(self, size: int, *, keep: bool) -> None:
        self.epochs = Epochs(size)
        self.recorders = Recorders(size)
        self._keep = keep

    def serve(self, rank: int, frame: Frame) -> list[Outcome]:
        """Act on one frame; return the calls that it ends. Raises ProtocolError."""
        if frame.kind == Kind.EXCHANGE:
            return self._exchange(rank, frame)
        if frame.kind == Kind.BYE:
            self.recorders.leave(number(frame, "epoch"), rank)
            return self.epochs.close(number(frame, "epoch"), rank)
        if frame.kind == Kind.RELEASE:
            self.recorders.release(number(frame, "epoch"), str(frame.meta.get("key")), rank)
            return []
        if frame.kind == Kind.WITHDRAW:
            self.epochs.withdraw(number(frame, "epoch"), rank, frame.ticket)
            return []
        raise ProtocolError(f"a frame of kind {frame.kind} came")

    def close(self) -> None:
        """Forget the exchanges and close every descriptor."""
        self.epochs = Epochs(self.epochs.size)
        self.recorders.close()

    def _exchange(self, rank: int, frame: Frame) -> list[Outcome]:
        key, timeout = frame.meta.get("key"), frame.meta.get("timeout")
        if not isinstance(key, str) or not isinstance(timeout, (int, float)):
            raise ProtocolError("an exchange has no key or no timeout")
        members = frame.meta.get("members")
        if members is not None and not (
            isinstance(members, list) and all(isinstance(each, int) for each in members)
        ):
            raise ProtocolError("the members of an exchange are no list of ranks")
        part = Contribution(
            rank=rank,
            ticket=frame.ticket,
            index=number(frame, "index"),
            payload=frame.payload,
            descriptors=frame.descriptors,
            deadline=time.monotonic() + timeout,
            timeout=timeout,
            members=None if members is None else frozenset(members),
        )
        epoch, count = number(frame, "epoch"), number(frame, "count")
        if self._keep and key.startswith(PREFIX) and part.descriptors.fds:
            self.recorders.keep(epoch, key, rank, part.descriptors.fds[0])
        return self.epochs.join(epoch, key, count, part)


def answer(channel: Channel, outcome: Outcome) -> None:
    """Queue the answer to the call that has ended."""
    if outcome.parts is None:
        error = {
            "error": outcome.error,
            "peer": outcome.peer,
            "cause": outcome.cause,
            "missing": outcome.missing,
        }
        channel.queue(Kind.ERROR, ticket=outcome.ticket, meta=error)
        return
    channel.queue(
        Kind.ANSWER,
        ticket=outcome.ticket,
        meta={
            "sizes": [len(part.payload) for part in outcome.parts],
            "fds": [len(part.descriptors.fds) for part in outcome.parts],
        },
        payloads=[part.payload for part in outcome.parts],
        descriptors=[part.descriptors for part in outcome.parts],
    )


def number(frame: Frame, name: str) -> int:
    """An integer of the frame's description. Raises ProtocolError."""
    value = frame.meta.get(name)
    if not isinstance(value, int):
        raise ProtocolError(f"a frame has no {name}")
    return value
