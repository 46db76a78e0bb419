"""Messages that are read where they lie in the sender's memory: results are the same, and a dead sender is noticed."""

from __future__ import annotations

from typing import Any

import pytest
import ranks
import single_copy_ranks as bodies
from catalogue import VERBS
from ranks import DIED, Processes

SMALL = {"PYCOLLECTIVES_SINGLE_COPY_BYTES": "64"}  # nearly all messages


@pytest.fixture(scope="module")
def processes() -> Any:
    with Processes(3, SMALL) as some:
        yield some


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_algorithm(processes: Any, verb: str, dtype: str) -> None:
    processes.run(bodies.every_algorithm, verb, dtype)


@pytest.mark.parametrize("n", [2, 4])
def test_threads(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setenv(*next(iter(SMALL.items())))
    monkeypatch.setenv("PYCOLLECTIVES_SEGMENT_BYTES", "4096")
    for verb in ("all_reduce", "all_gather", "all_to_all"):
        ranks.threads(n, bodies.every_algorithm, verb, "float64")
    ranks.threads(n, bodies.in_place_and_apart)


def test_in_place() -> None:
    with Processes(4, SMALL) as four:
        four.run(bodies.in_place_and_apart)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_dead_sender(victim: int) -> None:
    with Processes(3, SMALL) as some:
        results = some.run(bodies.exchange_until_one_dies, victim, died=[victim], timeout=20)
    assert results.pop(victim) is DIED
    assert all(kind == "PeerError" for kind, _ in results), results
    assert any(peer == victim for _, peer in results), results
