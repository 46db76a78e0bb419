"""What ranks do in the tests of agreement."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

import pycollectives as pc


def mixed_calls(comm: Any, count: int) -> int:
    """Three communicators, two threads, calls of every kind, from different lines: nobody disagrees."""
    rest, pair, all_of_us, mirrored = (
        comm.split(0),
        comm.split(comm.rank % 2),
        comm.split(0),
        comm.split(0, -comm.rank),
    )
    problems: list[BaseException] = []

    def work(subs: list[Any], seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for i in range(count // 2):
                sub = subs[rng.integers(len(subs))]
                one_call(
                    sub, int(rng.integers(6)), int(rng.integers(1, 200)) + (sub is pair) * (comm.rank % 2), i
                )
        except BaseException as error:
            problems.append(error)

    other = threading.Thread(target=work, args=([pair, all_of_us], 5))
    other.start()
    work([mirrored], 6)
    other.join()
    if problems:
        raise problems[0]
    for sub in (rest, pair, all_of_us, mirrored):
        sub.close()
    return count


def one_call(sub: Any, which: int, n: int, i: int) -> None:
    """The even and the odd ranks call from different lines."""
    x, root = np.full(n, sub.rank + i), i % sub.size
    total = sum(range(sub.size)) + i * sub.size
    if which == 0:
        got = sub.all_reduce(x) if sub.rank % 2 else sub.all_reduce(x, op="sum")
        assert (got == total).all()
    elif which == 1:
        got = (
            sub.broadcast(x, root=root) if sub.rank % 2 else sub.broadcast(x, root=root, out=np.empty_like(x))
        )
        assert (got == root + i).all()
    elif which == 2:
        got = sub.all_gather(x)
        assert (got == np.arange(sub.size)[:, None] + i).all()
    elif which == 3:
        got = sub.reduce(x, root=root)
        assert got is None or (got == total).all()
    elif which == 4:
        sub.barrier()
    else:
        work = sub.all_reduce(x, op="max", async_op=True)
        assert (work.wait() == sub.size - 1 + i).all()


def uneven_trainer(comm: Any) -> tuple[str, float]:
    """Rank 2 has lost two elements."""
    x = np.ones(409598 if comm.rank == 2 else 409600, np.float32)
    start = time.monotonic()
    try:
        comm.all_reduce(x)
        text = ""
    except pc.MismatchError as error:
        text = str(error)
    return text, time.monotonic() - start


def late_and_different(comm: Any) -> tuple[str, float, float]:
    """Rank 1 comes late, and to something else; the others have waited for it."""
    sub = comm.split(0)
    comm.barrier()
    if comm.rank == 1:
        time.sleep(0.7)
    start = time.monotonic()
    try:
        sub.all_reduce(np.ones(3 + (comm.rank == 1)))
        text = ""
    except pc.MismatchError as error:
        text = str(error)
    end = time.monotonic()
    comm.barrier()
    return text, start, end


def returned_already(comm: Any) -> tuple[str, str]:
    """The root of a broadcast, and whoever got its data, have returned when rank 2 calls something else."""
    sub = comm.split(0)
    first = second = ""
    comm.barrier()
    if comm.rank == 2:
        time.sleep(0.3)
    try:
        got = sub.broadcast(np.full(2000, 7.0 + comm.rank), root=1 if comm.rank == 2 else 0, algorithm="flat")
        first = f"got {got[0]}"
    except pc.MismatchError as error:
        first = str(error)
    comm.barrier()
    try:
        sub.all_reduce(np.ones(4))
    except pc.MismatchError as error:
        second = str(error)
    comm.barrier()
    return first, second


def several_lines(comm: Any) -> str:
    """Those who agree may have called from different lines; all are told."""
    sub = comm.split(0)
    x = np.ones(5)
    try:
        if comm.rank == 0:
            sub.all_reduce(x)  # one line
        elif comm.rank == 1:
            sub.all_reduce(x, "sum")  # another one
        else:
            sub.all_reduce(x, algorithm="ring" if comm.rank == 2 else "two_shot")
    except pc.MismatchError as error:
        return str(error)
    return ""


def message_meanwhile(comm: Any) -> str:
    """A rank that waits for a message is told of a disagreement in a collective."""
    sub = comm.split(0)
    try:
        if comm.rank == 0:
            sub.recv(source=1)
        else:
            sub.all_reduce(np.ones(3 + comm.rank))
    except pc.MismatchError as error:
        return str(error)
    return ""


def uneven_counts(comm: Any, verb: str) -> str:
    """Rank 1 believes that rank 2 has a row more than it has."""
    sub = comm.split(0)
    counts = [2, 3, 5 if comm.rank == 1 else 4]
    rows = sum(counts) if verb == "reduce_scatterv" else [2, 3, 4][comm.rank]
    try:
        getattr(sub, verb)(np.ones((rows, 2)), counts)
        sub.barrier()  # in a gather only the root waits for others
    except pc.MismatchError as error:
        return str(error)
    return ""
