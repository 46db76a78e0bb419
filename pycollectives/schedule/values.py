"""Values of the schedule language: arrays over ranks, NULL, and values that wait for a symbolic step.

Every value an author handles is an int (the same for all ranks), an int64 array of shape (ranks,) or
(ranks, peers), a `Maybe` (such an array in which some ranks have nothing), or a `Deferred` (an expression
over the step of a symbolic loop, evaluated once per step).  NumPy's operators work on all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class _Null(NDArrayOperatorsMixin):
    """The type of `NULL`: no rank, no peer, no chunk. Arithmetic keeps NULL; test for it with `is`."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs or any(isinstance(x, (Maybe, Deferred)) for x in inputs):
            return NotImplemented
        return self

    def __repr__(self) -> str:
        return "NULL"

    def __bool__(self) -> bool:
        raise TypeError("NULL has no truth value; use select(condition, a, b)")

    __hash__ = object.__hash__


NULL = _Null()


class Maybe(NDArrayOperatorsMixin):
    """An int64 (or bool) array in which some entries are NULL. Arithmetic keeps NULL."""

    def __init__(self, value: Any, present: Any) -> None:
        value, present = np.broadcast_arrays(np.asarray(value), np.asarray(present, dtype=bool))
        self.present = present
        self.value = np.where(present, value, np.zeros((), value.dtype))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs or any(isinstance(x, Deferred) for x in inputs):
            return NotImplemented
        if any(x is NULL for x in inputs):
            return NULL
        present: Any = True
        for x in inputs:
            if isinstance(x, Maybe):
                present = present & x.present
        return Maybe(ufunc(*(x.value if isinstance(x, Maybe) else x for x in inputs)), present)

    def __getitem__(self, key: Any) -> Maybe:
        return Maybe(self.value[key], self.present[key])

    def __bool__(self) -> bool:
        raise TypeError("there is no branch on the rank: use select(condition, a, b)")

    def __repr__(self) -> str:
        shown = np.where(self.present, self.value.astype(object), np.array(None))
        return f"Maybe({shown.tolist()})".replace("None", "NULL")


class Deferred(NDArrayOperatorsMixin):
    """An expression that depends on the step of a symbolic loop."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function, self.args = function, args

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return NotImplemented if method != "__call__" or kwargs else Deferred(ufunc, *inputs)

    def __getitem__(self, key: Any) -> Deferred:
        return Deferred(operator.getitem, self, key)

    def _concrete(self, *_: Any) -> int:
        raise TypeError(
            "a symbolic step has no single value: use operators and select, or p.steps(n, unroll=True)"
        )

    __int__ = __index__ = __iter__ = _concrete
    __bool__ = _concrete

    def resolve(self, env: Mapping[Symbol, int]) -> Any:
        return self.function(*(resolve(x, env) for x in self.args))


class Symbol(Deferred):
    """The step of one symbolic loop."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def resolve(self, env: Mapping[Symbol, int]) -> Any:
        return env[self]

    __hash__ = object.__hash__


def resolve(x: Any, env: Mapping[Symbol, int]) -> Any:
    """`x` with every symbolic step replaced by its value in `env`."""
    return x.resolve(env) if isinstance(x, Deferred) else x


def present_mask(x: Any) -> Any:
    """Where `x` is not NULL (a bool or a bool array)."""
    return x.present if isinstance(x, Maybe) else not isinstance(x, _Null)


def plain(x: Any) -> Any:
    """The numbers of `x`; NULL entries read 0."""
    return x.value if isinstance(x, Maybe) else np.int64(0) if isinstance(x, _Null) else x


def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` where `condition` holds, else `b`; either may be NULL. A condition that is NULL counts as false.

    A value of shape (ranks,) beside one of shape (ranks, peers) counts for all peers of its rank.
    """
    if any(isinstance(x, Deferred) for x in (condition, a, b)):
        return Deferred(select, condition, a, b)
    condition, a, b = _aligned(condition, a, b)
    chosen = np.asarray(plain(condition), dtype=bool) & present_mask(condition)
    present = np.where(chosen, present_mask(a), present_mask(b))
    value = np.where(chosen, plain(a), plain(b))
    return value if np.all(present) else Maybe(value, present)


def _aligned(*values: Any) -> tuple[Any, ...]:
    if all(np.ndim(plain(x)) < 2 for x in values):
        return values
    return tuple(x[:, None] if np.ndim(plain(x)) == 1 else x for x in values)


def columns(*values: Any) -> Any:
    """Peers side by side: scalars and values of shape (ranks,) joined into one of shape (ranks, n)."""
    if any(isinstance(x, Deferred) for x in values):
        return Deferred(columns, *values)
    present = np.stack(np.broadcast_arrays(*(np.atleast_1d(present_mask(x)) for x in values)), axis=-1)
    value = np.stack(np.broadcast_arrays(*(np.atleast_1d(plain(x)) for x in values)), axis=-1)
    present, value = np.broadcast_arrays(present, value)
    return value if np.all(present) else Maybe(value, present)


def rows(x: Any, ranks: int) -> list[list[int | None]]:
    """`x` as one list of entries per rank; None where it is NULL. Scalars and columns broadcast.

    Raises ValueError for entries that are not integers and for shapes other than (ranks,) and (ranks, n).
    """
    if type(x) is np.ndarray and x.dtype.kind == "i" and x.ndim in (1, 2) and len(x) == ranks:  # mostly
        found: list[list[int | None]] = (x[:, None] if x.ndim == 1 else x).tolist()
        return found
    value, present = np.broadcast_arrays(np.asarray(plain(x)), np.asarray(present_mask(x)))
    if value.dtype.kind not in "biu":
        raise ValueError(f"{x!r} is not made of integers: divide with //, choose with select")
    if value.ndim > 2:
        raise ValueError(f"a value has at most two axes (ranks, peers), not the shape {value.shape}")
    if value.ndim < 2:
        value, present = value.reshape(-1, 1), present.reshape(-1, 1)
    if value.shape[0] not in (1, ranks):
        raise ValueError(f"a value has {value.shape[0]} rows where {ranks} ranks are evaluated")
    value = np.broadcast_to(value, (ranks, value.shape[1]))
    numbers: list[list[int | None]] = value.tolist()
    if present.all():
        return numbers
    masks = np.broadcast_to(present, value.shape).tolist()
    return [
        [n if there else None for n, there in zip(*pair, strict=True)]
        for pair in zip(numbers, masks, strict=True)
    ]


def log2_ceil(n: int) -> int:
    """The least k with 2^k >= n."""
    return max(0, n - 1).bit_length()
