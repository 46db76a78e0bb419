"""Bodies of test_whole_blocks.py, for ranks that are threads or processes."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
import reference
from catalogue import check

import pycollectives as pc

VERBS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
COUNT = 12_000  # a rank's data are long, and longer than a message through a slot
TRIALS = 40  # calls of one kind: all ways are tried, and one is taken


def can_read_all(comm: Any) -> bool:
    """Does the system let this rank read the memory of all others? (Yama and filters of system calls may forbid it.)"""
    mine, got = np.array([os.getpid(), 0]), ctypes.create_string_buffer(8)
    mine[1] = mine.ctypes.data
    places = comm.all_gather(mine)
    here = (ctypes.c_void_p * 2)(ctypes.addressof(got), 8)
    read = []
    for pid, address in places.tolist():
        there = (ctypes.c_void_p * 2)(address, 8)
        read.append(ctypes.CDLL(None).process_vm_readv(pid, here, 1, there, 1, 0) == 8)
    comm.barrier()
    return all(read)


def every_algorithm(comm: Any, verb: str, dtype: str, turns: int) -> dict[str, int]:
    """Each call again and again, with results compared each time; how many were made in whole blocks."""
    grown = {}
    for name in reference.algorithms(verb, comm.size):
        before = comm._core.whole_calls
        for turn in range(turns):
            check(comm, verb=verb, algorithm=name, count=COUNT, dtype=dtype, root=0, way="out", seed=turn)
        grown[name] = comm._core.whole_calls - before
    return grown


def whole_of(comm: Any, algorithms: list[str]) -> dict[str, int]:
    """How many all_reduce of each algorithm were made in whole blocks."""
    grown = {}
    x = np.arange(COUNT, dtype=np.int64) + comm.rank
    for name in algorithms:
        before = comm._core.whole_calls
        for _ in range(2 * TRIALS):
            assert (comm.all_reduce(x, algorithm=name)[:2] == [3, 6]).all()
        grown[name] = comm._core.whole_calls - before
    return grown


def kinds_in_turns(comm: Any, seed: int) -> None:
    """Calls of several kinds, some of them in symmetric arrays, some in place, on some ranks only, in random turns."""
    rng = np.random.default_rng(seed)  # the same on all ranks
    own = np.random.default_rng([seed, comm.rank])
    shared = comm.empty((2, COUNT), np.float32)
    for turn in range(8 * TRIALS):
        verb = VERBS[rng.integers(len(VERBS))]
        count = COUNT // [1, 2][rng.integers(2)] // comm.size * comm.size
        offset = np.float32(turn + comm.rank)
        x = (np.arange(count, dtype=np.float32) % 64) + offset
        symmetric = own.integers(4) == 0
        if symmetric:
            shared[0, :count] = x
            x = shared[0, :count]
        out = x if verb == "all_reduce" and own.integers(3) == 0 else None
        if verb == "all_reduce" and symmetric and out is None:
            out = shared[1, :count]
        result = getattr(comm, verb)(x, out=out)
        xs = [np.arange(count, dtype=np.float32) % 64 + np.float32(turn + rank) for rank in range(comm.size)]
        wanted = _wanted(verb, xs, comm.rank)
        assert np.array_equal(np.ravel(result), np.ravel(wanted)), (seed, turn, verb)


def _wanted(verb: str, xs: list[Any], rank: int) -> Any:
    n = xs[0].size // len(xs)
    mine = slice(rank * n, (rank + 1) * n)
    if verb in ("all_reduce", "reduce_scatter"):
        return sum(xs) if verb == "all_reduce" else sum(xs)[mine]
    return np.stack(xs) if verb == "all_gather" else np.concatenate([each[mine] for each in xs])


def whole_calls(comm: Any) -> int:
    """How many of many calls of the same kind were made in whole blocks."""
    x = np.full((comm.size, COUNT), comm.rank, np.float32)
    before: int = comm._core.whole_calls
    for _ in range(2 * TRIALS):
        assert (comm.all_to_all(x)[:, 0] == np.arange(comm.size)).all()
    calls: int = comm._core.whole_calls
    return calls - before


def threads_of_many_communicators(comm: Any) -> None:
    """A communicator that was split off agrees for itself."""
    part = comm.split(comm.rank % 2)
    for turn in range(TRIALS):
        for each in (comm, part):
            x = np.full(COUNT, each.rank + turn, np.float32)
            assert (each.all_reduce(x) == sum(range(each.size)) + turn * each.size).all()
    part.close()


def scaled(comm: Any) -> None:
    """What is computed in work memory is put where others can read it."""
    for turn in range(TRIALS):
        base = np.arange(COUNT) % 16 + turn % 4
        x = (base + comm.rank).astype(np.float16)
        total = sum(base + rank for rank in range(comm.size))
        for name in reference.algorithms("all_reduce", comm.size):
            got = comm.all_reduce(x, pc.scaled_sum(0.5), algorithm=name)
            assert np.array_equal(got, (total / 2).astype(np.float16)), (name, turn)
