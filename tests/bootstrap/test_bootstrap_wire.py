"""Frames stay whole when a finalizer sends one of its own in the middle of another (it runs wherever the collector does)."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

from pycollectives.bootstrap.wire import Channel, Kind


class Interrupting(list[bytes]):
    """Payloads; each look at them lets `then` run first."""

    def __init__(self, items: list[bytes], then: Callable[[], None]) -> None:
        super().__init__(items)
        self.then = then

    def __iter__(self) -> Iterator[bytes]:
        self.then()
        return super().__iter__()


class InterruptingSocket:
    """A socket; `then` runs before and after each sendmsg."""

    def __init__(self, sock: socket.socket, then: Callable[[], None]) -> None:
        self.sock, self.then = sock, then

    def sendmsg(self, *arguments: Any) -> int:
        self.then()
        sent = self.sock.sendmsg(*arguments)
        self.then()
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


def test_frames_inside_of_frames() -> None:
    ours, theirs = socket.socketpair()
    sender, receiver = Channel(ours, trusted=True), Channel(theirs, trusted=True)
    left = 5

    def finalizer() -> None:
        nonlocal left
        if left:
            left -= 1
            sender.queue(Kind.RELEASE, meta={"left": left}, payloads=[b"r" * left])
            sender.flush()

    sender.sock = InterruptingSocket(ours, finalizer)  # type: ignore[assignment]
    for ticket in range(1, 4):
        sender.queue(Kind.EXCHANGE, ticket=ticket, payloads=Interrupting([b"ab", b"c" * ticket], finalizer))
        while not sender.flush():
            pass
    frames = receiver.receive()
    said = [json.dumps(frame.meta) for frame in frames if frame.kind == Kind.RELEASE]
    asked = {frame.ticket: frame.payload for frame in frames if frame.kind == Kind.EXCHANGE}
    assert sorted(said) == [f'{{"left": {i}}}' for i in range(5)]
    assert asked == {ticket: b"ab" + b"c" * ticket for ticket in range(1, 4)}
    sender.close(shutdown=False)
    receiver.close(shutdown=False)
