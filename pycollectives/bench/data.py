"""Data whose result is known exactly, and differs from element to element and from rank to rank.

Every rank's element is a small integer that a hash of (rank, index) gives; all sums and products are exact
in the dtype or are rounded once. So a result is right or wrong to the bit, and two chunks that changed places
are wrong. The values come from one table per rank; each time the vector has run through a table it starts
again at another place, the same on all ranks:

    element    0 ......... P-1 | P .................. 2P-1 | ...
    table      0 ......... P-1 | s ... P-1 0 ......... s-1 | 2s ...
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np

from ..arrays import Array
from ..extended_dtypes import finfo

PERIOD = 65521  # a prime: no chunk boundary falls on it by habit
_SHIFT = 40503


def fill(target: Array, table: Array, start: int = 0) -> None:
    """Write the elements `start`, `start + 1`, ... of the vector into `target`."""
    for low, high, at in _runs(start, target.size):
        target[low:high] = table[at : at + high - low]


def count_wrong(found: Array, table: Array, start: int = 0) -> int:
    """How many elements of `found` are not those of the vector from `start` on."""
    if found.dtype == np.bool_:  # a byte that is neither 0 nor 1 is wrong, too
        found, table = found.view(np.uint8), table.view(np.uint8)
    wrong = 0
    for low, high, at in _runs(start, found.size):
        wrong += int(np.count_nonzero(found[low:high] != table[at : at + high - low]))
    return wrong


def _runs(start: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Contiguous runs: first and last position in the array, first place in the table."""
    low = 0
    while low < count:
        lap, place = divmod(start + low, PERIOD)
        at = (place + lap * _SHIFT) % PERIOD
        high = min(count, low + PERIOD - place, low + PERIOD - at)
        yield low, high, at
        low = high


class Tables:
    """The tables of `size` ranks' inputs; those of results are made when they are asked for."""

    def __init__(self, op: str | None, dtype: np.dtype[Any], size: int) -> None:
        self._dtype, self._size = dtype, size
        self._op = None if op is None else _as_logical(op) if dtype == np.bool_ else op
        if self._op is None:
            raw = [(_hash(r) % np.uint64(_limit(dtype) + 1)).astype(np.int64) for r in range(size)]
        else:
            raw = [_contribution(self._op, dtype, size, rank) for rank in range(size)]
        self._raw = np.stack(raw)
        self._reduced: dict[range, Array] = {}
        self.inputs = _cast(self._raw, dtype)  # shape (size, PERIOD)

    def reduced(self, ranks: range) -> Array:
        """The table of the reduction of these ranks."""
        if ranks not in self._reduced:
            assert self._op is not None
            self._reduced[ranks] = _expected(self._op, self._raw[ranks], self._dtype, self._size)
        return self._reduced[ranks]


@lru_cache(maxsize=4)
def tables(op: str | None, dtype: np.dtype[Any], size: int) -> Tables:
    """The tables of a collective; `op` None: one that moves data and does not reduce it."""
    return Tables(op, dtype, size)


def _as_logical(op: str) -> str:
    """The logical operator that an operator is on booleans."""
    both = {"prod": "land", "min": "land", "band": "land", "sum": "lor", "max": "lor", "bor": "lor"}
    return {**both, "bxor": "lxor"}.get(op, op)


def _hash(seed: int) -> Array:
    """A 64-bit hash of every place of the table."""
    with np.errstate(over="ignore"):
        h = np.arange(1, PERIOD + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        h ^= np.uint64((seed + 1) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return h >> np.uint64(20)


def _limit(dtype: np.dtype[Any]) -> int:
    """All integers up to here are exact in `dtype` (and small enough to add up in 64 bits)."""
    if dtype == np.bool_:
        return 1
    if dtype.kind in "iu":
        return min(int(np.iinfo(dtype).max), 1 << 30)
    part = np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype
    digits = int(finfo(part).nmant) + 1
    return 1 << min(digits, 30)


def _contribution(op: str, dtype: np.dtype[Any], size: int, rank: int) -> Array:
    """One rank's table as integers (complex ones: Gaussian integers), such that the result stays in range."""
    limit, mine, shared = _limit(dtype), _hash(rank), _hash(-1)
    n, few = np.uint64(size), np.uint64(max(2, size))
    if op in ("sum", "avg"):
        top = np.uint64(max(1, limit // size) + 1)
        real = (mine % top).astype(np.int64)
        return real + 1j * (_hash(rank + size) % top).astype(np.int64) if dtype.kind == "c" else real
    if op == "prod":  # two ranks have a factor, which ones depends on the element; the others have 1
        factors = np.uint64(min(7, isqrt(limit)))
        first, second = shared % n == rank, (shared >> np.uint64(20)) % n == rank
        factor = 1 + (mine % factors).astype(np.int64)
        turn = np.where(mine & np.uint64(1 << 30), 1j, 1) if dtype.kind == "c" else 1
        found: Array = np.where(first | second & (size > 1), factor * turn, 1)
        return found
    if op in ("band", "bor"):  # the bits of two ranks
        has = (shared % n == rank) | ((shared >> np.uint64(20)) % n == rank)
        bits = np.where(has, mine % np.uint64(limit + 1), 0).astype(np.int64)
        return bits if op == "bor" else bits ^ ((1 << limit.bit_length() - 1) - 1)
    if op in ("land", "lor", "lxor"):
        rare = mine % few == 0
        true = rare if op == "lor" else ~rare if op == "land" else mine % np.uint64(2) == 0
        return np.where(true, 1 + (mine >> np.uint64(9)) % np.uint64(min(limit, 7)), 0).astype(np.int64)
    return (mine % np.uint64(limit + 1)).astype(np.int64)


def _cast(raw: Array, dtype: np.dtype[Any]) -> Array:
    """Integers in `dtype`, rounded once or wrapped."""
    if dtype.kind in "iub":
        return raw.astype(dtype)
    return raw.astype(np.complex128 if dtype.kind == "c" else np.float64).astype(dtype)


def _expected(op: str, raw: Array, dtype: np.dtype[Any], size: int) -> Array:
    """The reduction of all ranks' tables."""
    if op.startswith("l"):
        logical: Any = {"land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor}[op]
        return _cast(logical.reduce(raw != 0).astype(np.int64), dtype)
    bitwise: dict[str, Any] = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
    ufunc: Any = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
    total: Array = {**ufunc, **bitwise}[op].reduce(raw)
    if op != "avg":
        return _cast(total, dtype)
    mean: Array
    if dtype.kind in "iu":  # truncated toward zero, after the sum has wrapped
        whole = total.astype(dtype)
        mean = np.sign(whole) * (np.abs(whole) // size)
    elif dtype.kind == "c":
        part: Any = np.empty(0, dtype).real.dtype.type
        mean = np.empty(total.shape, dtype)
        mean.real, mean.imag = total.real.astype(part) / part(size), total.imag.astype(part) / part(size)
    else:
        kind: Any = np.float64 if dtype == np.float64 else np.float32
        mean = total.astype(kind) / kind(size)
    return mean.astype(dtype)
