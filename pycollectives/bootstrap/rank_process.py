"""One rank as a process: how it is started, signalled, and what it prints."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from pycollectives.bootstrap import launched
from pycollectives.bootstrap.output import Relay, Sink


class RankProcess:
    """A rank in a process group of its own (child.py), which dies with this process. `channel` is our end of its socket pair."""

    def __init__(
        self,
        rank: int,
        size: int,
        command: list[str],
        env: dict[str, str],
        sinks: tuple[Sink, Sink],
        *,
        prefix: bool,
    ) -> None:
        self.rank = rank
        self.ended = False
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self.process = _start(rank, size, command, env, theirs)
        assert self.process.stdout is not None and self.process.stderr is not None
        tag = b"[%d] " % rank if prefix else b""
        eager = rank == 0 and _interactive()
        self.relays = []
        for stream, sink in zip((self.process.stdout, self.process.stderr), sinks, strict=True):
            self.relays.append(Relay(os.dup(stream.fileno()), sink, tag, eager=eager))
            stream.close()
        self.pidfd = os.pidfd_open(self.process.pid)

    def signal(self, number: int) -> None:
        """Signal the rank and its own children. It is not yet reaped: its group cannot be another's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:  # it has not left this process's group yet
                os.kill(self.process.pid, number)

    def outcome(self) -> tuple[int, str]:
        """Its exit code, 128 + the signal's number if it died of one, and the same in words. It has ended."""
        status = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        assert status is not None
        if status.si_code == os.CLD_EXITED:
            return status.si_status, f"exited with code {status.si_status}"
        return 128 + status.si_status, f"died of {_signal_name(status.si_status)}"

    def close(self) -> None:
        """Reap it and pass on the rest of its output."""
        self.process.wait()
        os.close(self.pidfd)
        for relay in self.relays:
            relay.drain()
            relay.close()


def _start(
    rank: int, size: int, command: list[str], env: dict[str, str], theirs: socket.socket
) -> subprocess.Popen[bytes]:
    env = env | {
        launched.RANK: str(rank),
        launched.SIZE: str(size),
        launched.FD: str(theirs.fileno()),
        launched.INODE: str(os.fstat(theirs.fileno()).st_ino),
        "PYCOLLECTIVES_LOCAL_RANK": str(rank),
        "PYCOLLECTIVES_LOCAL_SIZE": str(size),
    }
    env.setdefault("PYTHONUNBUFFERED", "1")
    isolated = ["-S", "-s"] if "PYTHONHOME" in env else ["-I", "-S"]
    become = [sys.executable, *isolated, str(Path(__file__).with_name("child.py")), str(os.getpid())]
    return subprocess.Popen(
        [*become, *command],
        stdin=None if rank == 0 and _stdin_is_ours() else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        pass_fds=[theirs.fileno()],
        bufsize=0,
    )


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _stdin_is_ours() -> bool:
    """A launcher in the background must not let a rank take what is typed for the shell."""
    try:
        return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _interactive() -> bool:
    return all(os.isatty(fd) for fd in (0, 1))
