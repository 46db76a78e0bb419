"""Jobs as subprocesses, found again by a mark in their environment and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import pycollectives
from pycollectives.bootstrap.broker import Broker
from pycollectives.bootstrap.client import Connection, SocketRendezvous
from pycollectives.bootstrap.wire import Channel

ROOT = Path(pycollectives.__file__).parents[1]
MARK = "PYCOLLECTIVES_TEST_MARK"
LAUNCH = (
    "import json, sys; from pycollectives.bootstrap.launcher import launch;"
    "sys.exit(launch(int(sys.argv[1]), sys.argv[3:], **json.loads(sys.argv[2])))"
)
COUNT_INTERRUPTS = """
import os, signal, time
count = 0
def on(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, on)
print("ready", flush=True)
end = time.monotonic() + 1
while time.monotonic() < end: time.sleep(0.05)
print("interrupts", count)
"""
FOREIGN = ("PYCOLLECTIVES_", "PMI", "OMPI_", "MASTER_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_")


class Jobs:
    """Starts processes for one test and ends whatever is left of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.started: list[subprocess.Popen[str]] = []

    def script(self, text: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(text))
        return path

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return env | {"PYTHONPATH": str(ROOT), MARK: self.mark} | dict(extra or {})

    def start(self, command: Sequence[object], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(part) for part in command],
            env=self.environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=self.folder,
        )
        self.started.append(process)
        return process

    def python(self, *command: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return self.start([sys.executable, *command], env)

    def launch(self, n: int, *argv: object, options: str = "{}") -> subprocess.Popen[str]:
        return self.python("-c", LAUNCH, n, options, *argv)

    def alive(self) -> list[int]:
        """Every process of this test: all inherit the mark."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def wait_until_none_is_left(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]

    def clean(self) -> None:
        for pid in self.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.communicate(timeout=10)


def finish(process: subprocess.Popen[str], seconds: float = 20.0, stdin: str = "") -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a process that has to end within the time."""
    out, err = process.communicate(stdin, timeout=seconds)
    return process.returncode, out, err


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Starts and cleans up processes."""
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.clean()


@pytest.fixture
def done() -> Callable[..., tuple[int, str, str]]:
    """`finish`."""
    return finish


@pytest.fixture
def world() -> Iterator[Callable[..., tuple[Broker, list[SocketRendezvous]]]]:
    """A broker of this process with its ranks, to be used from threads."""
    made: list[tuple[Broker, list[SocketRendezvous]]] = []

    def make(size: int, *, keep: bool = False) -> tuple[Broker, list[SocketRendezvous]]:
        broker = Broker(size, keep=keep)
        broker.start()
        ranks = []
        for rank in range(size):
            ours, theirs = socket.socketpair()
            broker.attach(rank, theirs)
            connection = Connection(Channel(ours, trusted=True), rank, "the broker")
            ranks.append(SocketRendezvous(connection, size, "launcher"))
        made.append((broker, ranks))
        return broker, ranks

    yield make
    for broker, ranks in made:
        for rendezvous in ranks:
            rendezvous.close()
        broker.close()
