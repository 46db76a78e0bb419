"""A process alone, with MPI: messages to itself by the exchange of device memory. Prints what has arrived."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

import pycollectives as pc
from pycollectives import _core

LATER = np.arange(1, 1001, dtype=np.int32)


def given_up(comm: Any) -> None:
    """A receive that was given up, another one, and a message."""
    world = MPI.COMM_WORLD.Dup()
    library = _core.MpiLibrary(
        extension=MPI.__file__,
        handle_bytes=MPI._sizeof(MPI.Comm),
        byte_type=MPI._handleof(MPI.BYTE),
    )
    exchanger = _core.DirectExchange(comm._native(), library, MPI._handleof(world), [0], 0)
    lost, found = np.zeros_like(LATER), np.zeros_like(LATER)
    exchanger.start([(0, lost.ctypes.data, lost.nbytes)], [])
    assert not exchanger.wait(0.01)
    exchanger.give_up()
    exchanger.start([(0, found.ctypes.data, found.nbytes)], [(0, LATER.ctypes.data, LATER.nbytes)])
    assert exchanger.wait(10.0)
    assert np.array_equal(found, LATER) and not lost.any(), (found, lost)
    print("the later one has it")


if __name__ == "__main__":
    pc.run_threads(1, given_up)
