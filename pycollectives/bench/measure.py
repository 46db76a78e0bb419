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
from .arrays import ROOT, CaseArrays
from .cases import Case, Options
from .distance import Distance

if TYPE_CHECKING:
    from ..communicator import Communicator

_FEWEST, _MOST = 20, 20_000
_WARM_NS, _WARM_CALLS = 20_000_000, 1024


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


def measure(comm: Communicator, case: Case, options: Options, distance: Distance) -> Row:
    """Collective: measure one case; every rank returns the row (`flag_ns` is known on ranks 0 and 1)."""
    verb = case.collective

    def make(count: int, dtype: np.dtype[Any]) -> Array:
        return comm.empty((count,), dtype) if options.symmetric else np.empty(count, dtype)

    arrays = CaseArrays(
        case, comm.rank, comm.size, make, in_place=options.in_place, everywhere=options.symmetric
    )
    contract = COLLECTIVES[verb]
    named: dict[str, Any] = {"algorithm": case.algorithm}
    if contract.rooted:
        named["root"] = ROOT
    if contract.reduces:
        named["op"] = case.op or "sum"
    call: Callable[[], Any]
    if verb == "barrier":
        call = comm.plan("barrier", algorithm=case.algorithm)
    else:
        call = comm.plan(verb, arrays.x, out=arrays.out, **named)
    line_up = comm.plan("barrier")

    def checked() -> int:
        arrays.refill()
        arrays.spoil()
        call()
        return int(comm.all_reduce(np.array([arrays.wrong()]))[0])

    wrong = checked() if options.check else None
    if not options.fresh and options.in_place and verb != "barrier":
        arrays.clear()
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
        algorithm=case.algorithm
        or comm.explain(verb, nbytes=case.nbytes, dtype=case.dtype, op=case.op or "sum").chosen,
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
