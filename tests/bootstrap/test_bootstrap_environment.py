"""Ranks started by mpiexec and by torchrun's variables."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pycollectives.bootstrap import mpi
from pycollectives.errors import BootstrapError

Done = Callable[..., tuple[int, str, str]]

MEET = """
import os, signal, sys, time
from pycollectives.bootstrap import discover
from pycollectives.errors import BootstrapError
r = discover()
def meet(key="meet", timeout=20):
    fd = os.memfd_create("x")
    os.write(fd, b"%d" % r.rank)
    got = r.exchange(key, r.rank, r.size, b"", [fd], timeout)
    return [os.pread(fds[0], 9, 0) for _, fds in got]
assert meet() == [b"%d" % i for i in range(r.size)]
os.write(1, f"{r.kind} {r.size}\\n".encode())  # one write: mpiexec mixes the ranks' pieces
"""

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="mpiexec and mpi4py are not installed (the extra [mpich] brings them)",
)


def mpiexec(jobs: Any, n: int, *command: object, env: dict[str, str] | None = None) -> Any:
    limits = {
        "MPIEXEC_TIMEOUT": "60",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    return jobs.start([MPIEXEC, "-n", n, *command], limits | (env or {}))


@needs_mpi
def test_mpiexec(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "r.close()\nr = discover()\nmeet()\nr.close()")
    code, out, err = done(mpiexec(jobs, 3, sys.executable, script), 60)
    assert (code, out) == (0, "mpi 3\n" * 3), err


@needs_mpi
def test_a_users_communicator(jobs: Any, done: Done) -> None:
    script = jobs.script(
        """
import os
from mpi4py import MPI
from pycollectives.bootstrap import discover
world = MPI.COMM_WORLD
half = world.Split(world.rank % 2, -world.rank)
r = discover(half)
got = r.exchange("k", r.rank, r.size, b"%d" % world.rank, [], 20)
os.write(1, f"{world.rank} {r.rank} {[payload for payload, _ in got]}\\n".encode())
assert discover(MPI.COMM_SELF).kind == "single"
"""
    )
    code, out, err = done(mpiexec(jobs, 4, sys.executable, script), 60)
    assert code == 0, err
    assert sorted(out.splitlines()) == [
        "0 1 [b'2', b'0']",
        "1 1 [b'3', b'1']",
        "2 0 [b'2', b'0']",
        "3 0 [b'3', b'1']",
    ]


@needs_mpi
def test_two_mpi_jobs_at_once(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "time.sleep(0.3)\nmeet('again')")
    both = [mpiexec(jobs, 2, sys.executable, script) for _ in range(2)]
    assert [done(process, 60)[:2] for process in both] == [(0, "mpi 2\n" * 2)] * 2


@needs_mpi
def test_another_mpi_than_mpiexecs(jobs: Any, done: Done) -> None:
    """What MPI looks like when it does not know the launcher: one process that sees itself alone."""
    script = jobs.script("from mpi4py import MPI\nfrom pycollectives.bootstrap import discover\ndiscover()")
    variables = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    code, _, err = done(jobs.python(script, env=variables), 30)
    assert code == 1
    assert "mpiexec started 2 ranks, but mpi4py has loaded another MPI library, which sees 1: " in err


@needs_mpi
def test_mpich_under_open_mpis_mpiexec(jobs: Any, done: Done) -> None:
    """Its initialisation would abort the process: refused before."""
    vendor = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.get_vendor()[0])"
    if done(jobs.python("-c", vendor))[1].strip() == "Open MPI":
        pytest.skip("optional: mpi4py loads Open MPI here")
    script = jobs.script("from pycollectives.bootstrap import discover; discover()")
    variables = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    code, _, err = done(jobs.python(script, env=variables), 30)
    assert code == 1 and "Open MPI's mpiexec started 2 ranks, but mpi4py has loaded another MPI" in err


def test_mpi_without_mpi4py(jobs: Any, done: Done) -> None:
    hide = "import sys; sys.modules['mpi4py'] = None\n"
    script = jobs.script(hide + "from pycollectives.bootstrap import discover; discover()")
    code, _, err = done(jobs.python(script, env={"PMI_SIZE": "2", "PMI_RANK": "0"}))
    assert code == 1 and "BootstrapError: mpiexec started 2 ranks, but mpi4py cannot be loaded" in err


def test_one_rank_of_mpi_needs_no_mpi(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "assert 'mpi4py' not in sys.modules")
    assert done(jobs.python(script, env={"PMI_SIZE": "1", "PMI_RANK": "0"}))[:2] == (0, "single 1\n")


def test_not_a_communicator() -> None:
    with pytest.raises(BootstrapError, match="mpi4py communicator, not str"):
        mpi.from_communicator("world")


def by_hand(jobs: Any, rank: int, size: int, script: Path, port: int, **env: str) -> Any:
    variables = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
    }
    return jobs.python(script, env=variables | env)


def test_torchrun_variables_by_hand(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "r.close()\nr = discover()\nmeet()\n")
    ranks = [by_hand(jobs, rank, 3, script, os.getpid()) for rank in range(3)]
    for process in ranks:
        code, out, err = done(process)
        assert (code, out) == (0, "torchrun 3\n"), err


@pytest.mark.parametrize("late", [0, 1])
def test_torchrun_variables_with_a_late_rank(jobs: Any, done: Done, late: int) -> None:
    script = jobs.script(MEET)
    early = by_hand(jobs, 1 - late, 2, script, os.getpid())
    time.sleep(5.2)
    for process in (early, by_hand(jobs, late, 2, script, os.getpid())):
        assert done(process)[:2] == (0, "torchrun 2\n")


def test_torchrun_variables_taken_by_another_job(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "sys.stdin.read()")
    first = [by_hand(jobs, rank, 2, script, os.getpid()) for rank in range(2)]
    for process in first:
        assert process.stdout.readline()
    for rank, text in ((0, "give each job its own MASTER_PORT"), (1, "come already")):
        code, _, err = done(by_hand(jobs, rank, 2, script, os.getpid()))
        assert code == 1 and text in err
    assert done(by_hand(jobs, 0, 1, script, os.getpid()))[:2] == (0, "single 1\n")
    other = [by_hand(jobs, rank, 2, script, os.getpid() + 1) for rank in range(2)]
    assert [done(process)[0] for process in (*first, *other)] == [0] * 4


def test_torchrun_variables_that_make_no_sense(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET)
    for env, text in (
        ({"RANK": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
        ({"RANK": "one"}, "RANK is 'one'"),
        ({"MASTER_PORT": ""}, "not MASTER_PORT"),
        (
            {"LOCAL_WORLD_SIZE": "1", "RANK": "1", "PYCOLLECTIVES_BOOTSTRAP_TIMEOUT": "0.2"},
            "ranks on several hosts cannot meet at MASTER_ADDR=",
        ),
        ({"PYCOLLECTIVES_BOOTSTRAP_TIMEOUT": "soon", "RANK": "1"}, "is 'soon'"),
        ({"PYCOLLECTIVES_BOOTSTRAP_TIMEOUT": "0.2", "RANK": "1"}, "within 0.2 s"),
    ):
        code, _, err = done(by_hand(jobs, 0, 2, script, os.getpid(), **env))
        assert code == 1 and text in err


def test_a_killed_rank_is_named(jobs: Any, done: Done) -> None:
    """Nobody waits for its process but the kernel."""
    script = jobs.script(
        MEET
        + """
if r.rank == 1:
    if os.fork() == 0: time.sleep(30)  # holds the output, not the rendezvous
    os.kill(os.getpid(), signal.SIGKILL)
try: meet("again", 30)
except BootstrapError as error: print(error, error.peer)
if r.rank == 0: sys.stdin.read()  # it serves the others
"""
    )
    start = time.monotonic()
    ranks = [by_hand(jobs, rank, 3, script, os.getpid()) for rank in range(3)]
    for rank in (2, 0):
        code, out, _ = done(ranks[rank])
        assert code == 0 and "rank 1 has ended" in out and out.endswith(" 1\n")
    assert time.monotonic() - start < 5


def test_rank_0_killed(jobs: Any, done: Done) -> None:
    script = jobs.script(
        MEET
        + """
if r.rank == 0:
    os.kill(os.getpid(), signal.SIGKILL)
try: meet("again", 30)
except BootstrapError as error: print(error)
"""
    )
    ranks = [by_hand(jobs, rank, 2, script, os.getpid()) for rank in range(2)]
    code, out, _ = done(ranks[1], 5)
    assert code == 0 and "rank 0, which serves the exchanges, has ended" in out
    assert ranks[0].wait(5) == -signal.SIGKILL


def test_rank_0_may_end_right_after_an_exchange(jobs: Any, done: Done) -> None:
    """The large answers of the others are still on their way then."""
    script = jobs.script(
        MEET
        + "got = r.exchange('big', r.rank, r.size, bytes(3_000_000), [], 20)\n"
        + "print(sum(len(payload) for payload, _ in got))"
    )
    ranks = [by_hand(jobs, rank, 3, script, os.getpid()) for rank in range(3)]
    for process in ranks:
        code, out, err = done(process)
        assert (code, out) == (0, "torchrun 3\n9000000\n"), err


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="optional: PyTorch is not installed")
def test_torchrun_with_its_store_and_a_restart(jobs: Any, done: Done) -> None:
    script = jobs.script(
        MEET
        + """
import torch.distributed
assert "TCPStore" in dir(torch.distributed) and os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and r.rank == 1:
    sys.exit(1)
meet("end")
"""
    )
    run = ("-m", "torch.distributed.run", "--standalone", "--max-restarts", "1", "--nproc-per-node", "2")
    code, out, err = done(jobs.python(*run, script), 100)
    assert (code, out) == (0, "torchrun 2\n" * 4), err
