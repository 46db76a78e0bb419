"""Single copy of whole blocks: all ranks cut each call alike, whatever their arrays are."""

from __future__ import annotations

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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
@pytest.mark.parametrize("verb", bodies.VERBS)
def test_every_algorithm(processes: Any, verb: str, dtype: str) -> None:
    processes.run(bodies.every_algorithm, verb, dtype)


@pytest.mark.parametrize("seed", range(4))
def test_kinds_in_turns(processes: Any, seed: int) -> None:
    processes.run(bodies.kinds_in_turns, seed)


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
    assert calls[0] > 0
    assert len(set(calls)) == 1, calls
