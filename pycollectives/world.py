"""Making communicators: `init` for a job's ranks, `run_threads` for ranks in one process."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any, TypeVar

from .bootstrap import discover
from .bootstrap import threads as _threads
from .communicator import Communicator, _abort_all, _close_all

Result = TypeVar("Result")

atexit.register(_close_all)


def init(comm: Any = None) -> Communicator:
    """The communicator of all ranks of this job. Collective over the job.

    Who the ranks are is found by itself: those of `pycollectives run`, `mpiexec` (MPICH, Open MPI, Intel MPI) or `torchrun`;
    without any of these, one rank. `comm`: an mpi4py communicator whose ranks form the job instead.

    Ranks of MPI may be on several hosts. Raises BootstrapError when the ranks cannot meet, UnsupportedError when they are
    on several hosts without MPI.
    """
    return Communicator(discover(comm))


def run_threads(n: int, fn: Callable[..., Result], *args: Any) -> list[Result]:
    """Run `fn(comm, *args)` on `n` ranks that are threads of this process; returns the results in rank order.

    For tests and notebooks. An exception in one rank aborts the others and is raised here.
    """
    return _threads.run_threads(n, fn, *args, make=Communicator, abort=_abort_all)
