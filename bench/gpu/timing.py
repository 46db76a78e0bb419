"""How one row is measured: ranks that are threads of one process, on one device or with a device each.

Every row is checked once for its result. A time is the median of rounds; in a round every rank makes a number of calls, and waits
for its stream at their end or after each of them, and the slowest rank counts. The emulated device has no speed: with it the same
rows are made with small arrays, to know that they can be made.
"""

from __future__ import annotations

import gc
import os
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from pycollectives.bootstrap.threads import run_threads
from pycollectives.communicator import Communicator
from pycollectives.device import Options, emulated
from pycollectives.device.arrays import view_of
from pycollectives.device.extension import native
from pycollectives.device.sharing import QUEUES
from pycollectives.schedule import COLLECTIVES

from .memory import CupyMemory, EmulatedMemory, Memory

BYTES = {"float32": 4, "bfloat16": 2}
ROW_SECONDS = 30.0  # of one row at most
os.environ.setdefault(QUEUES, "32")  # for eight ranks on a device


@dataclass(frozen=True)
class Wish:
    """How much is measured."""

    emulated: bool
    ranks: tuple[int, ...] = (2, 4, 8)
    sizes: tuple[int, ...] = (8, 64 << 10, 4 << 20, 64 << 20)
    protocol_sizes: tuple[int, ...] = (8, 4 << 10, 64 << 10, 512 << 10, 4 << 20)
    large: int = 256 << 20
    rounds: int = 5
    round_seconds: float = 0.02
    graph_calls: int = 20

    @property
    def memory(self) -> type[CupyMemory | EmulatedMemory]:
        return EmulatedMemory if self.emulated else CupyMemory

    def options(self, **changes: Any) -> Options:
        return replace(emulated() if self.emulated else Options(), **changes)


SMALL = Wish(True, (2, 3), (8, 2048), (8, 2048), 8192, 2, 0.0, 3)


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


def waiting(memory: Memory, call: Callable[[], Any]) -> Callable[[], None]:
    """The call, and the wait for its end."""

    def both() -> None:
        call()
        memory.synchronize()

    return both


def alone(number: int) -> int:
    """The least number of one rank."""
    return number


def slowest(found: list[list[float]]) -> float:
    """The median over the rounds of the slowest rank, in microseconds."""
    return float(1e6 * statistics.median(max(ranks) for ranks in zip(*found, strict=True)))


def blocks(verb: str, count: int, size: int) -> tuple[int, int]:
    """Elements of a rank's input and output, where `count` make the vector."""
    mine = count // size
    return {"reduce_scatter": (count, mine), "all_gather": (mine, count)}.get(verb, (count, count))


def expected(verb: str, rank: int, size: int) -> float | None:
    """The last element of the output, where every rank brings its number from 1 on; None for no output."""
    total = sum(range(1, size + 1))
    if verb in ("all_gather", "all_to_all"):
        return size
    if verb == "broadcast":
        return 1
    if verb == "scan":
        return sum(range(1, rank + 2))
    return None if verb == "reduce" and rank != 0 else total


def ours(
    wish: Wish,
    verb: str,
    ranks: int,
    nbytes: int,
    algorithm: str | None,
    *,
    dtype: str = "float32",
    waits: bool = False,
    graph: bool = False,
    spread: bool = False,
    symmetric: bool = False,
    **options: Any,
) -> float:
    """Microseconds of one call. Raises what the call raises, and AssertionError for a wrong result.

    `waits`: after each call; `graph`: of one in a graph of several; `spread`: each rank has a device of its own; `symmetric`: the
    arrays are `comm.empty`'s.
    """

    def fn(comm: Any) -> list[float]:
        def fewest(number: int) -> int:
            return min(int(text) for text, _ in comm._exchange("turn", str(number).encode()))

        memory = wish.memory(comm.rank if spread else 0)
        count = max(1, nbytes // BYTES[dtype])
        wanted = expected(verb, comm.rank, comm.size)
        given, taken = blocks(verb, count, comm.size)
        x, out = (
            memory.adopt(comm.empty(n, dtype, device="cuda"), value)
            if symmetric
            else memory.full(n, value, dtype)
            for n, value in ((given, comm.rank + 1), (taken, 0))
        )
        if symmetric and chosen.multicast:
            for one in (x, out):
                view = view_of(one)
                assert view is not None and comm._device._rank.on_switch(view.ctypes.data, 1), (
                    "not on the switch"
                )
        root: dict[str, Any] = {"root": 0} if COLLECTIVES[verb].rooted else {}
        again = comm.plan(verb, x, out=None if wanted is None else out, algorithm=algorithm, **root)
        memory.synchronize()
        fewest(
            0
        )  # from here on nobody allocates, or loads code: both may wait for kernels that wait for a rank
        again()
        memory.synchronize()
        assert wanted is None or memory.value(out) == wanted, "wrong result"

        if not graph:
            return rounds(wish, memory, waiting(memory, again) if waits else again, fewest)
        replay = memory.capture(lambda: [again() for _ in range(wish.graph_calls)][-1])
        fewest(0)  # the end of a capture may wait for kernels, as allocation does
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
        wish.memory.give_back()


class Meeting:
    """Of threads that measure another library."""

    def __init__(self, size: int) -> None:
        self._numbers = [0] * size
        self._barrier = threading.Barrier(size, timeout=ROW_SECONDS / 2)

    def fewest(self, rank: int, number: int) -> int:
        """All have come here; the least of their numbers."""
        self._numbers[rank] = number
        self._barrier.wait()
        least = min(self._numbers)
        self._barrier.wait()
        return least

    def give_up(self) -> None:
        """Nobody comes any more."""
        self._barrier.abort()


def theirs(
    wish: Wish, ranks: int, make: Callable[[int, Memory], tuple[Callable[[], Any], Callable[[], bool]]]
) -> float:
    """The same of another library: `make(rank, memory)` gives its call, and what says whether the result is right."""
    meeting = Meeting(ranks)

    def measure(rank: int) -> list[float]:
        try:
            memory = wish.memory(rank)
            call, is_right = make(rank, memory)
            call()
            memory.synchronize()
            assert meeting.fewest(rank, is_right()), "wrong result"  # of anyone: all end
            return rounds(wish, memory, call, lambda number: meeting.fewest(rank, number))
        except BaseException:
            meeting.give_up()
            raise

    with ThreadPoolExecutor(ranks) as threads:
        running = [threads.submit(measure, rank) for rank in range(ranks)]
        errors = [error for one in running if (error := one.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error  # that of the one who gave up, if any says more
    return slowest([one.result() for one in running])


def once(wish: Wish, call: Callable[[], Any], is_right: Callable[[], bool] = lambda: True) -> float:
    """Microseconds of something that one thread does."""
    memory = wish.memory()
    call()
    memory.synchronize()
    assert is_right(), "wrong result"
    return slowest([rounds(wish, memory, call, alone)])


def copy_bandwidth(wish: Wish) -> float:
    """Bytes read and written by a plain copy, per second."""
    memory, count = wish.memory(), wish.large // BYTES["float32"]
    source, to = memory.full(count, 1), memory.full(count, 0)
    times = rounds(wish, memory, lambda: memory.copy(to, source), alone)
    assert memory.value(to) == 1
    return 2 * wish.large / statistics.median(times)
