"""How the ranks that are left of a job on several hosts agree on who they are, and where they meet next.

    rank 3  -- "I take part" -->  the lowest rank that is there: it waits until all others have come, have gone, or are late
            <-- "wait" ---------
            <-- who is left ----  and the port at which it serves them
    rank 5  <-- "without you" --  left at the door of a rank that is late, which reads it when it comes

Every rank has a door: a listening TCP socket, where the kernel lets callers in whether its owner looks or not. If the lowest
rank is lost before all have been told, the next one decides anew. Two ranks that believe different ranks to be there may decide
apart: then the first exchange of one of the new communicators fails, and they try again. Where a network is cut in two, both
parts go on.

Each line is sealed with the secret of the door at which it is said; all ranks have these secrets from the start of the job.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pycollectives.bootstrap import forking
from pycollectives.bootstrap.addresses import Door, connect_all, listen
from pycollectives.errors import PeerError

_PAUSE = 0.02
_CONNECT_SECONDS = 1.0
_STRANGER_SECONDS = 10.0
_STRANGERS = 64  # at the door at a time; the others wait in its queue
_LONGEST_LINE = 1 << 20
_GRACE = 5.0  # seconds beyond a timeout that whoever keeps it may take to say so


class Line:
    """A connection to or at a door."""

    def __init__(self, sock: socket.socket, secret: bytes) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.ended = False
        self._secret = secret
        self._read = b""

    def say(self, **what: Any) -> None:
        """One line; it is short, so the kernel takes it at once."""
        text = json.dumps(what)
        try:
            self.sock.settimeout(_CONNECT_SECONDS)
            self.sock.sendall(f"{_seal(self._secret, text)} {text}\n".encode())
            self.sock.setblocking(False)
        except OSError:
            self.ended = True

    def hear(self) -> list[dict[str, Any]]:
        """What has been said since; `ended` becomes True at the end, and where somebody does not know the secret."""
        while not self.ended:
            try:
                data = self.sock.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.ended = not data or len(self._read) > _LONGEST_LINE
            self._read += data
        *whole, self._read = self._read.split(b"\n")
        said = []
        for line in whole:
            seal, _, text = line.decode(errors="replace").partition(" ")
            if not hmac.compare_digest(seal.encode(), _seal(self._secret, text).encode()):
                self.ended = True
                break
            said.append(json.loads(text))
        return said

    def close(self) -> None:
        """Hang up."""
        self.sock.close()
        self.ended = True


def _wait_for(sock: socket.socket) -> None:
    """A moment, or until there is something to read; also where there are more than a thousand descriptors."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.poll(_PAUSE * 1000)


def _seal(secret: bytes, text: str) -> str:
    return hmac.new(secret, b"pycollectives reunion " + text.encode(), hashlib.sha256).hexdigest()


@dataclass(eq=False)
class Caller:
    """Somebody at this rank's door, and what it has come to say."""

    line: Line
    since: float
    request: dict[str, Any] | None = None
    waits: bool = False  # has been told so


class Reunion:
    """This rank's door, and where those of the others are."""

    def __init__(self) -> None:
        self._listener = listen(4096)
        self._listener.setblocking(False)
        self.door = Door.of(self._listener)
        self.secret = secrets.token_bytes(32)
        self.others: dict[int, tuple[Door, bytes]] = {}  # by the rank of the job
        self._callers: list[Caller] = []
        self._lock = threading.Lock()
        forking.watch(self)

    def callers(self, name: str) -> list[Caller]:
        """Those that have come because of the communicator `name` and have not gone again."""
        with self._lock:
            with contextlib.suppress(OSError):  # nobody else, or no descriptor: the rest stays in the queue
                while sum(each.request is None for each in self._callers) < _STRANGERS:
                    sock, _ = self._listener.accept()
                    self._callers.append(Caller(Line(sock, self.secret), time.monotonic()))
            for caller in list(self._callers):
                for said in caller.line.hear():
                    caller.request = caller.request or said
                stranger = caller.request is None and time.monotonic() - caller.since > _STRANGER_SECONDS
                farewell = caller.request is not None and caller.request["kind"] == "without"
                if stranger or (caller.line.ended and not farewell):
                    caller.line.close()
                    self._callers.remove(caller)
            return [each for each in self._callers if each.request and each.request["name"] == name]

    def dismiss(self, callers: Sequence[Caller]) -> None:
        """They have been told."""
        with self._lock:
            for caller in callers:
                caller.line.close()
                with contextlib.suppress(ValueError):
                    self._callers.remove(caller)

    def call(self, ranks: Sequence[int]) -> dict[int, Line]:
        """Lines to the doors of those of `ranks` that can be reached within a second."""
        made = connect_all({rank: self.others[rank][0] for rank in ranks}, _CONNECT_SECONDS)
        return {rank: Line(sock, self.others[rank][1]) for rank, sock in made.items()}

    def derive(self, rank: int, purpose: str) -> bytes:
        """A secret that the ranks of this job alone know; `rank`, of the job, is whose door the purpose comes from."""
        secret = self.others[rank][1] if rank in self.others else self.secret
        return hmac.new(secret, f"pycollectives {purpose}".encode(), hashlib.sha256).digest()

    def wait(self) -> None:
        """A moment, or until somebody comes."""
        _wait_for(self._listener)

    def close(self) -> None:
        """Shut the door."""
        self._listener.close()
        for caller in self._callers:
            caller.line.close()
        self._callers.clear()

    def after_fork_in_child(self) -> None:
        """See forking.py."""
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_callers"):
            self.close()


@dataclass(frozen=True)
class Decision:
    """Who is left of a communicator, as its ranks; the first of them serves the others at `port`."""

    attempt: int
    ranks: tuple[int, ...]
    port: int
    nonce: str


@dataclass
class Agreement:
    """One rank's part in one attempt.

    `ranks`: those of the job, by the communicator's; `gone(r)`: why the communicator's rank r is not there any more, or "";
    `look` is called some times a second.
    """

    reunion: Reunion
    name: str
    attempt: int
    rank: int
    ranks: Sequence[int]
    timeout: float
    gone: Callable[[int], str]
    look: Callable[[], None]

    def reach(self) -> tuple[Decision, socket.socket | None]:
        """What has been decided, and, for the first one that is left, the socket where it has to serve the others.

        Raises PeerError on a rank that the others have gone on without.
        """
        late: set[int] = set()
        while True:
            first = next(r for r in range(self.rank + 1) if r == self.rank or not (r in late or self.gone(r)))
            if first == self.rank:
                return self._decide()
            if (decision := self._ask(first)) is not None:
                return decision, None
            if not self.gone(first):
                late.add(first)

    def _look(self) -> None:
        self.look()
        for caller in self.reunion.callers(self.name):
            if caller.request and caller.request["kind"] == "without":
                self._left_behind(caller.request["rank"])

    def _left_behind(self, peer: int) -> None:
        raise PeerError(
            "the other ranks have shrunk the communicator without this one, which came too late",
            rank=self.rank,
            peer=peer,
        )

    def _ask(self, first: int) -> Decision | None:
        """Take part, and hear the decision of `first`; None if it goes or does not answer in time."""
        until = time.monotonic() + self.timeout
        while time.monotonic() < until and not self.gone(first):
            self._look()
            line = self.reunion.call([self.ranks[first]]).get(self.ranks[first])
            if line is None:
                time.sleep(_PAUSE)
                continue
            try:
                line.say(kind="join", name=self.name, attempt=self.attempt, rank=self.rank)
                while not line.ended and time.monotonic() < until:
                    for said in line.hear():
                        if said["kind"] == "wait":  # it will decide in time
                            until = time.monotonic() + self.timeout + _GRACE
                        elif said["kind"] == "decided":
                            return self._accept(said)
                    if self.gone(first):
                        return None
                    self._look()
                    _wait_for(line.sock)
            finally:
                line.close()
            time.sleep(_PAUSE)  # it has hung up: it is lost, as will be seen, or has given up
        return None

    def _accept(self, said: dict[str, Any]) -> Decision:
        if self.rank not in said["ranks"]:
            self._left_behind(said["ranks"][0])
        return Decision(said["attempt"], tuple(said["ranks"]), said["port"], said["nonce"])

    def _decide(self) -> tuple[Decision, socket.socket]:
        """Wait for all that may come, and tell them."""
        until = time.monotonic() + self.timeout
        above = range(self.rank + 1, len(self.ranks))
        while True:
            self._look()
            callers = [
                each
                for each in self.reunion.callers(self.name)
                if each.request and each.request["kind"] == "join"
            ]
            come: dict[int, dict[str, Any]] = {}
            for caller in callers:
                assert caller.request is not None
                come[caller.request["rank"]] = caller.request
                if not caller.waits:
                    caller.waits = True
                    caller.line.say(kind="wait")
            if all(rank in come or self.gone(rank) for rank in above) or time.monotonic() > until:
                break
            self.reunion.wait()
        left = [self.rank, *(rank for rank in above if rank in come and not self.gone(rank))]
        attempt = max([self.attempt, *(come[rank]["attempt"] for rank in left[1:])])
        listener = listen(len(self.ranks) + 16)
        decision = Decision(attempt, tuple(left), listener.getsockname()[1], secrets.token_hex(16))
        for caller in callers:
            caller.line.say(kind="decided", **vars(decision))
        self.reunion.dismiss(callers)
        behind = [r for r in range(len(self.ranks)) if r not in left and r not in come and not self.gone(r)]
        for line in self.reunion.call([self.ranks[r] for r in behind]).values():
            line.say(kind="without", name=self.name, rank=self.rank)
            line.close()
        return decision, listener
