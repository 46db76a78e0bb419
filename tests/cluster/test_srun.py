"""Jobs that Slurm's srun starts. PYCOLLECTIVES_TEST_SLURM: a folder with Slurm's packages unpacked (.ci/check-cluster)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import JOB
from hosts import Library
from slurm import Slurm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
ASKED = "several", json.dumps({"functions": ["numbers", "choices"]})


@pytest.fixture
def slurm(hosts: Any, mpi: Library) -> Iterator[Slurm]:
    root = os.environ.get("PYCOLLECTIVES_TEST_SLURM")
    if not root:
        pytest.skip("optional: PYCOLLECTIVES_TEST_SLURM names no Slurm")
    yield Slurm(hosts(2), Path(root))
    hosts.close()


def test_srun(slurm: Slurm, mpi: Library) -> None:
    # Intel MPI speaks to Slurm by a library of Slurm's.
    env = {"I_MPI_PMI_LIBRARY": str(slurm.libraries / "libpmi2.so.0")} if mpi.name == "impi" else {}
    manager = "pmix" if mpi.name == "openmpi" else "pmi2"
    running = slurm.start(mpi, 4, mpi.python, JOB, *ASKED, mpi=manager, env=env)
    slurm.cluster.finish(running, 60).check()
    assert len(running.said()) == 4


def test_srun_that_tells_mpi_nothing(slurm: Slurm, mpi: Library) -> None:
    """Every rank would be alone, and right."""
    running = slurm.start(mpi, 4, mpi.python, JOB, *ASKED, mpi="none")
    done = slurm.cluster.finish(running, 60)
    assert done.code != 0 and "srun started 4 ranks, but MPI sees 1" in done.err, done
