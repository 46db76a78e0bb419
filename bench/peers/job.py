"""The ranks of one library: started once, asked over a socket, ended without leftovers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .catalogue import Peer


class JobError(Exception):
    """The job is of no use any more: it did not start, a rank failed or died, or an answer took too long."""


class UnsupportedError(Exception):
    """The library cannot do what was asked for; the job goes on."""


class Job:
    """`start()` returns at once, `ready()` waits for all ranks; then `ask(...)`; `close_all` in any case."""

    def __init__(self, peer: Peer, ranks: int, environments: Path) -> None:
        self.peer, self.ranks, self.version = peer, ranks, ""
        self._folder = tempfile.TemporaryDirectory(prefix="peers-")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._connections: list[Connection] = []
        self.pids: list[int] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._environments = environments
        self._door = socket.socket(socket.AF_UNIX)

    def start(self) -> None:
        """Start the processes. Raises JobError."""
        path = f"{self._folder.name}/door"
        self._door.bind(path)
        self._door.listen(self.ranks)
        for command, variables in self.peer.processes(self._environments, self.ranks, [path]):
            try:
                self._processes.append(
                    subprocess.Popen(
                        command,
                        env=variables,
                        cwd=self._folder.name,
                        stdin=subprocess.DEVNULL,
                        stdout=self._log,
                        stderr=self._log,
                        start_new_session=True,
                        text=True,
                    )
                )
            except OSError as error:
                raise JobError(f"{command[0]}: {error.strerror}") from error

    def ready(self, deadline: float) -> None:
        """Wait until every rank has said hello. Raises JobError."""
        found: dict[int, tuple[Connection, int]] = {}
        self._door.settimeout(0.2)
        waiting: list[Connection] = []
        while len(found) < self.ranks:
            if time.monotonic() > deadline:
                raise JobError(f"only {len(found)} of {self.ranks} ranks came in time{self._said()}")
            for process in self._processes:
                if process.poll():
                    raise JobError(f"exit code {process.returncode} at the start{self._said()}")
            with suppress(TimeoutError):
                waiting.append(Connection(self._door.accept()[0].detach()))
            for connection in [c for c in waiting if c.poll(0)]:
                waiting.remove(connection)
                rank, size, pid, self.version = _receive(connection)
                if size != self.ranks:
                    raise JobError(f"a rank sees {size} ranks instead of {self.ranks}{self._said()}")
                found[rank] = connection, pid
        self._connections = [found[rank][0] for rank in range(self.ranks)]
        self.pids = [found[rank][1] for rank in range(self.ranks)]

    def ask(self, limit: float, method: str, *arguments: Any) -> list[Any]:
        """Every rank's answer. Raises JobError when one fails or is not done within `limit` seconds,
        UnsupportedError when all ranks say that they cannot."""
        deadline = time.monotonic() + limit
        for connection in self._connections:
            try:
                connection.send((method, arguments))
            except OSError as error:
                raise JobError(f"a rank is gone{self._said()}") from error
        answers: dict[Connection, Any] = {}
        cannot = ""
        while missing := [each for each in self._connections if each not in answers]:
            ready = wait(missing, max(0.0, deadline - time.monotonic()))
            if not ready:
                late = [str(i) for i, each in enumerate(self._connections) if each in missing]
                raise JobError(
                    f"{method}: no answer of rank {', '.join(late)} within {limit:g} s{self._said()}"
                )
            for connection in [each for each in missing if each in ready]:
                try:
                    answers[connection] = _receive(connection)
                except UnsupportedError as error:
                    answers[connection], cannot = None, str(error)
                except (EOFError, OSError) as error:
                    rank = self._connections.index(connection)
                    raise JobError(f"{method}: rank {rank} has died{self._said()}") from error
        if cannot:
            raise UnsupportedError(cannot)
        return [answers[each] for each in self._connections]

    def quit(self) -> None:
        """Ask the ranks to end."""
        for connection in self._connections:
            with suppress(OSError):
                connection.send(("quit", ()))

    def close(self, deadline: float) -> None:
        """Wait until the ranks have ended; after the deadline, by force."""
        if not self._connections:
            deadline = 0.0  # they do not know that they should
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        if any(process.poll() is None for process in self._processes):
            for pid in self.pids:  # they may be in sessions of their own
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for connection in self._connections:
            connection.close()  # a rank ends itself when this end is gone
        for process in self._processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._door.close()
        self._log.close()
        with suppress(OSError):
            self._folder.cleanup()

    def _said(self) -> str:
        """The end of what the job has printed."""
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), 4000, max(0, size - 4000)).decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        return ": " + " | ".join(lines[-4:]) if lines else ""


def _receive(connection: Connection) -> Any:
    what, content, details = connection.recv()
    if what == "unsupported":
        raise UnsupportedError(content)
    if what == "error":
        raise JobError(f"{content}\n{details}")
    return content


def close_all(jobs: Sequence[Job], patience: float = 3.0) -> None:
    """End all, also after an error in one."""
    for job in jobs:
        job.quit()
    deadline = time.monotonic() + patience
    for job in jobs:
        with suppress(Exception):
            job.close(deadline)
