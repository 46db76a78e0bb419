"""A rank's side of the broker: one connection, shared by all threads of the rank."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import threading
import time
from collections.abc import Callable, Sequence

from pycollectives.bootstrap import forking
from pycollectives.bootstrap.handshake import open_pidfd, peer_credentials
from pycollectives.bootstrap.rendezvous import LOOK_SECONDS, ExchangeError, check_arguments, check_process
from pycollectives.bootstrap.wire import Channel, Descriptors, Frame, Kind, ProtocolError
from pycollectives.errors import BootstrapError

_GRACE = 0.5  # the broker names who is missing; only a broker that does not answer is timed out here
_STALL_SECONDS = 0.01
_LONGEST_SLEEP = 3600.0


class Connection:
    """The channel to the broker in ``host`` (as in "the launcher has ended").

    It has no thread of its own: of the waiting threads one reads for all of them.
    """

    def __init__(self, channel: Channel, rank: int, host: str) -> None:
        self.rank = rank
        self.pid = os.getpid()
        self._channel = channel
        self._lost: str | None = None
        self._host = host
        self._pidfd = self._watch()
        self._condition = threading.Condition()
        self._answers: dict[int, Frame | None] = {}
        self._tickets = itertools.count(1)
        self._reading = False
        forking.watch(self)

    def request(
        self,
        meta: dict[str, object],
        payload: bytes,
        descriptors: Descriptors,
        timeout: float,
        look: Callable[[], None] | None = None,
    ) -> Frame:
        """Contribute to an exchange and wait for its answer (ANSWER or ERROR). Raises BootstrapError."""
        deadline = time.monotonic() + timeout + _GRACE
        ticket = next(self._tickets)
        with self._condition:
            self._answers[ticket] = None
        try:
            self._send(Kind.EXCHANGE, ticket, meta, payload, descriptors, deadline)
            answer = self._wait(ticket, deadline, look)
        finally:
            with self._condition:
                answered = self._answers.pop(ticket) is not None
                if not answered and self._lost is None:
                    self._say(Kind.WITHDRAW, ticket, {"epoch": meta["epoch"]})
        return answer

    def tell(self, kind: Kind, meta: dict[str, object]) -> None:
        """Send a frame that has no answer, as far as the socket takes it now."""
        with self._condition:
            if self._lost is None:
                self._say(kind, 0, meta)

    def close(self) -> None:
        """Hang up; threads that wait are told."""
        if self.pid != os.getpid():
            return
        with self._condition:
            self._lost = self._lost or "the rendezvous is closed"
            reading = self._reading
            if not reading:
                self._release()
            else:
                self._channel.shutdown()  # the reader wakes up and releases
            self._condition.notify_all()

    def after_fork_in_child(self) -> None:
        """Close the child's copies."""
        self._channel.close(shutdown=False)
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _watch(self) -> int | None:
        try:
            return open_pidfd(peer_credentials(self._channel.sock)[0])
        except BootstrapError:
            self._lost = f"{self._host} has ended"
            return None

    def _release(self) -> None:
        self._channel.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _say(self, kind: Kind, ticket: int, meta: dict[str, object]) -> None:
        self._channel.queue(kind, ticket=ticket, meta=meta)
        with contextlib.suppress(OSError):  # the broker has gone: the next reader finds out
            self._channel.flush()

    def _send(
        self,
        kind: Kind,
        ticket: int,
        meta: dict[str, object],
        payload: bytes,
        descriptors: Descriptors,
        deadline: float,
    ) -> None:
        with self._condition:
            self._check()
            self._channel.queue(kind, ticket=ticket, meta=meta, payloads=[payload], descriptors=[descriptors])
        while True:
            with self._condition:
                self._check()
                try:
                    if self._channel.flush():
                        return
                except OSError:
                    return  # the reader finds out why
                stalled, fd = self._channel.stalled, self._channel.fileno()
            left = deadline - time.monotonic()
            if left <= 0:
                raise BootstrapError(f"{self._host} does not read what this rank sends", rank=self.rank)
            if stalled:
                time.sleep(_STALL_SECONDS)
            else:
                self._poll(fd, select.POLLOUT, left)

    def _wait(self, ticket: int, deadline: float, look: Callable[[], None] | None) -> Frame:
        longest = _LONGEST_SLEEP if look is None else LOOK_SECONDS
        while True:
            if look is not None:
                look()
            with self._condition:
                while True:
                    if (answer := self._answers[ticket]) is not None:
                        return answer
                    self._check()
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise BootstrapError(f"{self._host} does not answer", rank=self.rank)
                    if not self._reading:
                        self._reading = True
                        break
                    self._condition.wait(min(left, longest))
                    if look is not None:
                        look()
            try:
                self._poll(self._channel.fileno(), select.POLLIN, min(left, longest))
            finally:
                with self._condition:
                    self._reading = False
                    try:
                        self._read()
                    finally:
                        self._condition.notify_all()

    def _poll(self, fd: int, events: int, seconds: float) -> None:
        poll = select.poll()
        poll.register(fd, events)
        if (pidfd := self._pidfd) is not None:
            poll.register(pidfd, select.POLLIN)
        poll.poll(min(seconds, _LONGEST_SLEEP) * 1000)

    def _read(self) -> None:
        """Sort what has arrived. Locked."""
        if self._lost is not None:
            self._release()
            return
        try:
            frames = self._channel.receive()
        except ProtocolError as error:
            self._lost = str(error)
            return
        for frame in frames:
            if frame.ticket in self._answers:
                self._answers[frame.ticket] = frame
        if self._channel.ended or self._host_ended():
            self._lost = f"{self._host} has ended or closed the connection"

    def _host_ended(self) -> bool:
        if self._pidfd is None:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def _check(self) -> None:
        if self._lost is not None:
            raise BootstrapError(self._lost, rank=self.rank)


class SocketRendezvous:
    """The rendezvous of a rank whose job has a broker.

    ``epoch`` counts how often the ranks of the job have opened a rendezvous over this connection. On `close`,
    ``on_close`` is called; without it the connection is closed.
    """

    def __init__(
        self,
        connection: Connection,
        size: int,
        kind: str,
        *,
        epoch: int = 1,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.rank = connection.rank
        self.size = size
        self.kind = kind
        self._connection = connection
        self._epoch = epoch
        self._on_close = connection.close if on_close is None else on_close
        self.closed = False

    def exchange(
        self,
        key: str,
        index: int,
        count: int,
        payload: bytes,
        fds: Sequence[int],
        timeout: float,
        members: Sequence[int] | None = None,
        look: Callable[[], None] | None = None,
    ) -> list[tuple[bytes, list[int]]]:
        """See `Rendezvous.exchange`."""
        check_process(self._connection.pid)
        check_arguments(self.size, key, index, count, timeout)
        if self.closed:
            raise BootstrapError("the rendezvous is closed", rank=self.rank)
        meta = {
            "epoch": self._epoch,
            "key": key,
            "index": index,
            "count": count,
            "timeout": timeout,
            "members": None if members is None else list(members),
        }
        descriptors = Descriptors.copy_of(fds)  # an exchange given up half sent may outlive the caller's own
        answer = self._connection.request(meta, bytes(payload), descriptors, timeout, look)
        if answer.kind == Kind.ERROR:
            raise ExchangeError(
                str(answer.meta.get("error")),
                cause=str(answer.meta.get("cause")),
                missing=answer.meta.get("missing") or (),
                rank=self.rank,
                peer=answer.meta.get("peer"),
                collective="exchange",
            )
        return _parts(answer, count)

    def release(self, key: str) -> None:
        """See `Rendezvous.release`."""
        if self._connection.pid == os.getpid():
            self._connection.tell(Kind.RELEASE, {"epoch": self._epoch, "key": key})

    def abandon(self) -> None:
        """Leave what could not be completed; where this process serves the others, it stops that, too."""
        self.closed = True
        self._connection.close()

    def close(self) -> None:
        """See `Rendezvous.close`."""
        if self.closed:
            return
        self.closed = True
        if self._connection.pid == os.getpid():
            self._connection.tell(Kind.BYE, {"epoch": self._epoch})
            self._on_close()


def _parts(answer: Frame, count: int) -> list[tuple[bytes, list[int]]]:
    sizes, numbers = answer.meta.get("sizes"), answer.meta.get("fds")
    if not (isinstance(sizes, list) and isinstance(numbers, list) and len(sizes) == len(numbers) == count):
        raise ProtocolError("an answer does not say what belongs to whom")
    if sum(sizes) != len(answer.payload) or sum(numbers) != len(answer.descriptors.fds):
        raise ProtocolError("an answer does not add up")
    fds = answer.descriptors.take()
    parts, byte, first = [], 0, 0
    for size, number in zip(sizes, numbers, strict=True):
        parts.append((answer.payload[byte : byte + size], fds[first : first + number]))
        byte, first = byte + size, first + number
    return parts
