"""Operators for the tests of `pc.op`, what they must give, and calls of every verb by every algorithm: on the CPU, on the emulated
device and on a GPU."""

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


# -- what ranks do ------------------------------------------------------------------------------------------------------


def elements(comm: Any, dtype: str, counts: tuple[int, ...]) -> set[tuple[str, str]]:
    """An operator that does not commute, and one that does."""
    ran = set()
    for f, op in ((last_set, LAST), (joined, JOINED)) if dtype != "bool" else ((last_set, LAST),):
        for count in counts:
            xs = [data(dtype, (comm.size * count,), rank) for rank in range(comm.size)]
            ran |= every_way(comm, op, xs, functools.partial(fold, f))
    return ran


def left_fold(comm: Any, dtype: str, count: int, prefix: int) -> None:
    """With `deterministic=True` the left fold, rounded once, to the bit; of the first `prefix` elements alone, too."""
    rng = np.random.default_rng(1)
    xs = [rng.standard_normal(count).astype(dtype) for _ in range(comm.size)]
    want = fold(affine, xs)
    whole = comm.all_reduce(xs[comm.rank], AFFINE, deterministic=True)
    assert whole.tobytes() == want.tobytes()
    part = comm.all_reduce(xs[comm.rank][:prefix], AFFINE, deterministic=True)
    assert part.tobytes() == want[:prefix].tobytes()


def matrices(comm: Any, op: Any, dtype: str, counts: tuple[int, ...]) -> set[tuple[str, str]]:
    """Products in rank order."""
    ran: set[tuple[str, str]] = set()
    low = -2 if dtype.startswith("int") else 0  # NumPy's products have no -0
    for count in counts:
        xs = [data(dtype, (comm.size * count, *op.shape), rank, low) for rank in range(comm.size)]
        ran |= every_way(comm, op, xs, functools.partial(functools.reduce, np.matmul))
    return ran


def records(comm: Any, dtype: Any) -> None:
    """Records that are chosen, and such that are filled."""
    xs = []
    for rank in range(comm.size):
        x = np.zeros(comm.size * 41, dtype)
        x["value"] = np.random.default_rng(rank).integers(0, 9, x.size)
        x["place"] = np.arange(x.size) + 1000 * rank
        xs.append(x)

    def largest(ys: list[Array]) -> Array:
        which = np.argmax([y["value"] for y in ys], axis=0)
        return np.array(ys)[which, np.arange(ys[0].size)]

    def summed(ys: list[Array]) -> Array:
        result = ys[-1].copy()
        result["value"] = sum(y["value"] for y in ys)
        return result

    every_way(comm, LARGER, xs, largest)
    every_way(comm, SUM_AND_LAST, xs, summed)


def uneven(comm: Any) -> None:
    """Blocks of unequal sizes, one of them empty, on three ranks."""
    counts = [3, 0, 2]
    m = np.random.default_rng(comm.rank).integers(-3, 4, (5, 2, 2))
    first = sum(counts[: comm.rank])
    want = functools.reduce(np.matmul, comm.all_gather(m))[first : first + counts[comm.rank]]
    assert np.array_equal(comm.reduce_scatterv(m, counts, MATRIX), want)


def raised(run: Any, n: int, call: Any) -> list[str]:
    """The texts of the errors that `call(comm)` raises on the ranks; `run` as `ranks.threads`."""

    def check(comm: Any) -> str:
        try:
            call(comm)
        except pc.CollectiveError as error:
            return f"{type(error).__name__}: {error}"
        raise AssertionError("nothing was raised")

    texts: list[str] = run(n, check)
    return texts
