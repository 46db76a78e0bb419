"""Jobs on several hosts that torchrun starts: its variables, no mpiexec."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from conftest import JOB
from hosts import Library

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
ASKED = json.dumps({"counts": [0, 5, 40_000], "dtypes": ["float32"]})


@pytest.mark.parametrize("ranks_of", [[1, 1, 1], [2, 2]], ids=str)
def test_everything(hosts: Any, mpi: Library, ranks_of: list[int]) -> None:
    """Rank 0 is asked at MASTER_PORT; the data travels by MPI."""
    cluster = hosts(len(ranks_of))
    running = cluster.start_without_mpiexec(mpi, ranks_of, mpi.python, JOB, "everything", ASKED)
    done = cluster.finish(running, 60)
    if mpi.name == "openmpi":
        assert done.code != 0 and done.err.count("need MPICH or Intel MPI") == sum(ranks_of), done
        return
    done.check()
    told = running.said()
    assert len(told) == sum(ranks_of) and all(line["made"] > 100 for line in told)
    assert told[0]["hosts"] == [host for host, k in enumerate(ranks_of) for _ in range(k)]


def test_a_rank_that_never_comes(hosts: Any, mpi: Library) -> None:
    """The others do not wait for ever."""
    cluster = hosts(2)
    running = cluster.start_without_mpiexec(
        mpi, [1, 1], mpi.python, JOB, "everything", ASKED,
        env={"WORLD_SIZE": "3", "PYCOLLECTIVES_BOOTSTRAP_TIMEOUT": "3"},
    )  # fmt: skip
    done = cluster.finish(running, 30)
    assert done.code != 0 and done.seconds < 20 and not running.said(), done


def test_the_store_of_the_agent(hosts: Any, mpi: Library) -> None:
    """The store carries the address of rank 0, and nothing else."""
    if subprocess.run([mpi.python, "-c", "import torch"], capture_output=True).returncode:
        pytest.skip(f"optional: there is no PyTorch in the environment of {mpi.name}")
    if mpi.name == "openmpi":
        pytest.skip("optional: Open MPI needs its mpiexec")
    cluster = hosts(2)
    store = "TCPStore('host0', 29511, None, True, wait_for_workers=False)"
    serve = f"import time; from torch.distributed import TCPStore; s = {store}; time.sleep(100)"
    agent = [str(cluster.agent), "host0", f'{mpi.python} -c "{serve}"']
    with subprocess.Popen(agent, env=os.environ | mpi.environment()) as serving:
        running = cluster.start_without_mpiexec(
            *(mpi, [2, 1], mpi.python, JOB, "everything", ASKED), env={"TORCHELASTIC_USE_AGENT_STORE": "True"}
        )
        done = cluster.finish(running, 60)
        serving.kill()
    done.check()
    assert len(running.said()) == 3
