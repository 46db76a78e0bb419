"""Ranks that MPI started: MPI carries names and secrets of sockets once, the broker carries the rest.

Where the ranks are on several hosts MPI carries the data between these, too (spanning.py, csrc/mpi).
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from typing import Any

from pycollectives import _core
from pycollectives.bootstrap import hosted, spanning
from pycollectives.bootstrap.places import find_hosts
from pycollectives.bootstrap.rendezvous import Rendezvous, SingleRendezvous
from pycollectives.bootstrap.settings import connect_timeout, number
from pycollectives.errors import BootstrapError, UnsupportedError

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_SLURM_SIZE = "SLURM_STEP_NUM_TASKS"  # also in what a rank starts, so it comes last
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def launched_size() -> int | None:
    """How many ranks mpiexec or srun started, by its variables; 0 when it does not say, None without them."""
    for name in _SIZES:
        if (size := number(name)) is not None:
            return size
    if (
        "SLURM_PROCID" in os.environ
        and "RANK" not in os.environ
        and (size := number(_SLURM_SIZE)) is not None
    ):
        return size
    return 0 if any(name in os.environ for name in _RANKS) else None


def discover() -> Rendezvous:
    """The rendezvous of all ranks that mpiexec started. Raises BootstrapError."""
    launched = launched_size()
    try:
        MPI = _load(launched)
    except (ImportError, RuntimeError) as error:
        ranks = f"{launched} ranks" if launched else "this rank"
        raise BootstrapError(f"mpiexec started {ranks}, but mpi4py cannot be loaded: {error}") from error
    world = MPI.COMM_WORLD
    if launched and world.Get_size() != launched:
        if not any(name in os.environ for name in _SIZES):
            raise BootstrapError(
                f"srun started {launched} ranks, but MPI sees {world.Get_size()}: it has to be told how to start ranks of "
                "this MPI library, as in srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH, Intel MPI)"
            )
        raise _another_library(MPI, f"mpiexec started {launched} ranks", f", which sees {world.Get_size()}")
    return from_communicator(world)


def initialize(variables: Mapping[str, str], size: int) -> Rendezvous:
    """The rendezvous of `size` ranks that no mpiexec has started; `variables` tell MPI of a process manager (pmi.py).

    Raises BootstrapError without mpi4py, UnsupportedError where the MPI library needs its own mpiexec.
    """
    os.environ.update(variables)
    try:
        MPI = _load(None)
    except (ImportError, RuntimeError) as error:
        raise BootstrapError(f"ranks on several hosts need mpi4py and an MPI library: {error}") from error
    finally:
        for name in variables:  # what this process starts is no rank
            os.environ.pop(name, None)
    if MPI.COMM_WORLD.Get_size() != size:
        library = MPI.Get_library_version().split("\n")[0].strip(" \0\t")
        raise UnsupportedError(
            f"{size} ranks, but {library} sees {MPI.COMM_WORLD.Get_size()}: jobs on several hosts without mpiexec need MPICH or "
            "Intel MPI, and MPI must not have been initialised before pc.init()"
        )
    return from_communicator(MPI.COMM_WORLD)


def _load(launched: int | None) -> Any:
    """mpi4py's MPI, initialised. One library may abort the process under another one's mpiexec: ask first."""
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize = False
        ours = mpi4py.rc.finalize is None
        if ours:
            mpi4py.rc.finalize = False
            _core.reserve_end_of_mpi()
        from mpi4py import MPI

        if ours:
            _core.own_end_of_mpi(MPI.__file__)

        theirs = "OMPI_COMM_WORLD_SIZE" in os.environ and "PMI_SIZE" not in os.environ
        if theirs and MPI.get_vendor()[0] in ("MPICH", "Intel MPI"):
            raise _another_library(MPI, f"Open MPI's mpiexec started {launched} ranks", "")
    from mpi4py import MPI

    if not MPI.Is_initialized():
        MPI.Init_thread(getattr(MPI, f"THREAD_{mpi4py.rc.thread_level.upper()}"))
    return MPI


def _another_library(MPI: Any, started: str, sees: str) -> BootstrapError:
    name = MPI.Get_library_version().split("\n")[0].strip(" \0\t")
    return BootstrapError(
        f"{started}, but mpi4py has loaded another MPI library{sees}: {name}. "
        "Use the mpiexec that belongs to it, or name the right library in MPI4PY_MPIABI or MPI4PY_LIBMPI"
    )


def from_communicator(comm: Any) -> Rendezvous:
    """The rendezvous of the ranks of an mpi4py intracommunicator; collective over it.

    Raises BootstrapError when they cannot meet, UnsupportedError for an intercommunicator.
    """
    for name in ("Get_rank", "Get_size", "allgather"):
        if not callable(getattr(comm, name, None)):
            raise BootstrapError(f"comm must be an mpi4py communicator, not {type(comm).__name__}")
    if comm.Is_inter():
        raise UnsupportedError("comm is an intercommunicator; merge it with comm.Merge() first")
    rank, size = comm.Get_rank(), comm.Get_size()
    if size == 1:
        return SingleRendezvous()
    hosts = find_hosts(rank, size, comm.allgather)
    if max(hosts) > 0:
        return _span(comm, hosts)
    return _on_one_host(comm)


def _on_one_host(comm: Any) -> Rendezvous:
    rank, size = comm.Get_rank(), comm.Get_size()
    name, secret, problem = "", b"", ""
    served = None
    if rank == 0:
        name, secret = hosted.random_name(), secrets.token_bytes(32)
        try:
            served = hosted.host(name, secret, size, "mpi")
        except (OSError, BootstrapError) as error:
            problem = str(error)
    try:
        name, secret, problem = comm.bcast((name, secret, problem))
        if problem:
            raise BootstrapError(f"rank 0 cannot serve the job: {problem}", rank=rank, peer=0)
    except BaseException:
        if served is not None:
            served.abandon()
        raise
    return served or hosted.join(name, secret, rank, size, "mpi", connect_timeout())


def _span(comm: Any, hosts: tuple[int, ...]) -> Rendezvous:
    """Several hosts: MPI carries the data too, over a duplicate of the communicator."""
    from mpi4py import MPI

    level = MPI.Query_thread()
    if level < MPI.THREAD_MULTIPLE:
        names = {
            getattr(MPI, f"THREAD_{name}"): name for name in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
        }
        raise BootstrapError(
            f"MPI was initialised with MPI_THREAD_{names.get(level, level)}, but ranks on several hosts need "
            "MPI_THREAD_MULTIPLE: let mpi4py initialise MPI (its default), or call MPI_Init_thread with it",
            rank=comm.Get_rank(),
        )
    world, local, network = spanning.meet(comm.Get_rank(), hosts, comm.allgather, "mpi")
    own = comm.Dup()
    own.Set_errhandler(MPI.ERRORS_RETURN)
    network.comm, network.handle = own, MPI._handleof(own)
    network.tags = own.Get_attr(MPI.TAG_UB) or 32767
    network.library = _core.MpiLibrary(
        extension=MPI.__file__,
        handle_bytes=MPI._sizeof(MPI.Comm),
        byte_type=MPI._handleof(MPI.BYTE),
    )
    return spanning.SpanningRendezvous(world, local, network, "mpi")
