"""Several algorithms on the same arrays, so that the placement of memory favours nobody."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array
from ..bench.arrays import ROOT, CaseArrays
from ..bench.cases import Case
from ..errors import UnsupportedError
from ..schedule import COLLECTIVES

if TYPE_CHECKING:
    from ..communicator import Communicator

_CALM = 2.0  # times the least noise


@dataclass(frozen=True)
class Heat:
    """`times`: seconds of one call of the slowest rank, of shape (algorithms, rounds). `noise`: seconds that the ranks
    took to line up, by round: long where something else runs on the cores; no algorithm has a part in it."""

    times: Array
    noise: Array

    def quiet(self) -> Array:
        """The times of the rounds that were not disturbed; of half of the rounds at least."""
        order = np.argsort(self.noise, kind="stable")
        calm = int(np.count_nonzero(self.noise <= _CALM * self.noise.min()))
        found: Array = self.times[:, np.sort(order[: max(calm, (len(order) + 1) // 2)])]
        return found


class Arena:
    """Collective: the arrays of a case and a persistent call by each algorithm; those that cannot run are left out."""

    def __init__(
        self, comm: Communicator, case: Case, names: Sequence[str], *, symmetric: bool = False
    ) -> None:
        self.comm = comm

        def make(count: int, dtype: np.dtype[Any]) -> Array:
            return comm.empty((count,), dtype) if symmetric else np.empty(count, dtype)

        self._arrays = CaseArrays(case, comm.rank, comm.size, make, everywhere=symmetric)
        self._line_up = comm.plan("barrier")
        self._calls: dict[str, Callable[[], Any]] = {}
        x, out = self._arrays.x, self._arrays.out
        for name in names:
            try:
                if case.collective == "barrier":
                    self._calls[name] = comm.plan("barrier", algorithm=name)
                else:
                    contract = COLLECTIVES[case.collective]
                    named: dict[str, Any] = {"root": ROOT} if contract.rooted else {}
                    if contract.reduces:
                        named["op"] = case.op or "sum"
                    self._calls[name] = comm.plan(case.collective, x, out=out, algorithm=name, **named)
            except UnsupportedError:  # the same on every rank: the pool for messages is too small for it
                continue

    @property
    def names(self) -> list[str]:
        """The algorithms that can run."""
        return list(self._calls)

    def wrong(self, name: str) -> int:
        """Collective: the wrong elements of a result, over all ranks."""
        self._arrays.refill()
        self._arrays.spoil()
        self._calls[name]()
        return int(self.comm.all_reduce(np.array([self._arrays.wrong()]))[0])

    def heat(self, names: Sequence[str], rounds: int, calls: int) -> Heat:
        """Collective: time calls by these algorithms; the same result on every rank.

        In every round each algorithm makes `calls` calls, before each of which the ranks line up. The lower quartile of
        them counts: what else runs on the machine only makes calls longer.
        """
        spent = np.empty((2, rounds, len(names), calls), np.int64)  # lining up, and the call
        enabled, line_up = gc.isenabled(), self._line_up
        gc.disable()
        try:
            for i in range(rounds):
                for k in range(len(names)):
                    which = (i + k) % len(names)  # each begins in turn
                    call = self._calls[names[which]]
                    for j in range(calls):
                        start = perf_counter_ns()
                        line_up()
                        begin = perf_counter_ns()
                        call()
                        spent[:, i, which, j] = begin - start, perf_counter_ns() - begin
        finally:
            if enabled:
                gc.enable()
        slowest = self.comm.all_gather(spent).max(axis=0)
        times: Array = np.maximum(np.quantile(slowest[1], 0.25, axis=2), 1.0).T * 1e-9
        return Heat(times, np.median(slowest[0], axis=(1, 2)) * 1e-9)
