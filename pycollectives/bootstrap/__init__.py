"""How the ranks of a job find each other: our launcher, MPI, torchrun's variables, threads."""

from __future__ import annotations

from pycollectives.bootstrap.rendezvous import Rendezvous, SingleRendezvous

__all__ = ["Rendezvous", "SingleRendezvous", "discover"]


def discover(comm: object | None = None) -> Rendezvous:
    """The rendezvous of this process.

    ``comm`` is an mpi4py communicator, whose ranks then form the job. With None the environment decides: our
    launcher's variables, then MPI's, then torchrun's (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), else this
    process is a job of one rank. Collective over the ranks of the job.

    Ranks of MPI and of torchrun may be on several hosts. Raises BootstrapError when the ranks cannot meet, UnsupportedError when
    they are on several hosts without an MPI library that can connect them.
    """
    from pycollectives.bootstrap import launched, mpi, torchrun

    if comm is not None:
        return mpi.from_communicator(comm)
    if launched.present():
        return launched.discover()
    if (size := mpi.launched_size()) is not None and size != 1:
        return mpi.discover()
    if torchrun.present():
        return torchrun.discover()
    return SingleRendezvous()
