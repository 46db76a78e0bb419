"""Long runs: mixed sizes, several communicators and threads, counters that wrap, memory and files that do not grow."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranks
import reference
from ranks import Pools


def in_threads(works: list[Callable[[], None]]) -> None:
    """Runs all at once; raises what the first to fail has raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def cycle(comm: Any, sizes: list[int], times: int, start: int = 0) -> None:
    for i in range(times):
        x = np.full(sizes[i % len(sizes)], comm.rank + i + start)
        assert (comm.all_reduce(x) == sum(range(comm.size)) + (i + start) * comm.size).all(), i


def cycling_sizes(comm: Any) -> None:
    one, two = comm.split(0), comm.split(0, -comm.rank)
    sizes = [1, 4096, 7, 100_000]
    in_threads([lambda: cycle(one, sizes, 700), lambda: cycle(two, sizes[::-1], 700, 5)])
    cycle(comm, sizes, 600)
    one.close()
    two.close()


@pytest.mark.parametrize("size", [2, 3])
def test_cycling_sizes_on_two_communicators_in_two_threads(pools: Pools, size: int) -> None:
    pools(size).run(cycling_sizes, timeout=100)


def any_call(comm: Any, seed: int, times: int) -> None:
    """Random verbs, algorithms, dtypes and sizes, blocking and not, each result checked."""
    rng = np.random.default_rng(seed)
    n = comm.size
    total = sum(range(n))
    pending: list[tuple[Any, Any]] = []
    for i in range(times):
        count = int(rng.choice([0, 1, 3, 17, 250, 4000, 40_000], p=[0.05, 0.25, 0.2, 0.2, 0.15, 0.1, 0.05]))
        verb = str(rng.choice(reference.VERBS))
        algorithm = str(rng.choice(reference.algorithms(verb, n)))
        dtype = str(rng.choice(["int64", "float32", "int16", "float64"]))
        root, asynchronous = int(rng.integers(n)), bool(rng.integers(4) == 0)
        base = np.arange(count) % 50 + i % 20
        mine, summed = (base + comm.rank).astype(dtype), (base * n + total).astype(dtype)
        options: dict[str, Any] = {"algorithm": algorithm, "async_op": asynchronous}
        want: Any = None
        if verb == "all_reduce":
            got, want = comm.all_reduce(mine, **options), summed
        elif verb == "reduce":
            got, want = comm.reduce(mine, root=root, **options), summed if comm.rank == root else None
        elif verb == "broadcast":
            got, want = comm.broadcast(mine, root=root, **options), (base + root).astype(dtype)
        elif verb == "all_gather":
            got, want = comm.all_gather(mine, **options), (base + np.arange(n)[:, None]).astype(dtype)
        elif verb == "reduce_scatter":
            blocks = np.tile(mine, n).reshape(n, -1)
            got, want = comm.reduce_scatter(blocks, **options), summed[None]
        else:
            got = comm.barrier(**options)
        if asynchronous:
            pending.append((got, want))
        else:
            assert (got is None and want is None) or np.array_equal(got, want), (
                i,
                verb,
                algorithm,
                dtype,
                count,
            )
        if len(pending) > 5:
            for work, expected in pending:
                result = work.wait()
                assert (result is None and expected is None) or np.array_equal(result, expected)
            pending.clear()
    for work, _ in pending:
        work.wait()


def several_at_once(comm: Any, times: int) -> None:
    """Three communicators, one a part of the ranks, each driven by a thread of its own."""
    whole, mirrored, part = comm.split(0), comm.split(0, -comm.rank), comm.split(comm.rank % 2)
    in_threads(
        [
            lambda: any_call(whole, 1, times),
            lambda: any_call(mirrored, 2, times),
            lambda: any_call(part, 3 + comm.rank % 2, times),
        ]
    )
    for group in (whole, mirrored, part):
        group.close()


@pytest.mark.parametrize("size", [2, 4])
def test_any_calls_on_several_communicators_and_threads(pools: Pools, size: int) -> None:
    pools(size).run(several_at_once, 400, timeout=100)


def test_any_calls_where_ranks_are_threads_too() -> None:
    ranks.threads(3, several_at_once, 250)


@pytest.mark.parametrize("size", [3, 4])
def test_thousands_of_calls_in_a_row(pools: Pools, size: int) -> None:
    pools(size).run(any_call, 7, 1500, timeout=100)


def near(comm: Any, first: int) -> None:
    sub = comm.split(0)
    sub.barrier()
    sub._core.sequence = first
    any_call(sub, first % 1000, 40)
    assert sub._core.sequence == first + 40
    assert sub.history()[-1]["sequence"] == first + 40
    sub.close()


@pytest.mark.parametrize("first", [2**31 - 20, 2**32 - 20, 2**33 - 20, 2**63 - 20])
def test_sequence_counters_of_any_size(pools: Pools, first: int) -> None:
    pools(3).run(near, first)


def own_use() -> tuple[int, int, int]:
    """Resident KiB, open files, threads."""
    with open("/proc/self/smaps_rollup") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("Rss:"))
    return resident, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def varied(comm: Any) -> tuple[int, int, int]:
    """Thousands of calls of as many kinds."""
    for n in (1, 1000, 20_000):
        comm.all_reduce(np.ones(n, np.float32), async_op=True).wait()
    for i in range(2500):  # whatever is kept for some kinds of calls is full after these
        comm.all_reduce(np.ones(i, np.float32))
    before = own_use()
    for i in range(4000):
        n = (i * 7919) % 12_000
        if i % 10 == 0:
            comm.all_reduce(np.ones(n, np.float32), async_op=True).wait()
        elif i % 10 == 1:
            comm.plan("all_reduce", np.ones(n, np.float32), "max")()
        elif i % 10 == 2:
            comm.broadcast(np.ones(n, np.float64), root=i % comm.size)
        else:
            comm.all_reduce(np.ones(n, np.float32))
    return tuple(b - a for a, b in zip(before, own_use(), strict=True))  # type: ignore[return-value]


def test_memory_and_files_over_thousands_of_kinds_of_calls(fresh: Any) -> None:
    for kib, files, threads in fresh(2).run(varied, timeout=100):
        assert kib < 5000 and files == 0 and threads == 0, (kib, files, threads)


def split_and_close(comm: Any) -> tuple[int, int, int]:
    before = own_use()
    for i in range(230):
        if i == 30:
            before = own_use()
        sub = comm.split(i % 3, -comm.rank)
        assert sub.all_reduce(np.array(1)) == comm.size
        if i % 3 == 0:
            sub.all_reduce(np.ones(10), async_op=True).wait()
        if i % 2:
            sub.close()
        del sub  # or simply dropped
    return tuple(b - a for a, b in zip(before, own_use(), strict=True))  # type: ignore[return-value]


def test_memory_and_files_over_200_communicators(fresh: Any) -> None:
    for kib, files, threads in fresh(3).run(split_and_close):
        assert kib < 5000 and files <= 0 and threads <= 0, (kib, files, threads)
