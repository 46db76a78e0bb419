"""An MPI library with the ABI of MPI-5, by the same binary. PYCOLLECTIVES_TEST_MPI_ABI: an interpreter whose mpi4py has been built
for it (.ci/check-cluster does so).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import job
from hosts import Library
from test_ends import survivors
from test_regroup import begin, end

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def abi() -> Library:
    python = os.environ.get("PYCOLLECTIVES_TEST_MPI_ABI")
    if not python:
        pytest.skip("optional: PYCOLLECTIVES_TEST_MPI_ABI names no interpreter")
    return Library(Path(python))


def test_the_library_is_one(hosts: Any, abi: Library) -> None:
    """Handles are pointers, as of no MPICH before."""
    for line in job(hosts(2), abi, [1, 1], "library"):
        assert "libmpi_abi.so" in line["path"] and line["handle_bytes"] == 8, line
        assert line["vendor"] in ("MPICH", "Intel MPI"), line


def test_everything(hosts: Any, abi: Library) -> None:
    counts, dtypes = [0, 1, 5, 3000, 40_000], ["float32", "int64", "bfloat16"]
    told = job(hosts(2), abi, [2, 2], "everything", limit=100, counts=counts, dtypes=dtypes)
    assert len(told) == 4 and all(line["made"] > 200 for line in told)


def test_numbers_choices_traffic_errors(hosts: Any, abi: Library) -> None:
    functions = ["numbers", "choices", "traffic", "mpi_errors"]
    told = job(hosts(2), abi, [2, 2], "several", limit=100, functions=functions)
    assert [line["done"] for line in told] == [functions] * 4


def test_a_dead_rank_is_named(hosts: Any, abi: Library) -> None:
    for line in survivors(hosts, abi, "killed", 3, [2, 2]):
        assert line["error"] in ("PeerError", "TransportError") and "rank 3" in line["text"], line


def test_what_is_left_goes_on(hosts: Any, abi: Library) -> None:
    running = begin(hosts, abi, [2, 1, 1], "regroup", victims=[[0], [3]])
    told = [line for line in end(hosts, running, [1, 2]) if line["rank"] in (1, 2)]
    assert [(line["rank"], line["left"]) for line in told] == [(1, 3), (1, 2), (2, 3), (2, 2)], told
