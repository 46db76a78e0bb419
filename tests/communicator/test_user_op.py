"""`pc.op(f)`: operators written in Python, on every verb that reduces, by every algorithm that can."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 and float8 as NumPy dtypes
import numpy as np
import pytest
from ranks import threads
from user_ops import (
    AFFINE,
    FLOATS,
    INTEGERS,
    JOINED,
    LAST,
    MATRIX,
    MATRIX3,
    PAIR,
    affine,
    algorithms,
    data,
    elements,
    every_way,
    fold,
    joined,
    last_set,
    left_fold,
    matrices,
    matrix_product,
    records,
)

import pycollectives as pc

pytest.importorskip("numba")


# -- elements --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS, "complex64", "complex128"])
def test_dtypes(dtype: str) -> None:
    threads(3, elements, dtype, (37,))


@pytest.mark.parametrize("n", [1, 2, 4, 5])
@pytest.mark.parametrize("count", [0, 1, 333])
def test_counts(n: int, count: int) -> None:
    threads(n, elements, "int32", (count,))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [2, 5])
def test_deterministic_is_the_left_fold_rounded_once(n: int, dtype: str) -> None:
    threads(n, left_fold, dtype, 5000, 777)


# -- blocks and records ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("op", "dtype"), [(MATRIX, "int64"), (MATRIX3, "int32")], ids=["2x2", "3x3"])
def test_matrices_in_rank_order(n: int, op: Any, dtype: str) -> None:
    ran = threads(n, matrices, op, dtype, (0, 1, 5, 101))[0]
    assert {("all_reduce", "one_shot"), ("all_reduce", "two_shot"), ("reduce_scatter", "direct")} <= ran


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize(("op", "dtype"), [(MATRIX, "float16"), (MATRIX3, "uint8")], ids=["2x2", "3x3"])
def test_matrices_in_many_slices(n: int, op: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVES_SEGMENT_BYTES", "4096")
    monkeypatch.setenv("PYCOLLECTIVES_POOL_BYTES", "262144")

    def check(comm: Any) -> None:
        count = 6007
        xs = [data(dtype, (comm.size * count, *op.shape), rank, low=0) for rank in range(comm.size)]
        if dtype == "float16":  # products of such matrices stay exact
            xs = [np.tril(np.minimum(x, 1)).astype(dtype) for x in xs]
        every_way(
            comm,
            op,
            xs,
            lambda ys: functools.reduce(
                np.matmul, [y.astype("f4" if y.dtype.kind == "f" else y.dtype) for y in ys]
            ).astype(dtype),
        )

    threads(n, check)


def test_large_arrays() -> None:
    def check(comm: Any) -> None:
        m = np.random.default_rng(comm.rank).integers(-2, 3, (120_001, 2, 2))
        want = functools.reduce(np.matmul, comm.all_gather(m))
        for name in algorithms(comm, "all_reduce", m, MATRIX):
            x = m.copy()
            assert np.array_equal(comm.all_reduce(x, MATRIX, algorithm=name, out=x), want)
        y = np.random.default_rng(comm.rank).integers(-2, 3, 1_000_003)
        want = functools.reduce(joined, comm.all_gather(y))
        for name in algorithms(comm, "all_reduce", y, JOINED):
            assert np.array_equal(comm.all_reduce(y, JOINED, algorithm=name), want)

    threads(3, check)


def test_large_blocks() -> None:
    big = pc.op(matrix_product, shape=(60, 60))  # 28,800 bytes

    def check(comm: Any) -> None:
        x = np.random.default_rng(comm.rank).integers(-2, 3, (12, 60, 60))
        assert np.array_equal(comm.all_reduce(x, big), functools.reduce(np.matmul, comm.all_gather(x)))

    threads(3, check)
    huge = pc.op(matrix_product, shape=(2000, 2000))
    with pytest.raises(pc.UnsupportedError, match="items of 32000000 bytes"):
        threads(2, lambda comm: comm.all_reduce(np.ones((1, 2000, 2000)), huge))


def test_items_longer_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long data are cut into blocks of 8 MiB at most, but an item is never cut."""
    monkeypatch.setenv("PYCOLLECTIVES_POOL_BYTES", str(256 << 20))

    def added(a: Any, b: Any, out: Any) -> None:
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                out[i, j] = a[i, j] + b[i, j]

    huge = pc.op(added, shape=(1100, 1000))

    def check(comm: Any) -> None:
        x = np.full((3, 1100, 1000), comm.rank + 1.0)
        for name in ("ring", "two_shot"):
            for _ in range(3):
                assert (comm.all_reduce(x, huge, algorithm=name) == 3).all()

    threads(2, check)


@pytest.mark.parametrize("dtype", [PAIR, np.dtype(PAIR.descr, align=True)], ids=["packed", "aligned"])
def test_records(dtype: Any) -> None:
    threads(4, records, dtype)


def test_memory_that_is_not_aligned() -> None:
    def check(comm: Any) -> None:
        raw = np.zeros(8 * 3001 + 1, np.uint8)
        x, out = raw[1:].view("f8"), np.zeros_like(raw)[1:].view("f8")
        x[:] = np.arange(3001) + comm.rank
        want = functools.reduce(affine, comm.all_gather(x))
        comm.all_reduce(x, AFFINE, out=out, deterministic=True)
        assert not x.flags.aligned and np.array_equal(out, want)
        assert np.array_equal(comm.all_reduce(x, AFFINE, out=x, deterministic=True), want)

    threads(3, check)


def test_strided_and_other_dtypes() -> None:
    latest = pc.op(lambda a, b: max(a, b), commutative=True)

    def check(comm: Any) -> None:
        x = data("int32", (50, 6), comm.rank)
        want = fold(last_set, list(comm.all_gather(x)))
        assert np.array_equal(comm.all_reduce(np.asfortranarray(x), LAST), want)
        out = np.zeros((50, 12), "int32")[:, ::2]
        assert comm.all_reduce(x, LAST, out=out) is out and np.array_equal(out, want)
        days = np.arange(9).astype("datetime64[D]") + comm.rank
        assert np.array_equal(comm.all_reduce(days, latest), days - comm.rank + comm.size - 1)
        assert comm.all_reduce(np.array(comm.rank + 1), LAST) == comm.size  # 0-d

    threads(3, check)
