"""The input and output of a case on one rank, and what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array
from ..schedule import COLLECTIVES
from . import data
from .cases import Case

ROOT = 0


class CaseArrays:
    """Made for `rank` of `size` by `make(count, dtype)`; `out` is None where the rank has no output.

    `everywhere`: also ranks without an output of their own call `make` for one (for arrays that all ranks allocate together).
    """

    def __init__(
        self,
        case: Case,
        rank: int,
        size: int,
        make: Callable[[int, np.dtype[Any]], Array] = np.empty,
        *,
        in_place: bool = False,
        everywhere: bool = False,
    ) -> None:
        self.case, self.rank, self.size = case, rank, size
        self.contract = COLLECTIVES[case.collective]
        self.block = case.count // size
        self.mine = slice(rank * self.block, (rank + 1) * self.block)  # this rank's block in the vector
        whole, one = case.count, self.block
        sends = one if self.contract.input == "block" else whole  # elsewhere than at the root: only the shape
        takes = one if self.contract.output == "block" else whole
        has_output = len(self.contract.output_chunks(rank, size, ROOT, size)) > 0

        self.x: Array
        self.out: Array | None
        if in_place and has_output and sends < takes:
            self.out = make(takes, case.dtype)
            self.x = self.out[self.mine]
        else:
            self.x = make(sends, case.dtype)
            self.out = None
            if in_place and has_output:
                self.out = self.x if sends == takes else self.x[self.mine]
            elif not in_place and (has_output or everywhere):
                made = make(takes, case.dtype)
                self.out = made if has_output else None
        self.clear()
        self.tables = data.tables(case.op, case.dtype, size) if case.count else None

    def clear(self) -> None:
        """Write zeros: every page is there, and sums of zeros stay what they are."""
        for array in (self.x, self.out):
            if array is not None:
                array[...] = np.zeros((), self.case.dtype)

    def refill(self) -> None:
        """Write the input anew."""
        if self.tables is not None:
            start = self.mine.start if self.contract.input == "block" else 0
            data.fill(self.x, self.tables.inputs[self.rank], start)

    def spoil(self) -> None:
        """Make every element of an output of its own wrong."""
        if self.out is not None and not np.may_share_memory(self.x, self.out):
            self.out.view(np.uint8)[...] = 0xA5

    def wrong(self) -> int:
        """The wrong elements of this rank's output, after `refill` and the call."""
        if self.tables is None or self.out is None:
            return 0
        n, rank, start = self.size, self.rank, self.mine.start
        here = start if self.contract.output == "block" else 0
        if self.contract.reduces:
            ranks = self.contract.contributors(0, rank, n, ROOT, n)
            return data.count_wrong(self.out, self.tables.reduced(ranks), here)
        if self.contract.input == "root":
            return data.count_wrong(self.out, self.tables.inputs[ROOT], here)
        parts = enumerate(self.out.reshape(n, self.block))  # one block from each rank
        return sum(
            data.count_wrong(part, self.tables.inputs[q], start if self.contract.apart else q * self.block)
            for q, part in parts
        )
