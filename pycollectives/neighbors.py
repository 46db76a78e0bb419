"""Halo exchange on a Cartesian grid of ranks.

    dims (2, 3):    0 - 1 - 2      block 2d of x goes to the minus neighbour of dimension d, block 2d + 1
                    |   |   |      to the plus one; block 2d of the result came from the minus neighbour,
                    3 - 4 - 5      block 2d + 1 from the plus one

It is one uneven all-to-all whose counts follow from the grid, so nothing is exchanged beforehand: the
schedules that are proved and tested for all_to_all move it, blocking or not, and its fingerprint tells a
rank that has other dims. Schedules of its own would send the same messages; separate sends and receives
would not be checked against each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .arrays import Array, Buffers, as_input, check_output
from .caller import Caller
from .errors import InvalidArgumentError
from .fusion import LabelledKind
from .group import deferrable
from .work import PersistentMethod, Work

SHOWN = 12  # factorisations that an error lists


def neighbors(rank: int, dims: Sequence[int], periodic: Sequence[bool]) -> list[int]:
    """The minus and the plus neighbour in each dimension, -1 beyond a border; ranks in row-major order."""
    found = []
    for axis, (length, wraps) in enumerate(zip(dims, periodic, strict=True)):
        stride = math.prod(dims[axis + 1 :])
        place = rank // stride % length
        for step in (-1, 1):
            there = place + step
            inside = wraps or 0 <= there < length
            found.append(rank + (there % length - place) * stride if inside else -1)
    return found


def factorisations(size: int, parts: int) -> list[tuple[int, ...]]:
    """All ways to write `size` as an ordered product of `parts` numbers."""
    if parts == 1:
        return [(size,)]
    return [
        (n, *rest)
        for n in range(1, size + 1)
        if size % n == 0
        for rest in factorisations(size // n, parts - 1)
    ]


@dataclass(frozen=True)
class _Place:
    """One rank's place in a grid: which blocks go where, in blocks."""

    counts: tuple[tuple[int, ...], ...]  # row r: the blocks that rank r sends to each
    packed: tuple[int, ...]  # the blocks of x in the order of sending
    arriving: tuple[int, ...]  # the blocks of the result in the order of arrival

    @staticmethod
    @lru_cache(maxsize=256)
    def of(rank: int, size: int, dims: tuple[int, ...], periodic: tuple[bool, ...]) -> _Place:
        around = [neighbors(r, dims, periodic) for r in range(size)]
        counts = tuple(tuple(mine.count(peer) for peer in range(size)) for mine in around)
        present = [block for block, peer in enumerate(around[rank]) if peer >= 0]
        # A rank sends its blocks to a peer in their order; what left as a minus block is a plus block here.
        packed = sorted(present, key=lambda block: (around[rank][block], block))
        arriving = sorted(present, key=lambda block: (around[rank][block], block ^ 1))
        return _Place(counts, tuple(packed), tuple(arriving))


@dataclass
class _Unpacking(Buffers):
    """Puts what has arrived into the blocks of the result."""

    arriving: tuple[int, ...] = ()

    def finish(self) -> Array | None:
        if self.result is not None and self.out is not None:
            for block, data in zip(self.arriving, self.out, strict=True):
                self.result[block] = data
        return self.result


@dataclass
class _Halo:
    """One exchange: from `x` to the buffer in the order of sending, and from that of arrival to the result."""

    core: Any
    prepared: Any
    x: Array
    packed: Array
    buffers: _Unpacking

    def run(self, limit: float) -> Array | None:
        """Now; returns the result."""
        self.core.run(self.prepared, *self._pack(), limit)
        return self.buffers.finish()

    def submit(self, comm: Caller, limit: float) -> Work:
        """Asynchronously."""
        job = self.core.submit(self.prepared, *self._pack(), limit)
        return Work(comm, self.core, job, self.buffers, self.prepared)

    def _pack(self) -> tuple[int, int]:
        # In the mode "clip" there is no copy between.
        np.take(self.x, self.packed, axis=0, out=self.buffers.x, mode="clip")
        return self.buffers.addresses


class Neighbors(Caller):
    """Neighbour exchange; `Communicator` inherits it."""

    @deferrable
    def neighbor_exchange(
        self,
        x: Any,
        dims: Sequence[int],
        *,
        periodic: bool | Sequence[bool] = True,
        out: Array | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Exchange blocks with the neighbours on a grid of ranks: a halo exchange.

        `dims`: the lengths of the grid, whose product is `size`; ranks lie in row-major order. `x`: shape
        (2 * len(dims), ...), block 2d for the minus neighbour of dimension d, block 2d + 1 for the plus
        one. Result: the same shape; block 2d is what the minus neighbour sent here, block 2d + 1 the plus
        one. `periodic`: does the grid wrap, for all dimensions or for each; beyond a border that does not,
        nothing is sent, and the block of the result keeps what `out` held, or is zero without `out`. `out`
        may be `x`. A dimension of length 1 that wraps has the rank itself as both neighbours.

        Raises InvalidArgumentError for dims that do not fit (it lists those that do) and for wrong shapes,
        MismatchError when the ranks disagree on dims, periodic, dtype or the size of a block.
        """
        halo = self._halo(x, dims, periodic, out)
        limit = self._limit(timeout)
        return halo.submit(self, limit) if async_op else halo.run(limit)

    def _plan_exchange(
        self,
        x: Any,
        dims: Sequence[int],
        periodic: bool | Sequence[bool],
        out: Array | None,
        timeout: float | None,
    ) -> PersistentMethod:
        """The persistent form of `neighbor_exchange`."""
        halo = self._halo(x, dims, periodic, out)
        text = f"neighbor_exchange({halo.x.dtype}{list(halo.x.shape)})"
        return PersistentMethod(functools.partial(halo.run, self._limit(timeout)), text)

    def _halo(self, x: Any, dims: Sequence[int], periodic: bool | Sequence[bool], out: Array | None) -> _Halo:
        """One exchange with checked arguments."""
        core = self._native()
        lengths, wraps = self._grid(dims, periodic)
        x = as_input(x)
        if x.ndim == 0 or x.shape[0] != 2 * len(lengths):
            needed = f"{len(lengths)} dimensions needs {2 * len(lengths)} blocks along the first axis"
            raise InvalidArgumentError(f"neighbor_exchange with {needed}; x has shape {x.shape}")
        result = np.zeros(x.shape, x.dtype) if out is None else check_output(out, x.dtype, x.shape)
        place = _Place.of(self.rank, self.size, lengths, wraps)
        shape = len(place.packed), *x.shape[1:]
        prepared = self._calls.find(_kind(x.dtype, math.prod(x.shape[1:]), self.size, lengths, wraps))
        buffers = _Unpacking(np.empty(shape, x.dtype), np.empty(shape, x.dtype), result, place.arriving)
        return _Halo(core, prepared, x, np.array(place.packed, np.intp), buffers)

    def _grid(self, dims: Any, periodic: Any) -> tuple[tuple[int, ...], tuple[bool, ...]]:
        """The checked dims, and whether each wraps."""
        try:
            lengths = tuple(int(n.__index__()) for n in dims)
        except (TypeError, AttributeError):
            raise InvalidArgumentError(f"dims is {dims!r}; it must be whole numbers") from None
        if not lengths or min(lengths) < 1 or math.prod(lengths) != self.size:
            fitting = [
                " x ".join(map(str, f)) for f in factorisations(self.size, max(1, min(len(lengths), 4)))
            ]
            listed = ", ".join(fitting[:SHOWN]) + (", ..." if len(fitting) > SHOWN else "")
            raise InvalidArgumentError(
                f"dims {lengths} do not make a grid of {self.size} ranks; these do: {listed}"
            )
        if isinstance(periodic, (bool, np.bool_)):
            return lengths, (bool(periodic),) * len(lengths)
        each = list(periodic) if isinstance(periodic, (Sequence, np.ndarray)) and np.ndim(periodic) else None
        if each is None or not all(isinstance(wrap, (bool, np.bool_, int, np.integer)) for wrap in each):
            raise InvalidArgumentError(f"periodic is {periodic!r}; it must be a bool, or one per dimension")
        wraps = tuple(map(bool, each))
        if len(wraps) != len(lengths):
            raise InvalidArgumentError(f"periodic has {len(wraps)} entries, dims {len(lengths)}")
        return lengths, wraps


@lru_cache(maxsize=256)
def _kind(
    dtype: np.dtype[Any], width: int, size: int, dims: tuple[int, ...], periodic: tuple[bool, ...]
) -> LabelledKind:
    counts = tuple(tuple(n * width for n in row) for row in _Place.of(0, size, dims, periodic).counts)
    label = ("neighbor_exchange", dims, periodic, width)
    count = 2 * len(dims) * width
    return LabelledKind("all_to_all", dtype, count, named="direct", counts=counts, label=label)
