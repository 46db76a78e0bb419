"""How one row is measured: ranks that are threads of one process, on one device or with a device each.

Every row is checked once for its result. A time is the median of rounds; in a round every rank makes a number of calls and waits
for its stream, and the slowest rank counts. The emulated device has no speed: with it the same rows are made with small arrays, to
know that they can be made.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pycollectives.bootstrap.threads import run_threads
from pycollectives.communicator import Communicator
from pycollectives.device import Options, emulated
from pycollectives.device.arrays import view_of
from pycollectives.device.extension import native
from pycollectives.device.sharing import QUEUES

from .memory import CupyMemory, EmulatedMemory, Memory

ITEM = 4  # float32
ROW_SECONDS = 30.0  # of one row at most
os.environ.setdefault(QUEUES, "32")  # for eight ranks on a device


@dataclass(frozen=True)
class Wish:
    """How much is measured."""

    emulated: bool
    ranks: tuple[int, ...] = (2, 4, 8)
    sizes: tuple[int, ...] = (8, 64 << 10, 4 << 20, 64 << 20)
    large: int = 256 << 20
    rounds: int = 5
    round_seconds: float = 0.02
    graph_calls: int = 20

    @property
    def memory(self) -> Callable[..., Memory]:
        return EmulatedMemory if self.emulated else CupyMemory

    def options(self, **changes: Any) -> Options:
        return replace(emulated() if self.emulated else Options(), **changes)


SMALL = Wish(True, (2, 3), (8, 2048), 8192, 2, 0.0, 3)


def rounds(wish: Wish, memory: Memory, call: Callable[[], Any], fewest: Callable[[int], int]) -> list[float]:
    """Seconds of one call, in each round. `fewest`: meets the other ranks, and returns the least of their numbers."""
    call()
    memory.synchronize()
    fewest(0)
    begin = time.perf_counter()
    for _ in range(3):
        call()
    memory.synchronize()
    one = (time.perf_counter() - begin) / 3
    calls = fewest(min(1000, max(1, int(wish.round_seconds / one))))
    found = []
    for _ in range(wish.rounds):
        fewest(0)
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        memory.synchronize()
        found.append((time.perf_counter() - begin) / calls)
    return found


def alone(number: int) -> int:
    """The least number of one rank."""
    return number


def slowest(found: list[list[float]]) -> float:
    """The median over the rounds of the slowest rank, in microseconds."""
    return float(1e6 * statistics.median(max(ranks) for ranks in zip(*found, strict=True)))


def ours(
    wish: Wish,
    verb: str,
    ranks: int,
    nbytes: int,
    algorithm: str,
    *,
    graph: bool = False,
    spread: bool = False,
    symmetric: bool = False,
    **options: Any,
) -> float:
    """Microseconds of one call. Raises what the call raises, and AssertionError for a wrong result.

    `graph`: of one in a graph of several; `spread`: each rank has a device of its own; `symmetric`: the arrays are `comm.empty`'s.
    """

    def fn(comm: Any) -> list[float]:
        def fewest(number: int) -> int:
            return min(int(text) for text, _ in comm._exchange("turn", str(number).encode()))

        memory = wish.memory(comm.rank if spread else 0)
        count = max(1, nbytes // ITEM)
        blocks = {"reduce_scatter": (count, count // comm.size), "all_gather": (count // comm.size, count)}
        given, taken = blocks.get(verb, (count, count))
        x, out = (
            memory.adopt(comm.empty(n, "float32", device="cuda"), value)
            if symmetric
            else memory.full(n, value)
            for n, value in ((given, comm.rank + 1), (taken, 0))
        )
        if symmetric and chosen.multicast:
            for one in (x, out):
                view = view_of(one)
                assert view is not None and comm._device._rank.on_switch(view.ctypes.data, 1), (
                    "not on the switch"
                )
        again = comm.plan(verb, x, out=out, algorithm=algorithm)
        memory.synchronize()
        fewest(
            0
        )  # from here on nobody allocates, or loads code: both may wait for kernels that wait for a rank
        again()
        memory.synchronize()
        total = sum(range(1, comm.size + 1))
        assert memory.value(out) == (comm.size if verb == "all_gather" else total), "wrong result"

        if not graph:
            return rounds(wish, memory, again, fewest)
        replay = memory.capture(lambda: [again() for _ in range(wish.graph_calls)][-1])
        return [t / wish.graph_calls for t in rounds(wish, memory, replay, fewest)]

    chosen = wish.options(**options)

    def make(rendezvous: Any) -> Communicator:
        if spread:
            native(wish.emulated).use_device(rendezvous.rank)
        comm = Communicator(rendezvous, device=chosen)
        comm.timeout = ROW_SECONDS / 2
        return comm

    def whole(comm: Any) -> list[float]:
        try:
            found = fn(comm)
            comm._exchange("end", b"")
            return found
        finally:
            comm.close()

    try:
        return slowest(run_threads(ranks, whole, make=make))
    finally:
        gc.collect()  # streams and memory of the ranks are for the next row


def once(wish: Wish, call: Callable[[], Any]) -> float:
    """Microseconds of something that one thread does."""
    return slowest([rounds(wish, wish.memory(), call, alone)])


def copy_bandwidth(wish: Wish) -> float:
    """Bytes read and written by a plain copy, per second."""
    memory = wish.memory()
    source, to = memory.full(wish.large // ITEM, 1), memory.full(wish.large // ITEM, 0)
    times = rounds(wish, memory, lambda: memory.copy(to, source), alone)
    assert memory.value(to) == 1
    return 2 * wish.large / statistics.median(times)
