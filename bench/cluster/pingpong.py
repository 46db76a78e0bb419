"""Ping-pong between two ranks that share no memory: through the mirror, and by MPI_Isend, MPI_Irecv and MPI_Test alone.

    PYCOLLECTIVES_PLACEMENT=a,b mpiexec -n 2 python bench/cluster/pingpong.py [BYTES...]

Both in turns, in C++; the time of one way, the median of some rounds and the best of them.
"""

from __future__ import annotations

import statistics
import sys

from mpi4py import MPI

import pycollectives as pc
from pycollectives import _core

ROUNDS, TURNS = 25, 2000


def main() -> None:
    """All sizes."""
    comm = pc.init()
    assert comm.size == 2 and comm.hosts == (0, 1), "two ranks, each on a host of its own"
    network, peer = comm._network, 1 - comm.rank
    ping = _core.MirrorPing(comm._core, peer)
    tag = network.tags
    if comm.rank == 0:
        print(f"{MPI.get_vendor()[0]}\n   bytes   mirror us (best)   MPI us (best)   ratio (of the best)")
    for nbytes in [int(each) for each in sys.argv[1:]] or [8, 32, 64, 1024, 8192, 65536]:
        turns = TURNS if nbytes <= 8192 else TURNS // 10
        ours, theirs = [], []
        for _ in range(ROUNDS):
            network.comm.Barrier()
            theirs.append(
                network.library.round_trips(network.handle, comm.rank, peer, tag, nbytes, turns) / turns / 2
            )
            network.comm.Barrier()
            ours.append(ping.round_trips(nbytes, turns, 60.0) / turns / 2)
        if comm.rank == 0:
            a, b = statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6
            low, least = min(ours) * 1e6, min(theirs) * 1e6
            print(
                f"{nbytes:8} {a:10.3f} ({low:.3f}) {b:10.3f} ({least:.3f}) {a / b:8.3f} ({low / least:.3f})"
            )
    comm.close()


if __name__ == "__main__":
    main()
