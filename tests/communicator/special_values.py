"""Special values by collectives, on any ranks: zeros of both signs, subnormals, infinities, NaN, the ends of the range."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import reference
from reference import Array

import pycollectives as pc

INTEGERS = [name for name in reference.DTYPES if "int" in name]
FLOATS = [name for name in reference.DTYPES if reference.is_float(name)]


def specials(dtype: str) -> Array:
    """Zeros of both signs, the ends of the range, subnormals, infinities, NaN."""
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        found = [limits.min, limits.min + 1, -1, 0, 1, 2, 3, limits.max - 1, limits.max]
        return np.array([v for v in found if limits.min <= v <= limits.max], dtype=dtype)
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    least, normal, most = (float(getattr(info, n)) for n in ("smallest_subnormal", "smallest_normal", "max"))
    positive = [0.0, least, 2 * least, normal - least, normal, 1.0, 1.0 + float(info.eps), most, np.inf]
    return np.array([sign * v for v in positive for sign in (1, -1)] + [np.nan]).astype(dtype)


def lesser(a: Array, b: Array) -> Array:
    """IEEE 754-2019 minimum: NaN wins, -0 is below +0."""
    if a.dtype.kind in "iu":
        return np.minimum(a, b)
    zeros = np.where(np.signbit(a), a, b)
    return np.where((a == 0) & (b == 0), zeros, np.minimum(a, b))


def combined(op: str, a: Array, b: Array) -> Array:
    """`a op b`, computed in the accumulation type and rounded once."""
    dtype, wide = a.dtype, reference.accumulation(a.dtype.name)
    with np.errstate(all="ignore"):
        if op in ("min", "max"):
            x, y = (a, b) if a.dtype.kind in "iu" else (a.astype(np.float64), b.astype(np.float64))
            found = (
                lesser(x, y) if op == "min" else np.maximum(a, b) if a.dtype.kind in "iu" else -lesser(-x, -y)
            )
            return np.asarray(found).astype(dtype)
        both: dict[str, Any] = {
            "sum": np.add, "prod": np.multiply, "band": np.bitwise_and, "bor": np.bitwise_or,
            "bxor": np.bitwise_xor, "land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor,
        }  # fmt: skip
        x, y = a.astype(wide), b.astype(wide)
        if op.startswith("l"):
            x, y = x != 0, y != 0
        return np.asarray(both[op](x, y)).astype(dtype)


@lru_cache(maxsize=4)
def pairs(dtype: str) -> tuple[Array, Array, dict[str, Array]]:
    """All pairs of special values, and what each operator makes of them."""
    values = specials(dtype)
    first, second = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(values, values))
    operators = [op for op in reference.operators(dtype) if op not in ("avg", "scaled_sum")]
    return first, second, {op: combined(op, first, second) for op in operators}


def all_pairs(comm: Any, dtype: str, algorithms: Iterable[str]) -> None:
    """By two ranks."""
    *both, wanted = pairs(dtype)
    mine = both[comm.rank]
    for op, want in wanted.items():
        for name in algorithms:
            got = comm.all_reduce(mine, op, algorithm=name)
            assert reference.same(got, want), (op, name)
        prefix = comm.scan(mine, op)
        assert reference.same(prefix, want if comm.rank else mine), op
        padded = np.resize(mine, 2 * mine.size)
        assert reference.same(comm.reduce_scatter(padded, op), want), op


def averages_truncate(comm: Any, dtype: str, algorithms: Iterable[str]) -> None:
    """Those of integers divide the wrapped sum. By two ranks."""
    first, second, _ = pairs(dtype)
    with np.errstate(all="ignore"):
        total = (first + second).astype(dtype)
    want = reference._finished("avg", total, 2)
    for name in algorithms:
        got = comm.all_reduce((first, second)[comm.rank], "avg", algorithm=name)
        assert np.array_equal(got, want), name


def scaled_sums_saturate(comm: Any, dtype: str, algorithms: Iterable[str]) -> None:
    """Those of integers. By two ranks."""
    limits = np.iinfo(dtype)
    x = np.array([limits.max // 2, limits.min // 2, 3], dtype=dtype)
    for name in algorithms:
        got = comm.all_reduce(x, pc.scaled_sum(1000.0), algorithm=name)
        want = [limits.max, limits.min, min(6000, limits.max)]
        assert got.tolist() == want, name
        assert (comm.all_reduce(x, pc.scaled_sum(float("nan")), algorithm=name) == 0).all()


def small_floats_overflow(comm: Any, algorithms: Iterable[str]) -> None:
    """float8_e4m3fn has no infinity: what rounds beyond its largest value is NaN. The others become infinite. By two ranks."""
    for dtype, want in (
        ("float8_e4m3fn", np.nan),
        ("float8_e5m2", np.inf),
        ("float16", np.inf),
        ("bfloat16", np.inf),
    ):
        most = np.array([ml_dtypes.finfo(dtype).max] * 5, dtype=dtype)  # type: ignore[no-untyped-call]
        for name in algorithms:
            got = comm.all_reduce(most, algorithm=name).astype(np.float64)
            assert np.array_equal(got, np.full(5, want), equal_nan=True), (dtype, name)
            # ... but not on the way to an average, whose partial sums are float32.
            if dtype != "bfloat16":  # whose largest value is nearly that of float32
                average = comm.all_reduce(most, "avg", algorithm=name)
                assert (average == most).all(), (dtype, name)


def subnormals_stay(comm: Any, algorithms: Iterable[str]) -> None:
    """They are not flushed to zero."""
    for dtype in FLOATS:
        least = np.full(37, ml_dtypes.finfo(dtype).smallest_subnormal, dtype=dtype)  # type: ignore[no-untyped-call]
        for name in algorithms:
            got = comm.all_reduce(least, algorithm=name).astype(np.float64)
            assert (got == comm.size * least.astype(np.float64)).all() and got[0] > 0, (dtype, name)


def large_integers_are_exact(comm: Any, algorithms: Iterable[str]) -> None:
    """By two ranks."""
    for dtype, value in (("int64", 2**53 + 1), ("uint64", 2**63 + 5), ("int64", -(2**62) - 1)):
        x = np.array([value, value], dtype=dtype) if comm.rank == 0 else np.array([0, 1], dtype=dtype)
        for name in algorithms:
            assert comm.all_reduce(x, algorithm=name).tolist() == [value, value + 1], name
            assert comm.all_reduce(x, "max", algorithm=name)[0] == max(value, 0), name
