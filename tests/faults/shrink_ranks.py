"""What ranks do in the tests of `shrink`."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

import pycollectives as pc


def kill(comm: Any) -> None:
    """This rank dies, as it would for want of memory."""
    time.sleep(0.2)  # the others have returned from the call before: one that has not could fail in it, too
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def check(comm: Any, expected: list[int]) -> None:
    """A communicator works, and its ranks are those that were `expected` before."""
    x = np.arange(5000) + 7 * expected[comm.rank]
    assert comm.size == len(expected)
    assert (comm.all_reduce(x) == comm.size * np.arange(5000) + 7 * sum(expected)).all()
    assert comm.all_gather_object(expected[comm.rank]) == expected
    if comm.size > 1:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        assert comm.sendrecv(x, dest=right, source=left)[0] == 7 * expected[left]
        sub = comm.split(comm.rank % 2)
        assert sub.all_gather_object(expected[comm.rank]) == expected[comm.rank % 2 :: 2]
        sub.close()
    y = comm.empty(20_000, "int64")
    y[:] = comm.rank
    assert (comm.all_reduce(y, out=y) == sum(range(comm.size))).all()


def lose(comm: Any, victims: list[int], late: list[int]) -> Any:
    """`victims` die in a collective, `late` in `shrink`; the others go on. Returns seconds until the new communicator."""
    comm.barrier()
    if comm.rank in victims:
        kill(comm)
    start = time.monotonic()
    try:
        while True:
            comm.all_reduce(np.ones(100_000))
    except pc.PeerError as error:
        assert error.peer in victims, error
    if comm.rank in late:
        kill(comm)
    left = [rank for rank in range(comm.size) if rank not in (*victims, *late)]
    small = comm.shrink()
    seconds = time.monotonic() - start
    check(small, left)
    small.close()
    comm.close()
    return seconds


def copy(comm: Any) -> bool:
    """Nobody is lost."""
    first, second = comm.shrink(), comm.shrink()
    check(first, list(range(comm.size)))
    check(second, list(range(comm.size)))
    sub = comm.split(comm.rank % 2)
    part = sub.shrink()
    assert part.size == sub.size and part.all_reduce(np.ones(3))[0] == sub.size
    for each in (part, sub, second, first):
        each.close()
    comm.barrier()
    return True


def after(comm: Any, way: str) -> Any:
    """All ranks are there, but the communicator is broken."""
    sub = comm.split(0)
    try:
        if way == "mismatch":
            sub.all_reduce(np.ones(3 + (sub.rank == 1)))
        elif way == "timeout":
            if sub.rank == 1:
                time.sleep(0.6)
            sub.all_reduce(np.ones(3), timeout=0.3)
        elif way == "abort":
            if sub.rank == 1:
                sub.abort()
            sub.barrier()
        elif way == "left":
            if sub.rank == 1:
                sub.close()
                comm.barrier()
                return "left"
            sub.barrier()
    except pc.CollectiveError as error:
        caught = type(error).__name__
    small = sub.shrink(timeout=10)
    check(small, [rank for rank in range(comm.size) if way != "left" or rank != 1])
    small.close()
    sub.close()
    comm.barrier()
    return caught


def be_stopped(comm: Any, victim: int) -> Any:
    """`victim` is stopped for longer than the others wait for it, twice."""
    comm.barrier()
    if comm.rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        comm.all_reduce(np.ones(3), timeout=0.4)
    except pc.CollectiveError as error:
        caught = type(error).__name__, error.peer, str(error)
    start = time.monotonic()
    try:
        small = comm.shrink(timeout=0.5)
    except pc.PeerError as error:
        return caught, str(error), time.monotonic() - start
    seconds = time.monotonic() - start
    check(small, [rank for rank in range(comm.size) if rank != victim])
    return caught, "", seconds


def keep_arrays(comm: Any) -> bool:
    """Symmetric memory and the communicators of others survive."""
    x, pair = comm.empty(50_000, "float32"), comm.split(comm.rank // 2)
    x[:] = comm.rank
    try:
        comm.barrier()  # which fails where another rank has noticed the loss before this one has returned
        if comm.rank == 3:
            kill(comm)
        comm.barrier()
        comm.barrier()
    except pc.PeerError:
        small = comm.shrink()
    assert (x == comm.rank).all()
    assert (small.all_reduce(x, out=x) == 3).all()
    y = small.empty(100, "int32")
    y[:] = 1
    assert small.all_reduce(y)[0] == 3
    if comm.rank < 2:
        assert pair.all_reduce(np.ones(4))[0] == 2  # nobody of it was lost
    else:
        try:
            pair.barrier()
        except pc.PeerError as error:
            assert error.peer == 1  # its own number there
    for each in (small, pair, comm):
        each.close()
    return True


def lose_one_after_the_other(comm: Any) -> bool:
    """Until one is left."""
    left = list(range(comm.size))
    while len(left) > 1:
        comm.barrier()
        if comm.rank == (0 if len(left) % 2 else len(left) - 1):
            kill(comm)
        try:
            while True:
                comm.all_reduce(np.ones(10))
        except pc.PeerError as error:
            left.remove(left[error.peer])
        before, comm = comm, comm.shrink()
        before.close()
        check(comm, left)
    return True
