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
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "communicator"), str(TESTS / "faults")]
os.environ |= {"PYCOLLECTIVES_POOL_BYTES": "1048576", "PYCOLLECTIVES_WARN_SECONDS": "0"}

import numpy as np  # noqa: E402
from catalogue import check  # noqa: E402
from scenarios import ENDS, PATIENCE, Scenario, options, scenario  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives import _core  # noqa: E402
from pycollectives.bootstrap.broker import Broker  # noqa: E402
from pycollectives.bootstrap.client import Connection, SocketRendezvous  # noqa: E402
from pycollectives.bootstrap.wire import Channel  # noqa: E402

OWN_IPC = (
    ctypes.CDLL(None).unshare(0x08000000) == 0
)  # semaphores and System V memory of others do not count then
LIMIT = 20.0  # seconds for one job
SOON = 2.0  # seconds from a fault to what the others raise


@dataclass
class Outcome:
    """How a rank has fared."""

    error: str = ""  # the class of what it raised
    text: str = ""
    peer: int | None = None
    when: float = 0.0
    problem: str = ""  # what is wrong with that
    fault: float = 0.0  # when it happened, on the victim
    outside: bool = False  # outside of a collective, so that the library knows nothing of it
    trace: str = ""


@dataclass
class Child:
    """A rank, as its parent knows it."""

    pid: int
    pidfd: int
    pipe: int
    data: bytes = b""
    outcome: Outcome | None = None
    status: int | None = None
    died: float = 0.0
    ready: bool = False
    open: bool = True
    sent: list[int] = field(default_factory=list)


def live(comm: pc.Communicator, plan: Scenario, outcome: Outcome) -> None:
    """The program of a rank. Raises what the library raises."""
    mine = comm.rank == plan.victim
    for i, call in enumerate(plan.calls):
        if i == plan.at and plan.fault == "stop":
            comm.barrier()  # all begin to lose their patience at the same time
            comm.timeout = PATIENCE if not mine else 10.0
        if i == plan.at and (mine or plan.fault == "jitter"):
            outcome.fault = time.monotonic()
            begin(comm, plan)
        changed = options(call)
        if plan.fault == "disagree" and mine and i == plan.at:
            changed["count"] += 1
        check(comm, **changed)
        if plan.mixed:
            mix(comm, i)
    if mine and plan.fault in (
        "kill",
        "stop",
        "raise",
        "interrupt",
    ):  # the fault may have had too few instructions
        _core.inject_fault("none")
        outcome.fault, outcome.outside = time.monotonic(), True
        if plan.fault == "raise":
            raise pc.TransportError("an injected fault")
        os.kill(
            os.getpid(),
            {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "interrupt": signal.SIGINT}[plan.fault],
        )
    if plan.fault == "leave" and mine:
        return
    for _ in range(4):
        comm.barrier()
    while plan.fault in ("abort", "killed", "massacre"):
        comm.barrier()


def begin(comm: pc.Communicator, plan: Scenario) -> None:
    """Let the fault happen, soon."""
    if plan.fault in ("kill", "stop", "raise", "interrupt", "delay"):
        _core.inject_fault(plan.fault, after=plan.after, seconds=0.2)
    elif plan.fault == "jitter":
        _core.inject_fault("jitter", seconds=1e-4, seed=plan.seed * 64 + comm.rank)
    elif plan.fault == "leave":
        comm.close()
    elif plan.fault == "abort":
        threading.Timer(plan.seconds, comm.abort).start()


def mix(comm: pc.Communicator, i: int) -> None:
    """What is not in the catalogue."""
    sub = comm.split(comm.rank % 2, comm.rank)
    assert sub is not None
    assert sub.all_gather_object(comm.rank) == list(range(comm.rank % 2, comm.size, 2))
    sub.close()
    x = comm.empty(5000 + i, "float64")
    x[:] = comm.rank
    assert (comm.all_reduce(x) == sum(range(comm.size))).all()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    assert comm.sendrecv(np.full(i * 3000, comm.rank), dest=right, source=left).tolist() == [left] * (
        i * 3000
    )


def rank(number: int, plan: Scenario, sock: socket.socket, pipe: int) -> None:
    """The life of a rank."""
    outcome = Outcome()
    try:
        connection = Connection(Channel(sock, trusted=True), number, "the launcher")
        comm = pc.Communicator(SocketRendezvous(connection, plan.size, "launcher"))
        os.write(pipe, b"r")
        try:
            live(comm, plan, outcome)
        except (pc.CollectiveError, KeyboardInterrupt) as error:
            outcome.error, outcome.text, outcome.when = type(error).__name__, str(error), time.monotonic()
            outcome.peer, outcome.trace = getattr(error, "peer", None), traceback.format_exc()
        _core.inject_fault("none")
        if (
            plan.shrinks
            and outcome.error
            and not (number == plan.victim and plan.fault in ("interrupt", "leave"))
        ):
            go_on(comm, plan)
        comm.close()
    except BaseException:
        outcome.problem = traceback.format_exc()
    data = pickle.dumps(outcome)
    while data:
        data = data[os.write(pipe, data) :]


def go_on(comm: pc.Communicator, plan: Scenario) -> None:
    """The survivors shrink the communicator, and it works."""
    gone = plan.fault in ("kill", "killed", "leave", "interrupt", "stop")
    left = [each for each in range(plan.size) if not (gone and each == plan.victim)]
    try:
        small = comm.shrink(timeout=PATIENCE if plan.fault == "stop" else 10.0)
    except pc.PeerError as error:
        if plan.fault == "stop" and comm.rank == plan.victim and "without this one" in str(error):
            return
        raise
    assert small.size == len(left) and left[small.rank] == comm.rank, (small.size, left)
    small.timeout = 10.0
    x = np.arange(1000) * (comm.rank + 1)
    assert (small.all_reduce(x) == np.arange(1000) * sum(each + 1 for each in left)).all()
    assert small.all_gather_object(comm.rank) == left
    small.close()


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


def judge(plan: Scenario, made: list[Child], snapshot: dict[str, Any]) -> list[str]:
    """What is not as it must be."""
    wrong: list[str] = []
    victim = made[plan.victim]
    faulted = victim.died if plan.fault in ("kill", "killed") else 0.0
    if victim.outcome is not None and plan.fault not in ("kill", "killed"):
        faulted = victim.outcome.fault
    for number, child in enumerate(made):
        mine, outcome = number == plan.victim, child.outcome
        who = f"rank {number}"
        if child.status is None:
            wrong.append(f"{who} has not ended")
            continue
        dies = plan.fault == "massacre" or (
            mine
            and (
                plan.fault in ("kill", "killed") or (plan.fault == "stop" and child.status == signal.SIGKILL)
            )
        )
        if dies:
            if child.status != signal.SIGKILL:
                wrong.append(f"{who} was not killed: {child.status}")
            continue
        if child.status != 0 or outcome is None:
            wrong.append(f"{who} ended with status {child.status}")
            continue
        if outcome.problem:
            wrong.append(f"{who}: {outcome.problem}")
            continue
        wrong += [
            f"{who} {text}: {outcome.text or outcome.trace}"
            for text in judge_one(plan, mine, outcome, victim, faulted)
        ]
    if plan.fault == "kill" and plan.at and snapshot:
        world = next(each for each in snapshot["communicators"] if each["name"] == "world")
        if not next(each["calls"] for each in world["ranks"] if each["rank"] == plan.victim):
            wrong.append("the recorder of the victim is empty")
    return wrong


def judge_one(plan: Scenario, mine: bool, outcome: Outcome, victim: Child, faulted: float) -> Iterator[str]:
    """What is wrong with a rank that has ended in order."""
    own = {"raise": "TransportError", "interrupt": "KeyboardInterrupt", "stop": "PeerError", "leave": ""}
    expected = ENDS[plan.fault] or ""
    if mine and plan.fault in own:
        expected = own[plan.fault]
    if plan.fault == "leave" and mine:
        if outcome.error not in ("", "AbortedError"):
            yield f"raised {outcome.error}"
        return
    if plan.mixed and plan.fault == "abort" and outcome.error == "PeerError" and outcome.peer is not None:
        return  # in the communicator of some ranks, which is not aborted, but left by those who have heard of it
    if outcome.error != expected:
        yield f"raised {outcome.error or 'nothing'} in place of {expected or 'nothing'}"
        return
    if not expected or mine:
        return
    heard = plan.mixed and "shrinks the communicator" in outcome.text  # maybe of one that has noticed before
    if expected in ("PeerError", "CollectiveTimeoutError") and outcome.peer != plan.victim and not heard:
        yield f"names rank {outcome.peer}"
    died = f"rank {plan.victim} (process {victim.pid}) died"
    if plan.fault in ("kill", "killed") and not (
        died in outcome.text and (" call " in outcome.text or "before its first call" in outcome.text)
    ):
        yield "does not say who died where"
    if plan.fault == "stop" and "stopped" not in outcome.text:
        yield "does not say who was stopped"
    # Of what is raised in the communicator of some ranks, the others learn that somebody has gone.
    outside = plan.mixed or (victim.outcome is not None and victim.outcome.outside)
    if plan.fault == "raise" and not outside and "an injected fault" not in outcome.text:
        yield "does not say what was raised"
    if plan.fault == "disagree" and f"rank {plan.victim} called" not in outcome.text and plan.size > 2:
        yield "does not say who disagrees"
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))  # others may have the cores
    limit = SOON * max(1.0, busy) + (PATIENCE if plan.fault == "stop" else 0.0)
    if faulted and outcome.when - faulted > limit:
        yield f"came {outcome.when - faulted:.2f} s after the fault"


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
