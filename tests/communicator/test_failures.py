"""Ranks that die, stop, leave, abort or are interrupted: the others learn it soon, and from whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
from ranks import DIED, Pools, Processes

import pycollectives as pc

Caught = tuple[str, str, float]  # the error's class, its text, seconds until it came


def catch(make: Any) -> Any:
    """The error that a call raises, and how long it took."""
    start = time.monotonic()
    try:
        make()
    except (pc.CollectiveError, KeyboardInterrupt) as error:
        return type(error).__name__, str(error), time.monotonic() - start, getattr(error, "peer", None)
    return "nothing", "", time.monotonic() - start, None


# -- death -----------------------------------------------------------------------------------------------------


def reduce_until_somebody_dies(comm: Any, victim: int, way: str) -> Any:
    x = np.full(1_000_000, comm.rank, np.float32)
    comm.barrier()
    if comm.rank == victim:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
    again = comm.plan("all_reduce", x) if way == "plan" else None
    while True:
        if way == "async":
            caught = catch(
                lambda: [work.wait() for work in [comm.all_reduce(x, async_op=True) for _ in range(3)]]
            )
        else:
            caught = catch(again or (lambda: comm.all_reduce(x)))
        if caught[0] != "nothing":
            return caught, catch(comm.barrier)


@pytest.mark.parametrize(("victim", "way"), [(1, "call"), (0, "async"), (3, "plan")])
def test_a_killed_rank_is_named_within_two_seconds(fresh: Any, victim: int, way: str) -> None:
    results = fresh(4).run(reduce_until_somebody_dies, victim, way, died=[victim])
    assert results.pop(victim) is DIED
    named = 0
    for (kind, text, seconds, peer), (later, _, soon, _) in results:
        assert kind == "PeerError" and seconds < 2.0, (kind, text)
        assert later == "PeerError" and soon < 1
        named += peer == victim and f"rank {victim} (process" in text
    assert named == 3, results


def leave_without_a_word(comm: Any) -> Any:
    if comm.rank == 1:
        os._exit(0)
    return catch(comm.barrier)


def test_a_rank_that_exits_is_dead(fresh: Any) -> None:
    results = fresh(2).run(leave_without_a_word, died=[1])
    kind, text, seconds, peer = results[0]
    assert kind == "PeerError" and peer == 1 and "died" in text and seconds < 2.0


# -- stop and timeout ------------------------------------------------------------------------------------------


def wait_for_the_stopped(comm: Any, nested: bool) -> Any:
    sub = comm.split(0) if nested else comm
    sub.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        return catch(lambda: sub.all_reduce(np.ones(10)))
    time.sleep(0.2)
    return catch(lambda: sub.all_reduce(np.ones(10), timeout=0.5))


@pytest.mark.parametrize("nested", [False, True])
def test_a_stopped_rank_makes_a_timeout(fresh: Any, nested: bool) -> None:
    job = fresh(2)
    job.start(wait_for_the_stopped, nested)
    job.go_on(1, after=1.5)
    (kind, text, seconds, _), (other, why, _, peer) = job.finish(timeout=20)
    assert kind == "CollectiveTimeoutError" and 0.5 <= seconds < 1.0, (text, seconds)
    assert "all_reduce(float64[10], sum)" in text and "rank 1" in text and "call 2 " in text, text
    assert other == "PeerError" and peer == 0 and "in vain for this rank" in why, why


def be_late(comm: Any) -> Any:
    sub = comm.split(0)
    sub.timeout = 0.3
    if comm.rank == 0:
        caught = catch(sub.barrier), catch(lambda: sub.barrier(timeout=5))
        comm.barrier()
        return caught
    comm.barrier()
    return catch(sub.barrier)


def test_timeout_of_the_communicator(pools: Pools) -> None:
    ((kind, text, seconds, _), (again, _, soon, _)), *others = pools(3).run(be_late)
    assert kind == "CollectiveTimeoutError" and 0.3 <= seconds < 0.8 and "ranks 1, 2" in text, text
    assert again == "CollectiveTimeoutError" and soon < 1
    for other, why, _, peer in others:
        assert other == "PeerError" and peer == 0, why


# -- leaving, aborting -----------------------------------------------------------------------------------------


def leave(comm: Any) -> Any:
    sub = comm.split(0)
    sub.all_reduce(np.ones(1000))
    comm.barrier()
    if comm.rank == 1:
        start = time.monotonic()
        sub.close()
        assert time.monotonic() - start < 0.5
        assert sub.closed and "closed" in repr(sub)
        caught = catch(sub.barrier)
        sub.close()
    else:
        caught = catch(lambda: sub.all_reduce(np.ones(1000)))
        sub.close()
    comm.barrier()
    return caught


@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_that_leaves(pools: Pools, size: int) -> None:
    results = pools(size).run(leave)
    kind, text, seconds, _ = results.pop(1)
    assert kind == "AbortedError" and "closed" in text
    for kind, text, seconds, peer in results:
        assert kind == "PeerError" and peer == 1 and "rank 1 has left" in text and seconds < 1.0, text


def finish_and_leave(comm: Any) -> bool:
    """A rank may leave as soon as its last call has returned, whatever the others are doing."""
    for i in range(50):
        sub = comm.split(0)
        x = np.full(20_000, comm.rank + i)
        assert (sub.broadcast(x, root=i % comm.size) == i % comm.size + i).all()
        assert (sub.all_reduce(x) == sum(range(comm.size)) + i * comm.size).all()
        sub.close()
    return True


def test_leaving_does_not_harm_those_who_are_still_in_the_call(pools: Pools) -> None:
    assert pools(4).run(finish_and_leave) == [True] * 4


def abort(comm: Any) -> Any:
    sub = comm.split(0)
    if comm.rank == 0:
        threading.Timer(0.2, sub.abort).start()
    elif comm.rank == 1:
        time.sleep(0.5)
    caught = catch(lambda: sub.all_reduce(np.ones(5)))
    again = catch(sub.barrier)
    comm.barrier()
    return caught, again


def test_abort_reaches_everybody(pools: Pools) -> None:
    for (kind, text, seconds, _), (again, _, soon, _) in pools(3).run(abort):
        assert kind == "AbortedError" and "rank 0" in text and seconds < 0.7, text
        assert again == "AbortedError" and soon < 1


def raise_in_a_block(comm: Any) -> Any:
    sub = comm.split(0)
    if comm.rank == 1:
        with pytest.raises(ZeroDivisionError), sub:
            print(1 // 0)
        assert sub.closed
        caught = None
    else:
        with sub:
            caught = catch(sub.barrier)
    comm.barrier()
    return caught


def test_leaving_a_with_block_by_an_exception_aborts(pools: Pools) -> None:
    results = pools(2).run(raise_in_a_block)
    assert results[0][0] == "AbortedError" and results[0][2] < 1.0


def test_a_thread_that_raises_ends_all_threads() -> None:
    def fn(comm: Any) -> None:
        if comm.rank == 2:
            raise ZeroDivisionError("my own")
        comm.barrier()

    start = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="my own"):
        ranks.threads(4, fn)
    assert time.monotonic() - start < 2.0


def test_a_script_that_raises_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import pycollectives as pc\ncomm = pc.init()\n"
        "if comm.rank == 1:\n    raise ValueError('what I said')\ncomm.barrier()\n"
    )
    start = time.monotonic()
    launch = (
        "import sys; from pycollectives.bootstrap.launcher import launch; sys.exit(launch(2, sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", launch, str(script)],
        env={**os.environ, "PYTHONPATH": str(ranks.ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1 and "ValueError: what I said" in done.stderr, done.stderr
    assert time.monotonic() - start < 5.0


# -- Ctrl-C ----------------------------------------------------------------------------------------------------


kept: list[Any] = []  # communicators that must not be closed while the peer waits


def block(comm: Any, way: str) -> Any:
    """Each rank waits for the other, in communicators of their own."""
    kept.extend(comm.split(0) for _ in range(2))
    sub = kept[comm.rank]
    x = np.ones(100_000)

    def wait() -> None:
        if way == "call":
            sub.all_reduce(x)
        elif way == "barrier":
            sub.barrier()
        elif way == "plan":
            sub.plan("all_reduce", x)()
        elif way == "wait":
            sub.all_reduce(x, async_op=True).wait()
        elif way == "wait for the second":
            [sub.all_reduce(x, async_op=True) for _ in range(2)][1].wait()
        elif way == "behind pending":
            sub.all_reduce(x, async_op=True)
            sub.all_reduce(x)

    caught = catch(wait)
    caught += (time.monotonic(),)
    later = catch(sub.barrier)
    return caught, later


@pytest.mark.parametrize("way", ["call", "barrier", "plan", "wait", "wait for the second", "behind pending"])
def test_interrupt_ends_a_wait(fresh: Any, way: str) -> None:
    job: Processes = fresh(2)
    job.start(block, way)
    time.sleep(0.7)
    sent = time.monotonic()
    for pid in job.pids:
        os.kill(pid, signal.SIGINT)
    for (kind, text, _, _, when), (later, _, soon, _) in job.finish(timeout=20):
        assert kind == "KeyboardInterrupt" and when - sent < 1.0, (kind, text, when - sent)
        assert later in ("AbortedError", "PeerError") and soon < 0.5


def be_pestered(comm: Any) -> set[str]:
    """Signals that come while errors are made."""
    sub = comm.split(0)
    comm.barrier()
    if comm.rank == 0:
        sub.close()
        return set()
    again, seen, end = sub.plan("barrier"), set(), time.monotonic() + 1.0
    armed = [False]  # only inside the `try` below, so that no signal ends the test itself

    def strike(*_: Any) -> None:
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, strike)

    def pester() -> None:
        while time.monotonic() < end:
            time.sleep(0.0002)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=pester)
    thread.start()
    while thread.is_alive():
        try:
            while thread.is_alive():
                armed[0] = True
                try:
                    again()
                except pc.CollectiveError as error:
                    seen.add(type(error).__name__)
                try:
                    sub.barrier()
                except pc.CollectiveError as error:
                    seen.add(type(error).__name__)
            armed[0] = False
        except KeyboardInterrupt:
            seen.add("KeyboardInterrupt")
    return seen


def test_a_signal_while_an_error_is_made(fresh: Any) -> None:
    seen = fresh(2).run(be_pestered)[1]  # AbortedError: after a Ctrl-C of its own
    assert "KeyboardInterrupt" in seen and seen & {"PeerError", "AbortedError"}, seen


def be_interrupted(comm: Any) -> Any:
    if comm.rank == 1:
        time.sleep(1.5)
    return catch(lambda: comm.all_reduce(np.ones(4)))


def test_the_peer_of_an_interrupted_rank_is_told(fresh: Any) -> None:
    job: Processes = fresh(2)
    job.start(be_interrupted)
    time.sleep(0.7)
    os.kill(job.pids[0], signal.SIGINT)
    (kind, *_), (other, text, seconds, peer) = job.finish(timeout=20)
    assert kind == "KeyboardInterrupt"
    assert other == "PeerError" and peer == 0 and seconds < 0.5, text


def end_beside_a_call(comm: Any, way: str) -> Any:
    """Rank 0 ends the communicator while another thread of it is inside a call."""
    sub = comm.split(0)
    x = np.ones(100_000)
    if comm.rank:
        time.sleep(1.0)
        return catch(lambda: sub.all_reduce(x)), catch(sub.barrier)
    work = sub.all_reduce(x, async_op=True)
    time.sleep(0.2)  # the progress thread has it
    if way == "close":
        sub.close()
        return catch(work.wait)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    caught = catch(work.wait if way == "wait" else sub.barrier)
    assert caught[0] == "KeyboardInterrupt" and caught[2] < 1.0, caught
    return catch(work.wait)


@pytest.mark.parametrize(
    ("way", "own", "told"),
    [
        ("wait", "was interrupted in another thread of this rank", "rank 0 was interrupted"),
        ("call", "was interrupted in another thread of this rank", "rank 0 was interrupted"),
        ("close", "was closed in another thread of this rank", "rank 0 has left the communicator"),
    ],
)
def test_a_rank_that_ends_beside_its_own_call_is_named(fresh: Any, way: str, own: str, told: str) -> None:
    (kind, text, *_), *others = fresh(3).run(end_beside_a_call, way)
    assert kind == "AbortedError" and own in text, text
    for (other, why, seconds, peer), (later, *_) in others:
        assert other == "PeerError" and peer == 0 and told in why and seconds < 0.5, why
        assert later == "PeerError"


def test_the_job_ends_by_sigterm_and_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, pycollectives as pc\ncomm = pc.init()\nprint(os.getpid(), flush=True)\n"
        "if comm.rank == 0:\n    comm.barrier()\nelse:\n    comm.split(0)\n"
    )
    launch = (
        "import sys; from pycollectives.bootstrap.launcher import launch; sys.exit(launch(2, sys.argv[1:]))"
    )
    job = subprocess.Popen(
        [sys.executable, "-c", launch, str(script)],
        env={**os.environ, "PYTHONPATH": str(ranks.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert job.stdout is not None
    pids = [int(job.stdout.readline()) for _ in range(2)]
    job.terminate()
    job.wait(timeout=10)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
