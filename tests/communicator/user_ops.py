"""Operators for the tests of `pc.op`, what they must give, and calls of every verb by every algorithm."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 and float8 as NumPy dtypes
import numpy as np

import pycollectives as pc

Array = Any
VERBS = ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
PAIR = np.dtype([("value", "f4"), ("place", "i8")])  # 12 bytes, and not aligned


def last_set(a: Any, b: Any) -> Any:  # associative, not commutative, for every dtype
    return b if b != 0 else a


def joined(a: Any, b: Any) -> Any:  # (1 + a)(1 + b) - 1: associative and commutative
    return a + b + a * b


def affine(a: Any, b: Any) -> Any:  # not even associative: only a left fold gives the right result
    return a * np.float32(0.5) + b


def matrix_product(a: Any, b: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = a[i, 0] * b[0, j]
            for k in range(1, a.shape[1]):
                total += a[i, k] * b[k, j]
            out[i, j] = total


def larger(a: Any, b: Any) -> Any:
    return a if a.value >= b.value else b


def sum_and_last(a: Any, b: Any, out: Any) -> None:
    out.value = a.value + b.value
    out.place = b.place


LAST = pc.op(last_set)
JOINED = pc.op(joined, commutative=True)
AFFINE = pc.op(affine)
MATRIX = pc.op(matrix_product, shape=(2, 2))
MATRIX3 = pc.op(matrix_product, shape=(3, 3))
LARGER = pc.op(larger)
SUM_AND_LAST = pc.op(sum_and_last)


def fold(f: Any, xs: list[Array]) -> Array:
    """The left fold of elementwise `f`, in the dtype's own arithmetic or in float32, rounded once."""
    dtype = xs[0].dtype
    if dtype.kind in "iubm" or dtype.name in ("float32", "float64", "complex64", "complex128"):
        wide = dtype
    else:
        wide = np.dtype("float32")
    with np.errstate(all="ignore"):
        columns = zip(*(x.ravel().astype(wide) for x in xs), strict=True)
        flat = [functools.reduce(lambda a, b: wide.type(f(a, b)), column) for column in columns]
    return np.array(flat, wide).reshape(xs[0].shape).astype(dtype)


def data(dtype: str, shape: tuple[int, ...], rank: int, low: int = 0) -> Array:
    """Small whole numbers, many of them 0; they depend on rank and index."""
    drawn = np.random.default_rng([7, rank]).integers(low, 3, shape)
    return drawn.astype(dtype)


def same(a: Array, b: Array) -> bool:
    """Equal bits, but for the padding of records."""
    equal = a.tobytes() == b.tobytes() if a.dtype.names is None else bool((a == b).all())
    return a.dtype == b.dtype and a.shape == b.shape and equal


def parts(verb: str, xs: list[Array], size: int, rank: int) -> list[Array] | None:
    """What the result of a rank is the fold of; None: it has no result."""
    if verb == "reduce_scatter":
        return [x.reshape(size, -1, *x.shape[1:])[rank] for x in xs]
    if verb == "scan":
        return xs[: rank + 1]
    if verb == "exscan":
        return xs[:rank] or None
    return xs


def algorithms(comm: Any, verb: str, x: Array, op: Any, **options: Any) -> list[str]:
    """Those that accept the call; the others must refuse it by name."""
    found = []
    for name in [known.name for known in comm.algorithms(verb)]:
        try:
            comm.plan(verb, x, op, algorithm=name, **options)
            found.append(name)
        except pc.UnsupportedError as error:
            assert repr(name) in str(error) and "these can: " in str(error), error
    return found


def every_way(comm: Any, op: Any, xs: list[Array], want: Any) -> set[tuple[str, str]]:
    """All verbs by all algorithms, into new memory and in place, at every root; returns those that ran."""
    ran = set()
    mine = xs[comm.rank]
    for verb in VERBS:
        for root in range(comm.size) if verb == "reduce" else (None,):
            place = {} if root is None else {"root": root}
            inputs = parts(verb, xs, comm.size, comm.rank)
            expected = None if inputs is None or root not in (None, comm.rank) else want(inputs)
            able = algorithms(comm, verb, mine, op, **place)
            for name in able:
                ran.add((verb, name))
                got = getattr(comm, verb)(mine.copy(), op, algorithm=name, **place)
                where = f"{verb} by {name} on {comm.size} ranks, rank {comm.rank}, {mine.dtype}{mine.shape}"
                if expected is None:
                    assert got is None, where
                    continue
                assert same(got, expected), f"{where}: {got}, not {expected}"
            for name in able if verb != "reduce_scatter" else ():
                x = mine.copy()
                getattr(comm, verb)(x, op, algorithm=name, out=x, **place)
                kept = mine if expected is None else expected
                assert same(x, kept), f"{verb} by {name} in place, rank {comm.rank}"
    return ran
