"""Measuring one case.

Before every call the ranks line up at a barrier; each rank times its own call, and the time of a call is that
of the slowest rank. Calls go through `Communicator.plan`, so what is decided once is not measured.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array
from ..schedule import COLLECTIVES
from . import data
from .cases import Case, Options
from .distance import Distance

if TYPE_CHECKING:
    from ..communicator import Communicator

_FEWEST, _MOST = 20, 20_000
_WARM_NS, _WARM_CALLS = 20_000_000, 1024
_ROOT = 0


@dataclass(frozen=True)
class Row:
    """What came out. Times in microseconds, bandwidths in GB/s (1e9 bytes)."""

    case: Case
    algorithm: str  # that ran
    iterations: int
    p50: float
    p95: float
    p99: float
    least: float
    mean: float
    algbw: float
    busbw: float
    busbw_factor: float
    skew: float  # the median difference between the slowest and the fastest rank
    flag_ns: float | None  # one way between ranks 0 and 1
    wrong: int | None  # elements over all ranks; None: not checked


def busbw_factor(collective: str, ranks: int) -> float:
    """nccl-tests' factor from the algorithm's bandwidth to that of the busiest link."""
    share = (ranks - 1) / ranks
    if collective == "all_reduce":
        return 2 * share
    blocks = ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")
    return share if collective in blocks else 1.0


class _Arrays:
    """The input and output of a case, and what they hold."""

    def __init__(self, comm: Communicator, case: Case, options: Options) -> None:
        self.comm, self.case = comm, case
        self.contract = COLLECTIVES[case.collective]
        n, rank = comm.size, comm.rank
        self.block = case.count // n
        self.mine = slice(rank * self.block, (rank + 1) * self.block)  # this rank's block in the vector
        whole, one = case.count, self.block
        sends = one if self.contract.input == "block" else whole  # elsewhere than at the root: only the shape
        takes = one if self.contract.output == "block" else whole
        has_output = len(self.contract.output_chunks(rank, n, _ROOT, n)) > 0

        def make(count: int) -> Array:
            if options.symmetric:
                return comm.empty((count,), case.dtype)
            return np.empty(count, case.dtype)

        self.x: Array
        self.out: Array | None
        if options.in_place and has_output and sends < takes:
            self.out = make(takes)
            self.x = self.out[self.mine]
        else:
            self.x = make(sends)
            self.out = None
            if options.in_place and has_output:
                self.out = self.x if sends == takes else self.x[self.mine]
            elif not options.in_place and (
                has_output or options.symmetric
            ):  # all ranks allocate symmetric memory
                made = make(takes)
                self.out = made if has_output else None
        for array in (self.x, self.out):
            if array is not None:
                array[...] = np.zeros((), case.dtype)  # every page is there; sums of zeros stay what they are
        self.tables = data.tables(case.op, case.dtype, n) if case.count else None

    def refill(self) -> None:
        """Write the input anew."""
        if self.tables is not None:
            start = self.mine.start if self.contract.input == "block" else 0
            data.fill(self.x, self.tables.inputs[self.comm.rank], start)

    def spoil(self) -> None:
        """Make every element of an output of its own wrong."""
        if self.out is not None and not np.may_share_memory(self.x, self.out):
            self.out.view(np.uint8)[...] = 0xA5

    def wrong(self) -> int:
        """Collective: the wrong elements on all ranks."""
        return int(self.comm.all_reduce(np.array([self._wrong_here()]))[0])

    def _wrong_here(self) -> int:
        if self.tables is None or self.out is None:
            return 0
        n, rank, start = self.comm.size, self.comm.rank, self.mine.start
        here = start if self.contract.output == "block" else 0
        if self.contract.reduces:
            ranks = self.contract.contributors(0, rank, n, _ROOT, n)
            return data.count_wrong(self.out, self.tables.reduced(ranks), here)
        if self.contract.input == "root":
            return data.count_wrong(self.out, self.tables.inputs[_ROOT], here)
        parts = enumerate(self.out.reshape(n, self.block))  # one block from each rank
        return sum(
            data.count_wrong(part, self.tables.inputs[q], start if self.contract.apart else q * self.block)
            for q, part in parts
        )


def measure(comm: Communicator, case: Case, options: Options, distance: Distance) -> Row:
    """Collective: measure one case; every rank returns the row (`flag_ns` is known on ranks 0 and 1)."""
    verb = case.collective
    arrays = _Arrays(comm, case, options)
    named: dict[str, Any] = {"algorithm": case.algorithm, "root": _ROOT}
    call: Callable[[], Any]
    if verb == "barrier":
        call = comm.plan(verb, algorithm=case.algorithm)
    else:
        call = comm.plan(verb, arrays.x, case.op or "sum", out=arrays.out, **named)
    line_up = comm.plan("barrier")

    def checked() -> int:
        arrays.refill()
        arrays.spoil()
        call()
        return arrays.wrong()

    wrong = checked() if options.check else None
    if not options.fresh and options.in_place and verb != "barrier":
        arrays.x[...] = np.zeros((), case.dtype)
    before = arrays.refill if options.fresh else None
    iterations = _warm_up(comm, call, line_up, before, options)
    flag_ns = distance.measure()
    everyone = comm.all_gather(_timed(call, line_up, before, iterations)) / 1000
    if wrong is not None:
        wrong += checked()

    slowest = everyone.max(axis=0)
    p50, p95, p99 = (float(p) for p in np.percentile(slowest, (50, 95, 99)))
    algbw, factor = case.nbytes / p50 / 1000, busbw_factor(verb, comm.size)
    return Row(
        case=case,
        algorithm=case.algorithm or comm.explain(verb, nbytes=case.nbytes).chosen,
        iterations=iterations,
        p50=p50,
        p95=p95,
        p99=p99,
        least=float(slowest.min()),
        mean=float(slowest.mean()),
        algbw=algbw,
        busbw=algbw * factor,
        busbw_factor=factor,
        skew=float(np.median(slowest - everyone.min(axis=0))),
        flag_ns=flag_ns,
        wrong=wrong,
    )


def _timed(
    call: Callable[[], Any], line_up: Callable[[], Any], before: Callable[[], None] | None, iterations: int
) -> Array:
    """Nanoseconds of each call on this rank."""
    spent = np.empty(iterations, np.int64)
    enabled = gc.isenabled()
    gc.disable()
    try:
        for i in range(iterations):
            if before is not None:
                before()
            line_up()
            begin = perf_counter_ns()
            call()
            spent[i] = perf_counter_ns() - begin
    finally:
        if enabled:
            gc.enable()
    return spent


def _warm_up(
    comm: Communicator,
    call: Callable[[], Any],
    line_up: Callable[[], Any],
    before: Callable[[], None] | None,
    options: Options,
) -> int:
    """Collective: warm up, and return how many calls to time; the same on every rank."""
    calls = 1 if options.warmup is None else options.warmup
    if options.iterations is None:
        calls = max(1, calls)
    while True:
        begin = perf_counter_ns()
        _timed(call, line_up, before, calls)
        spent = int(comm.all_reduce(np.array([perf_counter_ns() - begin]), "max")[0])
        if options.warmup is not None or spent >= _WARM_NS or calls >= _WARM_CALLS:
            break
        calls *= 2
    if options.iterations is not None:
        return options.iterations
    return int(np.clip(options.min_time * 1e9 * calls / spent, _FEWEST, _MOST))
