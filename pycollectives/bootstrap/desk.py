"""What the broker does with the frames of a rank that it knows, and how it answers."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pycollectives.bootstrap.matching import Contribution, Epochs, Outcome
from pycollectives.bootstrap.rendezvous import close_all
from pycollectives.bootstrap.wire import Channel, Descriptors, Frame, Kind, ProtocolError


@dataclass(frozen=True)
class Kept:
    """A contribution under a key that starts with "keep/", with copies of its descriptors."""

    rank: int
    index: int
    payload: bytes
    fds: list[int]


class Desk:
    """The exchanges of a job and what is kept of them."""

    def __init__(self, size: int, *, keep: bool) -> None:
        self.epochs = Epochs(size)
        self.kept: dict[str, list[Kept]] = {}
        self._keep = keep

    def serve(self, rank: int, frame: Frame) -> list[Outcome]:
        """Act on one frame; return the calls that it ends. Raises ProtocolError."""
        if frame.kind == Kind.EXCHANGE:
            return self._exchange(rank, frame)
        if frame.kind == Kind.BYE:
            return self.epochs.close(number(frame, "epoch"), rank)
        if frame.kind == Kind.WITHDRAW:
            self.epochs.withdraw(number(frame, "epoch"), rank, frame.ticket)
            return []
        raise ProtocolError(f"a frame of kind {frame.kind} came")

    def close(self) -> None:
        """Forget the exchanges and close every descriptor."""
        self.epochs = Epochs(self.epochs.size)
        for kept in self.kept.values():
            for each in kept:
                close_all(each.fds)
                each.fds.clear()

    def _exchange(self, rank: int, frame: Frame) -> list[Outcome]:
        key, timeout = frame.meta.get("key"), frame.meta.get("timeout")
        if not isinstance(key, str) or not isinstance(timeout, (int, float)):
            raise ProtocolError("an exchange has no key or no timeout")
        part = Contribution(
            rank=rank,
            ticket=frame.ticket,
            index=number(frame, "index"),
            payload=frame.payload,
            descriptors=frame.descriptors,
            deadline=time.monotonic() + timeout,
            timeout=timeout,
        )
        if self._keep and key.startswith("keep/"):
            copies = Descriptors.copy_of(part.descriptors.fds).take()
            self.kept.setdefault(key, []).append(Kept(part.rank, part.index, part.payload, copies))
        return self.epochs.join(number(frame, "epoch"), key, number(frame, "count"), part)


def answer(channel: Channel, outcome: Outcome) -> None:
    """Queue the answer to the call that has ended."""
    if outcome.parts is None:
        error = {"error": outcome.error, "peer": outcome.peer}
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
