"""The doors at which the ranks that are left of a job on several hosts meet, and the lines to them (agreement.py says what for).

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pycollectives.bootstrap import forking
from pycollectives.bootstrap.addresses import Door, connect_all, listen

_PAUSE = 0.02
_CONNECT_SECONDS = 1.0
_STRANGER_SECONDS = 10.0
_STRANGERS = 64  # at the door at a time; the others wait in its queue
_LONGEST_LINE = 1 << 20


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


def _seal(secret: bytes, text: str) -> str:
    return hmac.new(secret, b"pycollectives reunion " + text.encode(), hashlib.sha256).hexdigest()


@dataclass(eq=False)
class Caller:
    """Somebody at this rank's door, and what it has come to say."""

    line: Line
    since: float
    request: dict[str, Any] | None = None
    told: int | None = None  # whom this rank followed when it told the caller to wait


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
                if caller.line.ended or stranger:
                    caller.line.close()
                    if not farewell:
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

    def wait(self, lines: Iterable[Line]) -> None:
        """A moment, or until somebody comes or says something; also where there are more than a thousand descriptors."""
        poll = select.poll()
        for sock in (self._listener, *(line.sock for line in lines)):
            poll.register(sock, select.POLLIN)
        poll.poll(_PAUSE * 1000)

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
