"""Measures the kernels: with ranks that are threads of one process, on one device.

    python -m bench.gpu.measure FILE [--emulated] [--seconds 80]      writes each row as a line of JSON when it is there

Rows that are in the file already are not made again: after one that hangs, and so ends the process, the others go on.
Every row is checked once for its result. A time is the median of rounds; in a round every rank makes a number of calls and waits
for its stream, and the slowest rank counts. The emulated device has no speed: with it the same rows are made with small arrays, to
know that they can be made.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pycollectives as pc
from pycollectives.bootstrap.threads import run_threads
from pycollectives.communicator import Communicator
from pycollectives.device import Options, emulated
from pycollectives.device.extension import native
from pycollectives.device.sharing import QUEUES
from pycollectives.schedule import names

from . import others
from .limits import STACKS, append, lines
from .memory import CupyMemory, EmulatedMemory, Memory

ITEM = 4  # float32
ROW_SECONDS = 30.0  # of one row at most
os.environ.setdefault(QUEUES, "32")  # for eight ranks on a device


@dataclass
class Row:
    """`nbytes`: of one rank's vector. `traffic`: bytes that all ranks together must read and write, 0 where nothing is said."""

    what: str
    verb: str
    ranks: int
    nbytes: int
    microseconds: float = 0.0
    traffic: int = 0
    share: float = 0.0  # of the measured copy bandwidth
    error: str = ""

    @property
    def key(self) -> str:
        return f"{self.what}, {self.ranks} ranks, {self.nbytes} bytes"


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


def plan(wish: Wish) -> Iterator[tuple[Row, Callable[[], float]]]:
    """What is measured, the most wanted first."""
    most, large = wish.ranks[-1], wish.large

    def row(
        what: str, verb: str, ranks: int, nbytes: int, algorithm: str, traffic: int = 0, **more: Any
    ) -> Any:
        return Row(what, verb, ranks, nbytes, traffic=traffic), lambda: ours(
            wish, verb, ranks, nbytes, algorithm, **more
        )

    tiny = {"native": True}
    wide = {} if wish.emulated else {"blocks": 1024}  # as many as the device holds
    yield row("launch of one rank, native", "all_reduce", 1, 8, "one_shot", **tiny)
    yield row("launch of one rank, native, in a graph", "all_reduce", 1, 8, "one_shot", graph=True, **tiny)
    yield row("launch of one rank, interpreted", "all_reduce", 1, 8, "one_shot", native=False)
    for n in wish.ranks:
        yield row("8 bytes, native one-shot", "all_reduce", n, 8, "one_shot", **tiny)
        yield row("8 bytes, native one-shot, in a graph", "all_reduce", n, 8, "one_shot", graph=True, **tiny)
        yield row("8 bytes, interpreted one-shot", "all_reduce", n, 8, "one_shot", native=False)
    for nbytes in sorted({large // 4, large}):
        yield row("copy kernel", "all_gather", 1, nbytes, "direct", 2 * nbytes, **wide)
        for n in wish.ranks:
            whole = nbytes // n // n * n
            yield row("n-ary reduction kernel", "reduce_scatter", n, whole, "direct", (n + 1) * whole, **wide)
            yield row("native two-shot", "all_reduce", n, whole, "two_shot", 2 * n * whole, **wide)
            yield row(
                "interpreted two-shot",
                "all_reduce",
                n,
                whole,
                "two_shot",
                2 * n * whole,
                native=False,
                **wide,
            )
            ring: dict[str, Any] = {"protocol": "simple", **wide}
            yield row("interpreted ring", "all_reduce", n, whole, "ring", **ring)
            yield row("hand-written ring", "all_reduce", n, whole, "ring", hand_ring=True, **ring)
            yield row("native all-gather", "all_gather", n, whole, "direct", (1 + n) * whole, **wide)
    yield from guarded("CuPy and PyTorch", lambda: by_others(wish))
    for n in wish.ranks:
        yield row("8 bytes, one launch, native one-shot", "all_reduce", n, 8, "one_shot", fused=True, **tiny)
        whole = large // n // n * n
        one: dict[str, Any] = {"fused": True, **wide}
        traffic = 2 * n * whole
        yield row("one launch, native two-shot", "all_reduce", n, whole, "two_shot", traffic, **one, **tiny)
        yield row("one launch, interpreted ring", "all_reduce", n, whole, "ring", protocol="simple", **one)
    yield from by_switch(wish, row)
    for n in (most, *(n for n in wish.ranks if n != most)):
        for nbytes in wish.sizes:
            for algorithm in names("all_reduce"):
                yield row(f"{algorithm}", "all_reduce", n, nbytes, algorithm, native=False)
    yield from guarded("NCCL", lambda: by_nccl(wish))


def by_others(wish: Wish) -> Iterator[Any]:
    """The same by CuPy and PyTorch."""
    for n in wish.ranks:
        for nbytes in wish.sizes:
            for name, call in others.on_one_device(wish.emulated, n, nbytes):
                yield Row(name, "all_reduce", n, nbytes), partial(once, wish, call)


def by_nccl(wish: Wish) -> Iterator[Any]:
    """The same by NCCL, on several devices."""
    for nbytes in wish.sizes:
        for name, ranks, measure in others.nccl(wish.emulated, nbytes):
            yield Row(name, "all_reduce", ranks, nbytes), measure


def guarded(name: str, rows: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """What another library cannot do is a row that failed, and costs no other."""
    try:
        yield from rows()
    except Exception as error:
        failure = error

        def fail() -> float:
            raise failure

        yield Row(f"{name}: making its arrays", "all_reduce", 0, 0), fail


def by_switch(wish: Wish, row: Callable[..., Any]) -> Iterator[Any]:
    """Ranks with a device each: through the switch, with arrays where they are and with copies of them, and without it."""
    n = others.switched(wish.emulated)
    if n < 2:
        return
    alone: dict[str, Any] = {"spread": True, "native": True}
    for nbytes in (*wish.sizes, wish.large):
        for algorithm, verb in (
            ("two_shot", "all_reduce"),
            ("direct", "all_gather"),
            ("direct", "reduce_scatter"),
        ):
            whole = max(nbytes // ITEM // n, 4) * n * ITEM
            name = f"{verb} on {n} devices"
            by = {"multicast": True, **alone}
            yield row(f"{name}, by the switch, in place", verb, n, whole, algorithm, symmetric=True, **by)
            yield row(f"{name}, by the switch, copied", verb, n, whole, algorithm, **by)
            yield row(
                f"{name}, not by the switch",
                verb,
                n,
                whole,
                algorithm,
                symmetric=True,
                multicast=False,
                **alone,
            )


def measure(wish: Wish, seconds: float, file: Path) -> None:
    """All rows that the time is enough for, each written when it is there."""
    end = time.monotonic() + seconds
    known = lines(file)
    bandwidth = next(
        (line["copy_bytes_per_second"] for line in known if "copy_bytes_per_second" in line), 0.0
    )
    if not bandwidth:
        bandwidth = copy_bandwidth(wish)
        append(file, copy_bytes_per_second=bandwidth)
    begun, left_out = {line["begin"] for line in known if "begin" in line}, 0
    for row, run in plan(wish):
        if row.key in begun:
            continue
        if time.monotonic() > end:
            left_out += 1
            continue
        append(file, begin=row.key)
        faulthandler.dump_traceback_later(ROW_SECONDS, exit=True, file=STACKS)
        try:
            row.microseconds = run()
            row.share = row.traffic / (row.microseconds * 1e-6) / bandwidth
        except (pc.UnsupportedError, pc.InvalidArgumentError, pc.ScheduleError):
            append(file, none=row.key)  # not for so many ranks
            continue
        except (
            Exception
        ) as error:  # the library's, CuPy's, CUDA's: the other rows are worth more than a stack
            row.error = f"{type(error).__name__}: {error}"
        finally:
            faulthandler.cancel_dump_traceback_later()
        append(file, row=asdict(row))
        if (
            row.error and not wish.emulated
        ):  # kernels may spin, or the context be broken: the rest in a new process
            sys.stdout.flush()
            os._exit(4)
    append(file, left_out=left_out, not_compared=others.missing(wish.emulated))


def collected(file: Path) -> dict[str, Any] | None:
    """What was measured, from the lines of a file; None where there are none. A row that has only begun is an error."""
    known = lines(file)
    rows = {Row(**line["row"]).key: line["row"] for line in known if "row" in line}
    none = {line["none"] for line in known if "none" in line}
    found: dict[str, Any] = {"copy_bytes_per_second": 0.0, "left_out": 0, "not_compared": {}}
    for line in known:
        found |= {name: line[name] for name in found if name in line}
        if (key := line.get("begin")) is not None and key not in rows and key not in none:
            what, ranks, nbytes = key.rsplit(", ", 2)
            lost = Row(
                what,
                "",
                int(ranks.split()[0]),
                int(nbytes.split()[0]),
                error="did not end, or ended the process",
            )
            rows[key] = asdict(lost)
    return found | {"rows": list(rows.values())} if known else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--seconds", type=float, default=80)
    given = parser.parse_args()
    measure(SMALL if given.emulated else Wish(False), given.seconds, given.file)


if __name__ == "__main__":
    main()
