"""Single copy of whole blocks: all ranks cut each call alike, whatever their arrays are."""

from __future__ import annotations

import os
from typing import Any

import pytest
import ranks
import whole_blocks_ranks as bodies
from ranks import Processes

# Short data are long, messages through slots are short, and nearly all may be read in their senders' memory.
LONG = {
    "PYCOLLECTIVES_SINGLE_COPY_BYTES": "64",
    "PYCOLLECTIVES_RING_BYTES": "16384",
    "PYCOLLECTIVES_SEGMENT_BYTES": "4096",
}


@pytest.fixture(scope="module")
def processes() -> Any:
    with Processes(3, LONG) as some:
        yield some


@pytest.fixture(scope="module")
def pair() -> Any:
    with Processes(2, LONG) as some:
        yield some


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
@pytest.mark.parametrize("verb", bodies.VERBS)
def test_every_algorithm(pair: Any, verb: str, dtype: str) -> None:
    """Two ranks have cores of their own, where there are two: whole blocks are what comes first."""
    for grown in pair.run(bodies.every_algorithm, verb, dtype, 12):
        assert not reads_others(pair) or (os.cpu_count() or 1) < 2 or max(grown.values()) > 6, grown


@pytest.mark.parametrize("verb", ["all_reduce", "all_to_all"])
def test_every_algorithm_on_ranks_that_share_cores(processes: Any, verb: str) -> None:
    for grown in processes.run(bodies.every_algorithm, verb, "float32", bodies.TRIALS):
        assert not reads_others(processes) or verb != "all_to_all" or max(grown.values()) > 6, grown


@pytest.mark.parametrize("verb", ["reduce", "gather"])
def test_ranks_without_a_result_wait_for_nobody(pair: Any, processes: Any, verb: str) -> None:
    for some in (pair, processes):
        for grown in some.run(bodies.every_algorithm, verb, "float32", 12):
            assert not any(grown.values()), grown


def test_trees_and_chains_are_cut_into_slices(processes: Any) -> None:
    """Their inner ranks send what nobody may read in their arrays, and the others cannot see that."""
    for some in processes.run(bodies.whole_of, ["chain", "reduce_broadcast"]):
        assert not any(some.values()), some


@pytest.mark.parametrize("seed", range(4))
def test_kinds_in_turns(processes: Any, seed: int) -> None:
    processes.run(bodies.kinds_in_turns, seed)


def reads_others(some: Any) -> bool:
    """Are these processes allowed to read each other's memory?"""
    allowed: list[bool] = some.run(bodies.can_read_all)
    return all(allowed)


def test_work_memory(processes: Any) -> None:
    processes.run(bodies.scaled)


@pytest.mark.parametrize("n", [2, 4])
def test_threads(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    for name, value in LONG.items():
        monkeypatch.setenv(name, value)
    ranks.threads(n, bodies.kinds_in_turns, 7)
    ranks.threads(n, bodies.threads_of_many_communicators)


def test_whole_blocks_are_tried_by_all_alike(processes: Any) -> None:
    calls = processes.run(bodies.whole_calls)
    assert calls[0] > 10 or not reads_others(processes)
    assert len(set(calls)) == 1, calls
