"""Asynchronous calls: order, waiting, errors, and who keeps the arrays."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
import ranks
from ranks import Pools

import pycollectives as pc


def many_pending(comm: Any) -> None:
    works = [comm.all_reduce(np.full(1 + i % 300, comm.rank + i), async_op=True) for i in range(500)]
    order = np.random.default_rng(comm.rank).permutation(500)  # every rank waits in another order
    for i in order:
        got = works[i].wait()
        assert got.shape == (1 + i % 300,) and (got == sum(range(comm.size)) + i * comm.size).all()
        assert works[i].done() and works[i].wait() is got
    assert "done" in repr(works[0])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_many_pending_waited_in_any_order(pools: Pools, size: int) -> None:
    pools(size).run(many_pending)


def test_many_pending_on_threads() -> None:
    ranks.threads(5, many_pending)


def mixed(comm: Any) -> None:
    """Blocking calls behind pending ones, of all verbs; results in the order of issue."""
    rng = np.random.default_rng(3)
    pending = []
    for i in range(400):
        n = int(rng.integers(1, 5000))
        x = np.full(n, comm.rank * 1000 + i)
        kind = rng.integers(5)
        asynchronous = bool(rng.integers(2))
        if kind == 0:
            got, want = (
                comm.all_reduce(x, "max", async_op=asynchronous),
                np.full(n, (comm.size - 1) * 1000 + i),
            )
        elif kind == 1:
            root = int(rng.integers(comm.size))
            got, want = comm.broadcast(x, root=root, async_op=asynchronous), np.full(n, root * 1000 + i)
        elif kind == 2:
            got = comm.all_gather(x, async_op=asynchronous)
            want = np.repeat(np.arange(comm.size)[:, None] * 1000 + i, n, 1)
        elif kind == 3:
            root = int(rng.integers(comm.size))
            got = comm.reduce(x, "min", root=root, async_op=asynchronous)
            want = np.full(n, i) if comm.rank == root else None
        else:
            got, want = comm.barrier(async_op=asynchronous), None
        pending.append((got, want, asynchronous))
        if rng.integers(20) == 0:
            for got, want, was_asynchronous in pending:
                result = got.wait() if was_asynchronous else got
                assert (result is None and want is None) or np.array_equal(result, want)
            pending.clear()


@pytest.mark.parametrize("size", [2, 3])
def test_blocking_calls_wait_their_turn(pools: Pools, size: int) -> None:
    pools(size).run(mixed)


def in_order(comm: Any) -> None:
    """Each call uses the result of the one before, which nobody has waited for."""
    x = np.ones(1000)
    works = [comm.all_reduce(x, out=x, async_op=True) for _ in range(6)]
    y = comm.all_reduce(x)
    assert (x == comm.size**6).all() and (y == comm.size**7).all()
    assert all(work.done() for work in works)


def test_calls_run_in_the_order_of_issue(pools: Pools) -> None:
    pools(3).run(in_order)


def late(comm: Any) -> tuple[float, float, bool]:
    """An asynchronous call of a new kind is issued at once, whatever is pending."""
    comm.barrier()
    if comm.rank == 0:
        time.sleep(2.0)
    start = time.monotonic()
    works = [comm.all_reduce(np.full(100 + i, 1.0), async_op=True) for i in range(5)]
    works.append(comm.broadcast(np.full((3, 3), comm.rank), root=1, async_op=True))
    issued = time.monotonic() - start
    early = works[0].done()
    with_timeout = None
    if comm.rank == 1:
        with pytest.raises(pc.CollectiveTimeoutError):
            works[0].wait(timeout=0.05)  # the call goes on
        with_timeout = time.monotonic() - start
    for work in works[:-1]:
        assert (work.wait() == comm.size).all()
    assert (works[-1].wait() == 1).all()
    return issued, with_timeout or 0.0, early


def test_issuing_never_blocks(pools: Pools) -> None:
    results = pools(2).run(late)
    assert all(issued < 1.0 for issued, _, _ in results), results
    assert 0.05 <= results[1][1] < 1.5 and not results[1][2]


def wait_in_vain(comm: Any) -> list[float]:
    """wait(timeout=) gives up in time, whoever would have executed the call."""
    seconds = []
    for _ in range(10):
        comm.barrier()
        if comm.rank == 0:
            time.sleep(0.15)
        start = time.monotonic()
        work = comm.all_reduce(np.ones(3), async_op=True)
        if comm.rank == 1:
            with pytest.raises(pc.CollectiveTimeoutError):
                work.wait(timeout=0.02)
            seconds.append(time.monotonic() - start)
        assert (work.wait() == comm.size).all()
    return seconds


def test_wait_gives_up_in_time(pools: Pools) -> None:
    assert max(pools(2).run(wait_in_vain)[1]) < 0.15


def progress(comm: Any) -> float:
    """A call ends without anybody waiting for it."""
    x = np.full(200_000, comm.rank, np.int64)
    work = comm.all_reduce(x, async_op=True)
    start = time.monotonic()
    while not work.done():
        assert time.monotonic() - start < 20
        time.sleep(0.01)
    assert (work.wait() == sum(range(comm.size))).all()
    return 0.0


def test_progress_without_wait(pools: Pools) -> None:
    pools(2).run(progress)


def thrown_away(comm: Any) -> None:
    """The arrays of a call stay alive, even if its Work does not."""
    if comm.rank == 0:
        time.sleep(0.2)
    n = 300_000
    kept = np.zeros(n)
    for i in range(8):
        comm.all_reduce(np.full(n, float(i)), async_op=True)  # neither input nor result nor Work is kept
    comm.all_reduce(np.full((n, 2), 7.0)[:, 0], out=kept, async_op=True)
    gc.collect()
    rubbish = [np.full(n, np.nan) for _ in range(20)]
    comm.barrier()
    assert (kept == 7.0 * comm.size).all() and len(rubbish) == 20
    assert all(np.isnan(r).all() for r in rubbish)


@pytest.mark.parametrize("size", [2, 4])
def test_arrays_of_a_call_that_nobody_waits_for(pools: Pools, size: int) -> None:
    pools(size).run(thrown_away)


def fails(comm: Any) -> Any:
    sub = comm.split(0)
    works = [sub.all_reduce(np.ones(10 + (i == 2) * comm.rank), async_op=True) for i in range(5)]
    kinds = []
    for work in works:
        try:
            work.wait()
            kinds.append("fine")
        except pc.CollectiveError as error:
            kinds.append(type(error).__name__)
            with pytest.raises(type(error)):
                work.wait()
    comm.barrier()
    sub.close()
    with pytest.raises(pc.AbortedError):
        sub.all_reduce(np.ones(3), async_op=True)
    with pytest.raises(pc.AbortedError):
        sub.empty(3)
    return kinds


def test_an_error_comes_out_of_wait(pools: Pools) -> None:
    for kinds in pools(2).run(fails):
        assert kinds == ["fine", "fine"] + ["MismatchError"] * 3


def close_early(comm: Any) -> tuple[str, float]:
    sub = comm.split(0)
    finished = sub.all_reduce(np.arange(4), async_op=True)
    sub.barrier()
    comm.barrier()
    pending = [sub.all_reduce(np.ones(10), async_op=True) for _ in range(3)] if comm.rank == 0 else []
    time.sleep(0.05)
    start = time.monotonic()
    sub.close()
    seconds = time.monotonic() - start
    assert (finished.wait() == np.arange(4) * comm.size).all()
    for work in pending:
        assert work.done()
        with pytest.raises((pc.AbortedError, pc.PeerError)):
            work.wait()
    comm.barrier()
    return "closed", seconds


def test_close_with_pending_calls(pools: Pools) -> None:
    assert all(seconds < 0.5 for _, seconds in pools(2).run(close_early))


def drop_everything(comm: Any) -> None:
    """A communicator with a pending call that cannot end is dropped, and closed when its peer leaves."""
    sub = comm.split(0)
    if comm.rank == 0:
        sub.all_reduce(np.ones(10), async_op=True)
        del sub
        gc.collect()
    else:
        sub.close()
    comm.barrier()


def test_dropping_a_communicator_with_a_pending_call(pools: Pools) -> None:
    pools(2).run(drop_everything)


def bad_arguments(comm: Any) -> None:
    with pytest.raises(pc.InvalidArgumentError):
        comm.all_reduce(np.ones(3), "smu", async_op=True)
    with pytest.raises(pc.InvalidArgumentError):
        comm.all_reduce(np.ones(3), out=np.ones(4), async_op=True)
    assert (comm.all_reduce(np.ones(3), async_op=True).wait() == comm.size).all()


def test_arguments_are_checked_at_the_call(pools: Pools) -> None:
    pools(2).run(bad_arguments)


def from_threads(comm: Any) -> None:
    """Several threads wait for one call."""
    work = comm.all_reduce(np.ones(100_000), async_op=True)
    got: list[Any] = []
    waiting = [threading.Thread(target=lambda: got.append(work.wait())) for _ in range(4)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert len(got) == 4 and all(result is got[0] for result in got) and (got[0] == comm.size).all()


def test_several_threads_wait_for_one_call(pools: Pools) -> None:
    pools(2).run(from_threads)
