"""What a library has to offer to be measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from pycollectives.arrays import Array
from pycollectives.bench.arrays import CaseArrays
from pycollectives.bench.cases import Case


class UnsupportedCaseError(Exception):
    """The library has no such collective, or not for this dtype."""


class Library(ABC):
    """One rank of a job of some library."""

    rank: int
    size: int
    version: str

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""

    @abstractmethod
    def bind(self, column: str, case: Case, arrays: CaseArrays) -> tuple[str, dict[str, Any]]:
        """The call as a line of Python, and the names in it. Raises UnsupportedCaseError."""

    def arrays_of(self, column: str) -> str:
        """The kind of arrays of a column; columns of one kind share them."""
        return column

    def in_place(self, case: Case, wanted: bool) -> bool:
        """Is the result written over the input: as wanted, or as the library always does (a broadcast)?"""
        return wanted or case.collective == "broadcast"

    def make(self, column: str, count: int, dtype: np.dtype[Any]) -> Array:
        """An array as a user of this column would have."""
        return np.empty(count, dtype)

    def flag(self) -> float | None:
        """Nanoseconds of a flag's way from the core of rank 0 to that of rank 1, where the library can tell."""
        return None
