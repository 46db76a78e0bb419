"""`run_threads` and the rendezvous of threads."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from typing import Any

import pytest

from pycollectives.bootstrap.rendezvous import Rendezvous
from pycollectives.bootstrap.threads import run_threads
from pycollectives.errors import BootstrapError, InvalidArgumentError


class Communicator:
    """As much of one as `run_threads` looks at."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self.rank = rendezvous.rank
        self.rendezvous = rendezvous
        self.aborted = threading.Event()

    def abort(self) -> None:
        self.aborted.set()


def test_results_by_rank() -> None:
    def body(rendezvous: Rendezvous, word: str) -> tuple[int, int, str, list[bytes]]:
        got = rendezvous.exchange("k", rendezvous.rank, rendezvous.size, b"%d" % rendezvous.rank, [], 10)
        return rendezvous.rank, rendezvous.size, rendezvous.kind + word, [payload for payload, _ in got]

    everyone = [b"0", b"1", b"2", b"3"]
    assert run_threads(4, body, "!") == [(rank, 4, "threads!", everyone) for rank in range(4)]
    assert run_threads(1, body, "") == [(0, 1, "threads", [b"0"])]


def test_the_first_failure_is_raised_and_the_others_are_woken() -> None:
    made = {}

    def make(rendezvous: Rendezvous) -> Communicator:
        made[rendezvous.rank] = Communicator(rendezvous)
        return made[rendezvous.rank]

    seen = []

    def body(comm: Communicator) -> None:
        comm.rendezvous.exchange("start", comm.rank, 3, b"", [], 10)
        if comm.rank == 1:
            raise ValueError("the reason")
        try:
            comm.rendezvous.exchange("k", comm.rank, 3, b"", [], 60)
        except BootstrapError as error:
            seen.append(str(error))
            raise

    start, threads = time.monotonic(), threading.active_count()
    with pytest.raises(ValueError, match="the reason"):
        run_threads(3, body, make=make)
    assert time.monotonic() - start < 5 and threading.active_count() == threads
    assert len(seen) == 2 and all("rank 1 raised ValueError: the reason" in text for text in seen)
    assert all(comm.aborted.is_set() for comm in made.values())


def test_a_communicator_made_after_the_failure_is_aborted() -> None:
    failed = threading.Event()

    def make(rendezvous: Rendezvous) -> Communicator:
        if rendezvous.rank == 1:
            failed.wait(10)
            time.sleep(0.05)
        return Communicator(rendezvous)

    def body(comm: Communicator) -> None:
        if comm.rank == 0:
            failed.set()
            raise KeyError("first")
        assert comm.aborted.wait(10)

    with pytest.raises(KeyError, match="first"):
        run_threads(2, body, make=make)


def test_a_rank_that_returns_fails_those_who_wait_for_it() -> None:
    def body(rendezvous: Rendezvous) -> None:
        if rendezvous.rank == 1:
            rendezvous.exchange("k", 1, 2, b"", [], 60)

    with pytest.raises(BootstrapError, match="rank 0 has closed"):
        run_threads(2, body)


def test_a_failing_make_and_bad_arguments() -> None:
    def make(rendezvous: Rendezvous) -> Any:
        raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        run_threads(2, lambda comm: None, make=make)
    with pytest.raises(InvalidArgumentError):
        run_threads(0, lambda comm: None)


def test_context_is_the_callers() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="default")
    variable.set("mine")
    assert run_threads(2, lambda comm: variable.get()) == ["mine", "mine"]


def test_ctrl_c(jobs: Any, done: Any) -> None:
    script = jobs.script(
        """
        from pycollectives.bootstrap.threads import run_threads
        print("ready", flush=True)
        run_threads(2, lambda r: r.exchange(f"never {r.rank}", r.rank, 2, b"", [], 60))
        """
    )
    process = jobs.python(script)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(2)
    start = time.monotonic()
    code, _, err = done(process)
    assert code == -2 and "KeyboardInterrupt" in err and time.monotonic() - start < 2
