"""How jobs on several hosts are started, and how they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import JOB
from hosts import Library

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SUM = """
import os
import numpy as np
import pycollectives as pc
with pc.init() as comm:
    total = comm.all_reduce(np.full(1000, comm.rank + 1.0))
    os.write(1, f"rank {comm.rank} of {comm.hosts}: {total[-1]:g}\\n".encode())
"""
FAIL = """
import sys
import numpy as np
import pycollectives as pc
comm = pc.init()
comm.barrier()
if comm.rank == 2:
    raise ValueError("this rank cannot go on") if sys.argv[1] == "raises" else SystemExit(7)
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()  # not ours: nothing but the end of the job ends this wait
"""


@pytest.fixture
def script(hosts: Any) -> Any:
    def write(text: str, cluster: Any) -> Path:
        path: Path = cluster.folder / "script.py"
        path.write_text(text)
        return path

    return write


def over_ssh(mpi: Library, agent: Path) -> dict[str, str]:
    """What tells each mpiexec how to reach the hosts, in place of ssh."""
    if mpi.name == "openmpi":
        return {"PRTE_MCA_plm_ssh_agent": str(agent)}
    if mpi.name == "impi":
        return {"I_MPI_HYDRA_BOOTSTRAP": "ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": str(agent)}
    return {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(agent), "HYDRA_IFACE": "eth0"}


def test_run_on_named_hosts(hosts: Any, mpi: Library, script: Any) -> None:
    """`pycollectives run --hosts` calls the mpiexec of its environment."""
    cluster = hosts(2)
    line = [str(mpi.python), "-m", "pycollectives", "run", "--hosts", "host0,host1:1", "-n", "3"]
    running = cluster.begin(mpi, [*line, str(script(SUM, cluster))], over_ssh(mpi, cluster.agent))
    out = cluster.finish(running, 60).check()
    assert sorted(out.splitlines()) == [f"rank {r} of (0, 0, 1): 6" for r in range(3)]


@pytest.mark.parametrize("how", ["raises", "exits"])
def test_a_rank_that_fails_ends_the_job(hosts: Any, mpi: Library, script: Any, how: str) -> None:
    if mpi.name == "openmpi":
        pytest.skip("optional: Open MPI's mpiexec has been seen to go on after MPI_Abort")
    cluster = hosts(2)
    command = mpi.python, "-m", "pycollectives", script(FAIL, cluster), how
    done = cluster.run(mpi, [2, 2], *command, limit=40)
    assert done.code != 0 and "killed after" not in done.err and done.seconds < 20, done
    assert how == "exits" or "this rank cannot go on" in done.err, done


def test_two_hosts_of_one_name(hosts: Any, mpi: Library, script: Any) -> None:
    """As containers may have: they are two hosts, since they cannot share memory."""
    cluster = hosts(2)
    renamed = "sh", "-c", 'hostname twin; exec "$@"', "sh"
    done = cluster.run(mpi, [1, 1], *renamed, mpi.python, JOB, "several", '{"functions": ["numbers"]}')
    done.check()


def test_one_host_of_several_names(hosts: Any, mpi: Library, script: Any) -> None:
    """Ranks that can share memory do, whatever their host is called."""
    cluster = hosts(2)
    renamed = "unshare", "--uts", "sh", "-c", 'hostname "name-$$"; exec "$@"', "sh"
    done = cluster.run(mpi, [2, 1], *renamed, mpi.python, script(SUM, cluster))
    assert sorted(done.check().splitlines()) == [f"rank {r} of (0, 0, 1): 6" for r in range(3)]


def test_topo(hosts: Any, mpi: Library) -> None:
    """The hosts of a job as text and as a figure."""
    cluster = hosts(2)
    figure = cluster.folder / "hosts.html"
    figure.unlink(missing_ok=True)
    done = cluster.run(mpi, [2, 1], mpi.python, "-m", "pycollectives", "topo", "--plot", figure)
    out = done.check()
    assert "host 0: host0, ranks 0-1" in out and "host 1: host1, rank 2" in out, out
    assert "eth0 10.77.0.1/24" in out and "networks of all hosts: 10.77.0.0/24" in out, out
    assert "host 1: host1" in figure.read_text()
