"""Everything that works on one host works across hosts: every verb, algorithm, kind of message, with real data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import LIBRARIES, job
from hosts import Library

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]

COUNTS = [0, 1, 5, 3000, 40_000]
DTYPES = ["float32", "int64", "bfloat16", "uint16"]
# All libraries run everything on 2 x 2. Other layouts differ by what is on this side of MPI: each runs with one library,
# and with the others where slow tests run.
SAMPLED = {"openmpi": ([1, 1], [3, 1]), "impi": ([1, 1, 1],), "mpich": ([1, 1, 1, 1],)}
OTHERS = [
    pytest.param(
        *(library, layout),
        id=f"{library.name}-{layout}",
        marks=() if layout in SAMPLED[library.name] else pytest.mark.slow,
    )
    for library in LIBRARIES
    for layout in ([1, 1], [1, 1, 1], [1, 1, 1, 1], [3, 1])
]


def everything(hosts: Any, mpi: Library, ranks_of: list[int]) -> None:
    told = job(hosts(len(ranks_of)), mpi, ranks_of, "everything", limit=100, counts=COUNTS, dtypes=DTYPES)
    assert len(told) == sum(ranks_of) and all(line["made"] > 200 for line in told)
    assert told[0]["hosts"] == [host for host, k in enumerate(ranks_of) for _ in range(k)]


def test_everything(hosts: Any, mpi: Library) -> None:
    everything(hosts, mpi, [2, 2])


@pytest.mark.parametrize(("library", "ranks_of"), OTHERS)
def test_everything_on_other_layouts(hosts: Any, library: Library, ranks_of: list[int]) -> None:
    everything(hosts, library, ranks_of)


def test_round_robin_placement(hosts: Any, mpi: Library) -> None:
    """The same script where neighbours in rank are on different hosts."""
    told = job(
        hosts(2), mpi, [2, 2], "everything", limit=100, in_turn=True, counts=[7, 9000], dtypes=["float64"]
    )  # fmt: skip
    assert told[0]["hosts"] == [0, 1, 0, 1]


def test_several_levels(hosts: Any, mpi: Library) -> None:
    """Two hosts of four ranks, two of five and three."""
    for ranks_of in ([4, 4], [5, 3]):
        told = job(hosts(2), mpi, ranks_of, "levels", limit=60)
        assert told[0]["hosts"] == [host for host, k in enumerate(ranks_of) for _ in range(k)]


def test_numbers_training_choices(hosts: Any, mpi: Library) -> None:
    functions = ["numbers", "training", "choices", "traffic", "mpi_errors"]
    told = job(hosts(2), mpi, [2, 2], "several", limit=100, functions=functions)
    assert [line["done"] for line in told] == [functions] * 4


def test_numbers_on_unequal_hosts(hosts: Any, mpi: Library) -> None:
    assert len(job(hosts(2), mpi, [2, 1], "several", functions=["numbers"])) == 3


@pytest.mark.slow
def test_more_than_two_gibibytes(hosts: Any, mpi: Library) -> None:
    told = job(hosts(2), mpi, [1, 1], "large", limit=180, nbytes=2**31 + 5)
    assert [line["done"] for line in told] == [2**31 + 5] * 2


def test_soak(hosts: Any, mpi: Library) -> None:
    told = job(hosts(2), mpi, [2, 2], "soak", limit=100, operations=400, seed=11)
    assert all(line["made"] > 200 for line in told)


def test_delay_rate_and_loss(hosts: Any, mpi: Library) -> None:
    cluster = hosts(2, delay_us=500, mbit=200, loss_ppm=300)
    told = job(cluster, mpi, [2, 1], "soak", limit=150, operations=60, seed=5)
    assert all(line["made"] > 30 for line in told)


def test_tune_measures_the_network(hosts: Any, mpi: Library, tmp_path: Path) -> None:
    """What it finds is what the network was built with."""
    cluster, file = hosts(2, delay_us=1000, mbit=80), tmp_path / "tuning.json"
    command = "-m", "pycollectives", "tune", "--quick", "--output", file
    done = cluster.run(mpi, [2, 2], mpi.python, *command, limit=60)
    assert "one round of messages between hosts" in done.check()
    content = json.loads(file.read_text())
    found = content["parameters"]
    assert not content["series"] and set(found) == {"network_alpha", "network_message", "network_beta"}
    assert 0.8e-3 < found["network_alpha"] + 2 * found["network_message"] < 20e-3, found
    assert 4e6 < 1 / found["network_beta"] < 12e6, found  # 10 MB/s
