"""What ranks do in the tests of the flight recorder: a script for the launcher, `flight_ranks.py WHAT`."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

import pycollectives as pc


def main(what: str) -> None:
    comm = pc.init()
    x = np.ones(1000, np.float32)
    for _ in range(3):
        comm.all_reduce(x)
    sub = comm.split(0)
    sub.broadcast(x, root=1)
    comm.barrier()
    print(comm.rank, os.getpid(), flush=True)
    if comm.rank == 1:
        if what == "killed":
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif what == "raised":
            time.sleep(0.3)
            raise ValueError("what I said")
        elif what == "killed inside":
            time.sleep(0.3)  # the others are in the call by then
            comm._native()  # the fault is for the next call
            pc._core.inject_fault("kill", after=2)  # type: ignore[attr-defined]
        elif what == "late":
            time.sleep(60)
    if what == "closed":
        sub.close()
        time.sleep(60)
    comm.all_reduce(np.ones(250_000), algorithm="ring")


def lose_one(comm: Any) -> str:
    """Rank 1 dies; what the others are told."""
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(np.ones(3))
    except pc.PeerError as error:
        return str(error)
    return ""


def wait_for_one(comm: Any) -> None:
    """Rank 1 is stopped; the others wait for it."""
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    comm.all_reduce(np.ones(3))


if __name__ == "__main__":
    main(sys.argv[1])
