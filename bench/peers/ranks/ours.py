"""pycollectives: ordinary arrays, symmetric memory, and plans."""

from __future__ import annotations

from typing import Any

import numpy as np

import pycollectives as pc
from pycollectives.arrays import Array
from pycollectives.bench.arrays import CaseArrays
from pycollectives.bench.cases import Case
from pycollectives.bench.distance import Distance

from .library import Library, UnsupportedCaseError

_LINES = {
    "all_reduce": "comm.all_reduce(x, out=out)",
    "reduce_scatter": "comm.reduce_scatter(x, out=out)",
    "all_gather": "comm.all_gather(x, out=out)",
    "all_to_all": "comm.all_to_all(x, out=out)",
    "broadcast": "comm.broadcast(x, root=0, out=out)",
    "barrier": "comm.barrier()",
}


class Ours(Library):
    """Columns: `array`, `empty`, `plan`."""

    def __init__(self) -> None:
        self.comm = pc.init()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.version = f"pycollectives {pc.__version__}, {self.comm.settings.tuning.origin}"
        self.distance = Distance(self.comm)

    def barrier(self) -> None:
        """The library's own."""
        self.comm.barrier()

    def arrays_of(self, column: str) -> str:
        """A plan works on ordinary arrays."""
        return "array" if column == "plan" else column

    def make(self, column: str, count: int, dtype: np.dtype[Any]) -> Array:
        """Symmetric memory or NumPy's."""
        return self.comm.empty((count,), dtype) if column == "empty" else np.empty(count, dtype)

    def bind(self, column: str, case: Case, arrays: CaseArrays) -> tuple[str, dict[str, Any]]:
        """`empty` makes the same calls as `array`, on other arrays."""
        if case.collective == "barrier" and column == "empty":
            raise UnsupportedCaseError("a barrier has no arrays")
        if column == "plan":
            return "plan()", {"plan": self._plan(case, arrays)}
        return _LINES[case.collective], {"comm": self.comm, "x": arrays.x, "out": arrays.out}

    def _plan(self, case: Case, arrays: CaseArrays) -> Any:
        if case.collective == "barrier":
            return self.comm.plan("barrier")
        root: dict[str, Any] = {"root": 0} if case.collective == "broadcast" else {}
        return self.comm.plan(case.collective, arrays.x, out=arrays.out, **root)

    def flag(self) -> float | None:
        """Between ranks 0 and 1."""
        return self.distance.measure()


def start() -> Ours:
    """In a process that `pycollectives run` started."""
    return Ours()
