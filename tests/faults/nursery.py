"""Raises jobs of forked ranks and lets faults happen to them: `python nursery.py FIRST COUNT [FAULT]` tries so many seeds.

A fork takes milliseconds, a new interpreter with NumPy a hundred times as long. The ranks are real processes with real
memory, sockets and signals; this process is their launcher. One line is printed for each seed that went wrong, and the seed
alone makes it happen again (but for the timing).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pickle
import random
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "communicator"), str(TESTS / "faults")]
os.environ |= {"PYCOLLECTIVES_POOL_BYTES": "1048576", "PYCOLLECTIVES_WARN_SECONDS": "0"}

from judgement import Child, judge  # noqa: E402
from lives import rank  # noqa: E402
from scenarios import Scenario, scenario  # noqa: E402

from pycollectives.bootstrap.broker import Broker  # noqa: E402

CLONE_NEWIPC = 0x08000000
OWN_IPC = ctypes.CDLL(None).unshare(CLONE_NEWIPC) == 0  # semaphores and memory of others do not count then
LIMIT = 20.0  # seconds for one job


@contextmanager
def children(plan: Scenario) -> Iterator[tuple[list[Child], list[socket.socket]]]:
    """The ranks of a job, and this end of their sockets. Whatever happens, no rank is left."""
    pairs = [socket.socketpair() for _ in range(plan.size)]
    made: list[Child] = []
    parent = os.getpid()
    try:
        for number in range(plan.size):
            out, into = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    for fd in [out, *(fd for other in made for fd in (other.pipe, other.pidfd))]:
                        os.close(fd)
                    for i, (ours, theirs) in enumerate(pairs):
                        ours.close()
                        if i != number:
                            theirs.close()
                    if os.getppid() == parent:
                        rank(number, plan, pairs[number][1], into)
                finally:
                    os._exit(0)
            os.close(into)
            made.append(Child(pid, os.pidfd_open(pid), out))
        for _, theirs in pairs:
            theirs.close()
        yield made, [ours for ours, _ in pairs]
    finally:
        for child in made:
            if child.status is None:
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
            os.close(child.pidfd)
            os.close(child.pipe)


def attempt(plan: Scenario) -> list[str]:
    """Run one scenario; what went wrong."""
    with children(plan) as (made, sockets):
        broker = Broker(plan.size, keep=True)
        try:
            for number, (child, ours) in enumerate(zip(made, sockets, strict=True)):
                broker.attach(number, ours, child.pid)
            broker.start()
            snapshot = watch(plan, made, broker)
        finally:
            broker.close()
        return judge(plan, made, snapshot)


def watch(plan: Scenario, made: list[Child], broker: Broker) -> dict[str, Any]:
    """Until all ranks have ended, or the time is over; does to the victim what another process must do.

    Returns what the recorders say just after a death.
    """
    snapshot: dict[str, Any] = {}
    victim, deadline = made[plan.victim], time.monotonic() + LIMIT
    kill_at = resume_by = None
    rng = random.Random(plan.seed)
    while any(child.status is None for child in made) and time.monotonic() < deadline:
        waiting = [fd for child in made for fd in (child.pipe if child.open else -1, child.pidfd) if fd >= 0]
        waiting = [fd for fd in waiting if not any(c.pidfd == fd and c.status is not None for c in made)]
        ready, _, _ = select.select(waiting, [], [], 0.005)
        for child in made:
            if child.pipe in ready and child.open:
                data = os.read(child.pipe, 1 << 16)
                child.open = bool(data)
                child.data += data
                child.ready |= child.data[:1] == b"r"
            if child.pidfd in ready and child.status is None:
                child.died, child.status = time.monotonic(), os.waitpid(child.pid, 0)[1]
                if child is victim and child.status == signal.SIGKILL:
                    snapshot = broker.recorders.snapshot()
        now = time.monotonic()
        if plan.fault in ("killed", "massacre") and kill_at is None and all(child.ready for child in made):
            kill_at = now + plan.seconds + rng.uniform(0, 0.02)
        if kill_at is not None and now >= kill_at:
            for child in made if plan.fault == "massacre" else [victim]:
                if child.status is None:
                    os.kill(child.pid, signal.SIGKILL)
            kill_at = float("inf")
        others = [child for child in made if child is not victim]
        if (
            plan.fault == "stop"
            and victim.status is None
            and all(child.status is not None for child in others)
        ):
            resume_by = resume_by or rng.choice((signal.SIGCONT, signal.SIGKILL))
            os.kill(victim.pid, resume_by)  # again and again: it may not have stopped yet
    for child in made:
        if child.status is not None:
            while child.open and (data := os.read(child.pipe, 1 << 16)):
                child.data += data
        with suppress(Exception):
            child.outcome = pickle.loads(child.data[1:] if child.ready else child.data)
    return snapshot


def traces() -> tuple[Any, ...]:
    """What a leak would change: descriptors and mappings of this process, names on the machine, System V memory."""
    maps = sum("memfd" in line for line in Path("/proc/self/maps").read_text().splitlines())
    names = [str(path) for path in Path("/dev/shm").glob("*pycollectives*")]
    names += [str(path) for path in Path(tempfile.gettempdir()).glob("*") if os.environ.get("TMPDIR")]
    files = [path for path in Path("/proc/sysvipc").glob("*") if OWN_IPC]
    return (
        len(os.listdir("/proc/self/fd")),
        maps,
        sorted(names),
        threading.active_count(),
        [path.read_text() for path in files],
    )


def main(first: int, count: int, fault: str = "") -> int:
    """Try the seeds, all or those of one fault; the number of those that went wrong."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    failed = 0
    before: tuple[Any, ...] | None = None
    seeds = (seed for seed in itertools.count(first) if fault in ("", scenario(seed).fault))
    for seed in itertools.islice(seeds, count):
        plan = scenario(seed)
        wrong = attempt(plan)
        after = traces()
        if before is not None and after != before:
            wrong.append(f"something is left behind: {before} before, {after} after")
        before = before or after
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
            wrong.append("a child is left")
        if wrong:
            failed += 1
            print(f"{plan}\n  " + "\n  ".join(wrong), flush=True)
    print(f"{count - failed} of {count} seeds from {first} on went well", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(min(1, main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])))
