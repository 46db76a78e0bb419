"""What ranks in processes of one host do whose collectives are the kernels: their devices are emulated, each in its own process."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
from ranks import raised_by

import pycollectives as pc
from pycollectives.device import emulated, guard
from pycollectives.device.extension import native
from pycollectives.device.opening import open_device

if folder := os.environ.get("PYCOLLECTIVES_EMULATED"):
    pc.__path__.insert(0, folder)


def on_device(comm: Any, protocol: str, mutant: str = "none") -> Any:
    """A communicator of the same ranks with kernels that wait for other processes."""
    module = native(emulated=True)
    module.configure(seed=1 + comm.rank, shared=True)
    module.set_mutant(module.MUTANTS.index(mutant))
    made = comm.split(0)
    made._device = open_device(
        made, emulated("" if protocol == "native" else protocol, native=protocol == "native")
    )
    return made


def sums(comm: Any, count: int = 700) -> bool:
    """Are results right?"""
    found = [
        comm.all_reduce(np.arange(count) + comm.rank, algorithm=name) for name in ("two_shot", "one_shot")
    ]
    want = np.arange(count) * comm.size + sum(range(comm.size))
    return all(np.array_equal(one, want) for one in found)


def missing(comm: Any, protocol: str, mutant: str = "none") -> tuple[str, bool]:
    """Rank 1 does not call; what rank 0 raises, and whether a communicator that is made afterwards works."""
    first = on_device(comm, protocol, mutant)
    assert sums(first)
    raised = raised_by(lambda: first.all_reduce(np.ones(700), timeout=0.5)) if comm.rank == 0 else ""
    comm.barrier()  # by the host
    return raised, sums(on_device(comm, protocol))


def aborted(comm: Any, protocol: str) -> str:
    """Rank 0 aborts while its kernel waits."""
    comm = on_device(comm, protocol)
    assert sums(comm)
    if comm.rank:
        with suppress(pc.AbortedError):  # it is told
            while True:
                comm._native().check()
                time.sleep(0.01)
        # What rank 0 has sent before may be enough for the first, if it ends before this rank looks.
        return raised_by(lambda: [comm.all_reduce(np.ones(700)) for _ in range(2)])
    threading.Timer(0.3, comm.abort).start()
    return raised_by(lambda: comm.all_reduce(np.ones(700)))


def left(comm: Any, protocol: str) -> str:
    """Rank 1 leaves while the kernel of rank 0 waits for it."""
    guard.GRACE = 0.2
    comm = on_device(comm, protocol)
    assert sums(comm)
    if comm.rank:
        comm.close()
        return ""
    return raised_by(lambda: comm.all_reduce(np.ones(700)))
