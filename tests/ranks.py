"""Runs a function on several ranks: as threads of this process, or as processes that serve many calls.

    threads(4, fn, *args)             fn(comm, *args) on every rank; the results in rank order
    with Processes(4) as ranks:
        ranks.run(fn, *args)          the same, in processes that were started once

A process imports the function by its module's name, so it must be a module-level one; modules without pytest and
Hypothesis start faster. Every wait has a limit, and nothing is left behind.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import pycollectives as pc

Result = TypeVar("Result")
ROOT = Path(pc.__file__).parents[1]
FOREIGN = ("PYCOLLECTIVES_", "PMI", "OMPI_", "MASTER_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_")
LAUNCH = (
    "import sys; from pycollectives.bootstrap.launcher import launch;"
    "sys.exit(launch(int(sys.argv[1]), sys.argv[2:], keep_going=True))"
)


class RankFailed(AssertionError):
    """A function raised on some ranks; the text has their tracebacks."""


class Died:
    """In place of the result of a rank that has died."""

    def __repr__(self) -> str:
        return "DIED"


DIED = Died()


def threads(n: int, fn: Callable[..., Result], *args: Any) -> list[Result]:
    """`fn(comm, *args)` on `n` ranks that are threads."""
    return pc.run_threads(n, fn, *args)


def raised_by(call: Callable[[], Any]) -> str:
    """The name of the error that a call raises; empty if it raises none."""
    try:
        call()
    except pc.CollectiveError as error:
        return type(error).__name__
    return ""


class Processes:
    """`n` ranks that are processes, under the library's own launcher."""

    def __init__(self, n: int, env: dict[str, str] | None = None) -> None:
        self.n = n
        self.usable = True
        self.connections: list[Connection] = []
        self.pids: list[int] = []
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close()
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
            door.bind(f"{folder}/door")
            door.listen(n)
            door.settimeout(60)
            clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
            self._launcher = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(n), __file__, f"{folder}/door"],
                env=clean | {"PYTHONPATH": str(ROOT)} | (env or {}),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            try:
                found = {}
                for _ in range(n):
                    connection = Connection(door.accept()[0].detach())
                    assert connection.poll(60), "a rank did not say hello"
                    rank, pid = connection.recv()
                    found[rank] = connection, pid
            except BaseException as error:
                self.close()
                raise RankFailed(f"the ranks did not start: {error!r}\n{self.log()}") from error
        self.connections = [found[rank][0] for rank in range(n)]
        self.pids = [found[rank][1] for rank in range(n)]

    def start(self, fn: Callable[..., Any], *args: Any) -> None:
        """Let every rank begin `fn(comm, *args)`."""
        folder = str(Path(sys.modules[fn.__module__].__file__ or "").parent)
        for connection in self.connections:
            connection.send((folder, pickle.dumps((fn, args))))

    def go_on(self, rank: int, after: float) -> None:
        """Lets a rank go on that stops itself by SIGSTOP, so many seconds after it has stopped."""
        status, deadline = Path(f"/proc/{self.pids[rank]}/stat"), time.monotonic() + 60
        while status.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline, f"rank {rank} does not stop"
            time.sleep(0.01)
        time.sleep(after)
        os.kill(self.pids[rank], signal.SIGCONT)

    def finish(self, *, timeout: float = 60.0, died: Sequence[int] = ()) -> list[Any]:
        """The results in rank order; DIED for the ranks in `died`, which must have died.

        Raises RankFailed when a rank raised, has died unexpectedly, or is not done in time.
        """
        deadline = time.monotonic() + timeout
        results: dict[int, Any] = {}
        errors: dict[int, str] = {}
        while len(results) < self.n:
            late = {c: r for r, c in enumerate(self.connections) if r not in results}
            ready = wait(list(late), max(0.0, deadline - time.monotonic()))
            if not ready:
                errors |= {rank: "is not done in time" for rank in late.values()}
                for rank in late.values():
                    with suppress(ProcessLookupError):
                        os.kill(self.pids[rank], signal.SIGABRT)  # prints its stacks
                time.sleep(0.5)
                break
            for connection in ready:
                rank = late[connection]  # type: ignore[index]
                try:
                    outcome, results[rank] = connection.recv()  # type: ignore[union-attr]
                except (EOFError, ConnectionResetError):
                    outcome, results[rank] = "died", DIED
                if (outcome == "died") != (rank in died) or outcome == "raised":
                    errors[rank] = f"{outcome}: {results[rank]}"
                    deadline = min(deadline, time.monotonic() + 3.0)  # the others may wait for it
        if errors or died:
            self.usable = False
        if errors:
            text = "\n".join(f"--- rank {rank} of {self.n} {what}" for rank, what in sorted(errors.items()))
            raise RankFailed(f"{text}\n{self.log()}")
        return [results[rank] for rank in range(self.n)]

    def run(
        self, fn: Callable[..., Any], *args: Any, timeout: float = 60.0, died: Sequence[int] = ()
    ) -> list[Any]:
        """`fn(comm, *args)` on every rank; see `finish`."""
        self.start(fn, *args)
        return self.finish(timeout=timeout, died=died)

    def log(self) -> str:
        """What the ranks have printed."""
        self._log.seek(0)
        return self._log.read()[-20000:]

    def close(self) -> None:
        """End the ranks; they are killed if they do not leave by themselves."""
        self.usable = False
        for connection in self.connections:
            connection.close()
        try:
            self._launcher.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._launcher.kill()  # the ranks die with it
            self._launcher.wait()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._log.close()


class Pools:
    """One `Processes` for each number of ranks, started when first needed and again after a failure."""

    def __init__(self) -> None:
        self._pools: dict[int, Processes] = {}

    def __call__(self, n: int) -> Processes:
        pool = self._pools.get(n)
        if pool is not None and not pool.usable:
            pool.close()
            pool = None
        if pool is None:
            pool = self._pools[n] = Processes(n)
        return pool

    def close(self) -> None:
        """End all."""
        for pool in self._pools.values():
            pool.close()


def serve(door: str) -> None:
    """The life of a rank: functions in, results out."""
    faulthandler.enable()
    me = os.getpid()
    if os.environ.get("TEST_RENDEZVOUS") == "torchrun":  # without the help of the launcher
        os.environ |= {
            "RANK": os.environ.pop("PYCOLLECTIVES_RANK"),
            "WORLD_SIZE": os.environ["PYCOLLECTIVES_SIZE"],
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(os.getppid()),
        }
    comm = pc.init()
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(door)
        connection = Connection(way.detach())
    connection.send((comm.rank, me))
    while True:
        try:
            folder, message = connection.recv()
        except EOFError:
            return
        try:
            if folder not in sys.path:
                sys.path.insert(0, folder)
            fn, args = pickle.loads(message)
            answer = "returned", fn(comm, *args)
        except BaseException:
            if os.getpid() != me:
                raise  # a forked child that ends
            answer = "raised", traceback.format_exc()
        connection.send(answer)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    serve(sys.argv[1])
