"""Asking a running job what its ranks do: over an abstract socket, between processes of one user.

The socket is named after the process that serves the job's exchanges (the launcher, or rank 0 under mpiexec) and a
random number. Who asks finds it in /proc/net/unix; both sides check the credentials of the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any

from pycollectives.bootstrap.handshake import peer_credentials, refusal_of_user
from pycollectives.bootstrap.recorders import Recorders
from pycollectives.errors import BootstrapError

_PREFIX = "pycollectives-inspect-"
_SECONDS = 5.0  # for one answer
_PAUSE = 0.01


class Inspector:
    """The answering side: a listening socket, served by its owner's loop."""

    def __init__(self, recorders: Recorders) -> None:
        self._recorders = recorders
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"\0{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}")
        self._socket.listen(4)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Of the listening socket."""
        return self._socket.fileno()

    def answer(self) -> None:
        """Serve one who has knocked; the answer is sent by a thread of its own."""
        try:
            door, _ = self._socket.accept()
        except OSError:
            time.sleep(_PAUSE)  # out of descriptors, perhaps
            return
        if refusal_of_user(door) is not None:
            door.close()
            return
        threading.Thread(target=self._send, args=(door,), name="pycollectives-inspector", daemon=True).start()

    def close(self) -> None:
        """No more answers."""
        self._socket.close()

    def _send(self, door: socket.socket) -> None:
        with door, contextlib.suppress(OSError):
            door.settimeout(_SECONDS)
            door.sendall(json.dumps(self._recorders.snapshot()).encode())


def ask(pid: int) -> dict[str, Any]:
    """The state of the job that process `pid` serves or is a rank of (see `Recorders.snapshot`).

    Raises BootstrapError if there is none of this user.
    """
    names = _names()
    own = [name for name in names if name.startswith(f"{_PREFIX}{pid}-")]
    for name in own + [name for name in names if name not in own]:
        snapshot = _ask(name)
        if snapshot is None:
            continue
        if pid in (snapshot["pid"], *(each["pid"] for each in snapshot["processes"].values())):
            return snapshot
    raise BootstrapError(f"process {pid} belongs to no job of this user that can be asked")


def _names() -> list[str]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    names = (line.split(maxsplit=7)[-1].removeprefix("@") for line in lines)
    return sorted({name for name in names if name.startswith(_PREFIX)})


def _ask(name: str) -> dict[str, Any] | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
        way.settimeout(_SECONDS)
        try:
            way.connect(f"\0{name}")
            if refusal_of_user(way) is not None:
                return None
            pid = peer_credentials(way)[0]
            data = b"".join(iter(lambda: way.recv(1 << 20), b""))
            snapshot: dict[str, Any] = json.loads(data)
        except (OSError, ValueError):  # somebody else's, or about to end
            return None
    return snapshot if snapshot.get("pid") == pid else None
