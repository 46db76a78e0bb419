"""Everything that works on one host works across hosts: every verb, algorithm, kind of message, with real data."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import job
from hosts import Library

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]

COUNTS = [0, 1, 5, 3000, 40_000]
DTYPES = ["float32", "int64", "bfloat16", "uint16"]


@pytest.mark.parametrize("ranks_of", [[1, 1], [2, 2], [1, 1, 1], [1, 1, 1, 1], [3, 1]], ids=str)
def test_everything(hosts: Any, mpi: Library, ranks_of: list[int]) -> None:
    told = job(hosts(len(ranks_of)), mpi, ranks_of, "everything", limit=100, counts=COUNTS, dtypes=DTYPES)
    assert len(told) == sum(ranks_of) and all(line["made"] > 200 for line in told)
    assert told[0]["hosts"] == [host for host, k in enumerate(ranks_of) for _ in range(k)]


def test_round_robin_placement(hosts: Any, mpi: Library) -> None:
    """The same script where neighbours in rank are on different hosts."""
    told = job(
        hosts(2), mpi, [2, 2], "everything", limit=100, in_turn=True, counts=[7, 9000], dtypes=["float64"]
    )  # fmt: skip
    assert told[0]["hosts"] == [0, 1, 0, 1]


def test_numbers(hosts: Any, mpi: Library) -> None:
    assert len(job(hosts(2), mpi, [2, 1], "numbers")) == 3


def test_soak(hosts: Any, mpi: Library) -> None:
    told = job(hosts(2), mpi, [2, 2], "soak", limit=100, operations=400, seed=11)
    assert all(line["made"] > 200 for line in told)


def test_delay_rate_and_loss(hosts: Any, mpi: Library) -> None:
    cluster = hosts(2, delay_us=500, mbit=200, loss_ppm=300)
    told = job(cluster, mpi, [2, 1], "soak", limit=150, operations=60, seed=5)
    assert all(line["made"] > 30 for line in told)
