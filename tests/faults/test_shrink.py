"""`comm.shrink()`: what is left goes on."""

from __future__ import annotations

from typing import Any

import pytest
import shrink_ranks
from ranks import DIED, Pools, threads

import pycollectives as pc


@pytest.mark.parametrize(
    ("size", "victims", "late"),
    [(4, [2], []), (3, [0, 1], []), (5, [1], [2, 0])],
)
def test_ranks_that_die(fresh: Any, size: int, victims: list[int], late: list[int]) -> None:
    results = fresh(size).run(shrink_ranks.lose, victims, late, died=victims + late)
    times = [each for each in results if each is not DIED]
    assert len(times) == size - len(victims) - len(late) and max(times) < 3.0, times


def test_one_after_the_other(fresh: Any) -> None:
    results = fresh(4).run(shrink_ranks.lose_one_after_the_other, died=[0, 2, 3])
    assert results[1] is True


@pytest.mark.parametrize("size", [1, 2, 4])
def test_nobody_is_lost(pools: Pools, size: int) -> None:
    assert pools(size).run(shrink_ranks.copy) == [True] * size


@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("mismatch", "MismatchError"),
        ("timeout", "CollectiveTimeoutError"),
        ("abort", "AbortedError"),
        ("left", "PeerError"),
    ],
)
def test_after_other_failures(pools: Pools, way: str, error: str) -> None:
    results = pools(3).run(shrink_ranks.after, way)
    assert results[0] == error, results
    assert results[1] in (("left",) if way == "left" else (error, "PeerError")), results


def test_a_stopped_rank_is_left_behind(fresh: Any) -> None:
    job = fresh(3)
    job.start(shrink_ranks.be_stopped, 1)
    job.go_on(1, after=2.0)
    results = job.finish(timeout=20)
    for rank in (0, 2):
        (kind, peer, text), problem, seconds = results[rank]
        assert kind == "CollectiveTimeoutError" and peer == 1 and "stopped" in text, text
        assert problem == "" and 0.4 < seconds < 1.5
    (kind, *_), problem, seconds = results[1]
    assert kind == "PeerError" and "without this one" in problem and seconds < 0.5


def test_memory_and_other_communicators_survive(fresh: Any) -> None:
    results = fresh(4).run(shrink_ranks.keep_arrays, died=[3])
    assert results[:3] == [True] * 3


def test_without_the_launcher(fresh: Any) -> None:
    """Rank 0 served the exchanges of the job; it is lost."""
    env = {"TEST_RENDEZVOUS": "torchrun"}
    results = fresh(3, env).run(shrink_ranks.lose, [0], [], died=[0])
    assert results[0] is DIED and max(results[1:]) < 3.0
    results = fresh(4, env).run(shrink_ranks.lose_one_after_the_other, died=[0, 2, 3])
    assert results[1] is True


def test_threads() -> None:
    def go_on(comm: pc.Communicator) -> int:
        if comm.rank == 1:
            comm.close()
            return -1
        with pytest.raises(pc.PeerError, match="rank 1 has left"):
            comm.barrier()
        small = comm.shrink()
        shrink_ranks.check(small, [0, 2])
        small.close()
        return small.rank

    assert threads(3, go_on) == [0, -1, 1]
