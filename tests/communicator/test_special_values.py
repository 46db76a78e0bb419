"""Every statement of docs/numerics.md about single values: all pairs of special ones, in every dtype, operator and algorithm."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import ranks
import reference
from reference import Array

import pycollectives as pc
from pycollectives import _core

INTEGERS = [name for name in reference.DTYPES if "int" in name]
FLOATS = [name for name in reference.DTYPES if reference.is_float(name)]
ORDERLESS = ("min", "max", "land", "lor", "lxor")


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


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_all_pairs(dtype: str) -> None:
    values = specials(dtype)
    first, second = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(values, values))
    operators = [op for op in reference.operators(dtype) if op not in ("avg", "scaled_sum")]
    wanted = {op: combined(op, first, second) for op in operators}

    def body(comm: Any) -> None:
        mine = (first, second)[comm.rank]
        for op, want in wanted.items():
            for name in reference.algorithms("all_reduce", 2):
                got = comm.all_reduce(mine, op, algorithm=name)
                assert reference.same(got, want), (op, name)
            for name in reference.algorithms("reduce", 2):
                reduced = comm.reduce(mine, op, root=1, algorithm=name)
                assert comm.rank == 0 or reference.same(reduced, want), (op, name)
            prefix = comm.scan(mine, op)
            assert reference.same(prefix, want if comm.rank else mine), op
            padded = np.resize(mine, 2 * mine.size)
            assert reference.same(comm.reduce_scatter(padded, op), want), op

    ranks.threads(2, body)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_all_triples_where_the_order_does_not_matter(dtype: str) -> None:
    values = specials(dtype)
    columns = [np.ascontiguousarray(x.ravel()) for x in np.meshgrid(values, values, values)]
    operators = [op for op in reference.operators(dtype) if op in ORDERLESS or op.startswith("b")]
    wanted = {op: combined(op, combined(op, *columns[:2]), columns[2]) for op in operators}

    def body(comm: Any) -> None:
        for op, want in wanted.items():
            for name in reference.algorithms("all_reduce", 3):
                assert reference.same(comm.all_reduce(columns[comm.rank], op, algorithm=name), want), (
                    op,
                    name,
                )

    ranks.threads(3, body)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_averages_divide_the_wrapped_sum_and_truncate(dtype: str) -> None:
    values = specials(dtype)
    first, second = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        total = (first + second).astype(dtype)
    want = reference._finished("avg", total, 2)

    def body(comm: Any) -> None:
        for name in reference.algorithms("all_reduce", 2):
            got = comm.all_reduce((first, second)[comm.rank], "avg", algorithm=name)
            assert np.array_equal(got, want), name

    ranks.threads(2, body)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_scaled_sums_saturate(dtype: str) -> None:
    limits = np.iinfo(dtype)

    def body(comm: Any) -> None:
        x = np.array([limits.max // 2, limits.min // 2, 3], dtype=dtype)
        for name in reference.algorithms("all_reduce", 2):
            got = comm.all_reduce(x, pc.scaled_sum(1000.0), algorithm=name)
            want = [limits.max, limits.min, min(6000, limits.max)]
            assert got.tolist() == want, name
            assert (comm.all_reduce(x, pc.scaled_sum(float("nan")), algorithm=name) == 0).all()

    ranks.threads(2, body)


def test_overflow_of_small_floats() -> None:
    """float8_e4m3fn has no infinity: what rounds beyond its largest value is NaN. The others become infinite."""

    def body(comm: Any) -> None:
        for dtype, want in (
            ("float8_e4m3fn", np.nan),
            ("float8_e5m2", np.inf),
            ("float16", np.inf),
            ("bfloat16", np.inf),
        ):
            most = np.array([ml_dtypes.finfo(dtype).max] * 5, dtype=dtype)  # type: ignore[no-untyped-call]
            for name in reference.algorithms("all_reduce", 2):
                got = comm.all_reduce(most, algorithm=name).astype(np.float64)
                assert np.array_equal(got, np.full(5, want), equal_nan=True), (dtype, name)
                # ... but not on the way to an average, whose partial sums are float32.
                if dtype != "bfloat16":  # whose largest value is nearly that of float32
                    average = comm.all_reduce(most, "avg", algorithm=name)
                    assert (average == most).all(), (dtype, name)

    ranks.threads(2, body)


def test_subnormals_are_not_flushed() -> None:
    def body(comm: Any) -> None:
        for dtype in FLOATS:
            least = np.full(37, ml_dtypes.finfo(dtype).smallest_subnormal, dtype=dtype)  # type: ignore[no-untyped-call]
            for name in reference.algorithms("all_reduce", 3):
                got = comm.all_reduce(least, algorithm=name).astype(np.float64)
                assert (got == 3 * least.astype(np.float64)).all() and got[0] > 0, (dtype, name)

    ranks.threads(3, body)


def test_large_integers_are_exact() -> None:
    def body(comm: Any) -> None:
        for dtype, value in (("int64", 2**53 + 1), ("uint64", 2**63 + 5), ("int64", -(2**62) - 1)):
            x = np.array([value, value], dtype=dtype) if comm.rank == 0 else np.array([0, 1], dtype=dtype)
            for name in reference.algorithms("all_reduce", 2):
                assert comm.all_reduce(x, algorithm=name).tolist() == [value, value + 1], name
                assert comm.all_reduce(x, "max", algorithm=name)[0] == max(value, 0), name

    ranks.threads(2, body)


def test_combinations_that_do_not_exist_are_refused() -> None:
    def body(comm: Any) -> None:
        for dtype in reference.DTYPES:
            x = np.ones(4, dtype)
            refused = {"band", "bor", "bxor", "min", "max", "land", "lor", "lxor", "avg"} - set(
                reference.operators(dtype)
            )
            for op in sorted(refused):
                for call in (comm.all_reduce, comm.reduce, comm.reduce_scatter, comm.scan):
                    with pytest.raises(
                        pc.UnsupportedError, match=f"{op} is not defined for {dtype}; defined are: "
                    ):
                        call(np.tile(x, comm.size), op)
        comm.barrier()  # the communicator is as it was

    ranks.threads(2, body)


@pytest.mark.parametrize("simd", _core.SIMD)
def test_the_bits_do_not_depend_on_the_instruction_set(fresh: Any, simd: str) -> None:
    """Ranks on different processors agree, since every instruction set gives the same bits."""
    job = fresh(2, {"PYCOLLECTIVES_SIMD": simd})
    assert set(job.run(digest)) == {digest_of_plain()}


def digest(comm: Any) -> bytes:
    found = b""
    for dtype in reference.DTYPES:
        for op in ("sum", "prod"):
            xs = [
                reference.values(dtype, (97,), np.random.default_rng(r), exact=False)
                for r in range(comm.size)
            ]
            found += comm.all_reduce(xs[comm.rank], op, algorithm="one_shot").tobytes()
    return found


def digest_of_plain() -> bytes:
    found = b""
    for dtype in reference.DTYPES:
        for op in ("sum", "prod"):
            xs = [reference.values(dtype, (97,), np.random.default_rng(r), exact=False) for r in range(2)]
            found += reference.fold(op, xs).tobytes()
    return found
