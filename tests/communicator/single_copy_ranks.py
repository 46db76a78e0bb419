"""Bodies of test_single_copy.py, for ranks that are threads or processes."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import reference
from catalogue import check

import pycollectives as pc

TRIALS = 16  # calls of one kind: some through slots, some by single copy


def every_algorithm(comm: Any, verb: str, dtype: str) -> None:
    """Each call again and again, with results compared each time."""
    for name in reference.algorithms(verb, comm.size):
        for turn in range(TRIALS):
            check(comm, verb=verb, algorithm=name, count=1200, dtype=dtype, root=1, way="out", seed=turn)


def in_place_and_apart(comm: Any) -> None:
    """A call in place writes what a peer might still read: its messages go through slots then."""
    for name in reference.algorithms("all_reduce", comm.size):
        for turn in range(TRIALS):
            xs = [np.arange(4096) * (rank + 1) + turn for rank in range(comm.size)]
            x = xs[comm.rank].copy()
            out = x if comm.rank % 2 else x.copy()
            comm.all_reduce(x, out=out, algorithm=name)
            assert np.array_equal(out, sum(xs)), (name, turn)
    for name in reference.algorithms("scan", comm.size):  # what a rank sends first is scaled afterwards
        for turn in range(TRIALS):
            x = np.arange(40_000.0) * (comm.rank + 1) + turn
            comm.scan(x, pc.scaled_sum(0.5), out=x, algorithm=name)
            total = sum(np.arange(40_000.0) * (rank + 1) + turn for rank in range(comm.rank + 1))
            assert np.array_equal(x, total / 2), (name, turn)


def exchange_until_one_dies(comm: Any, victim: int) -> tuple[str, int | None]:
    """Exchanges until the victim's process ends."""
    x = np.full((comm.size, 200_000), comm.rank, np.float32)
    comm.barrier()
    if comm.rank == victim:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
    while True:
        try:
            assert (comm.all_to_all(x)[:, 0] == np.arange(comm.size)).all()
        except pc.CollectiveError as error:
            return type(error).__name__, error.peer
