"""The data of the correctness column: predictable, and no two chunks alike."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pycollectives.bench import data
from pycollectives.bench.cases import cases, parse_sizes
from pycollectives.bench.distance import name
from pycollectives.bench.measure import busbw_factor

DTYPES = ["int8", "uint64", "bool", "float32", "float16", "bfloat16", "float8_e4m3fn", "complex64"]


def kind(dtype: str) -> np.dtype[np.generic]:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def vector(table: np.ndarray, count: int, start: int = 0) -> np.ndarray:
    found = np.empty(count, table.dtype)
    data.fill(found, table, start)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [2, 8])
@pytest.mark.parametrize("chunk", [128, 1 << 12, data.PERIOD])
def test_swapped_chunks_are_wrong(dtype: str, size: int, chunk: int) -> None:
    tables = data.tables("sum", kind(dtype), size)
    for table in (*tables.inputs, tables.reduced(range(size)), tables.reduced(range(1, size))):
        found = vector(table, 4 * chunk)
        assert data.count_wrong(found, table) == 0
        for a in range(4):
            for b in range(a):
                swapped = found.reshape(4, chunk).copy()
                swapped[[a, b]] = swapped[[b, a]]
                assert data.count_wrong(swapped.reshape(-1), table) > 10


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_rank_that_counts_twice_or_not_is_wrong(dtype: str) -> None:
    tables = data.tables("sum", kind(dtype), 4)
    inputs, reduced = tables.inputs, tables.reduced(range(4))
    wide = np.complex128 if kind(dtype).kind == "c" else np.float64
    for rank in range(4):
        others = [inputs[r].astype(wide) for r in range(4) if r != rank]
        without = sum(others)
        twice = without + 2 * inputs[rank].astype(wide)
        if dtype != "bool":
            assert np.count_nonzero(twice.astype(reduced.dtype) != reduced) > data.PERIOD // 10
        assert np.count_nonzero(without.astype(reduced.dtype) != reduced) > data.PERIOD // 10


def test_vector_is_one_whatever_part_is_asked_for() -> None:
    table = data.tables(None, kind("int32"), 2).inputs[1]
    whole = vector(table, 5 * data.PERIOD + 11)
    for start, count in ((0, 1), (data.PERIOD - 1, 2), (3 * data.PERIOD + 5, 2 * data.PERIOD), (7, 0)):
        assert np.array_equal(vector(table, count, start), whole[start : start + count])
        assert data.count_wrong(whole[start : start + count], table, start) == 0


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
@pytest.mark.parametrize("dtype", ["int32", "float64", "float16"])
def test_expected_is_numpys(op: str, dtype: str) -> None:
    tables = data.tables(op, kind(dtype), 5)
    inputs, reduced = tables.inputs, tables.reduced(range(5))
    with_numpy = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "avg": np.add}
    total = with_numpy[op].reduce(inputs.astype(np.float64))
    if op == "avg":
        total = np.trunc(total / 5) if dtype == "int32" else total / 5
    assert np.array_equal(reduced, total.astype(dtype)) and len(np.unique(reduced)) > 3


def test_sizes() -> None:
    assert parse_sizes("8:64M:x8") == [8 * 8**i for i in range(8)]
    assert parse_sizes("8,1K, 1.5M,2GiB") == [8, 1024, 3 << 19, 2 << 30]
    assert parse_sizes("1M:3M:+1M") == [1 << 20, 2 << 20, 3 << 20]
    assert parse_sizes("3:10:x1.5") == [3, 4, 6, 9]


def test_sizes_are_whole_blocks() -> None:
    found = cases(["reduce_scatter", "all_reduce"], ["auto"], [kind("float32")], "sum", [8, 10, 12, 13], 3)
    assert [(c.collective, c.count, c.nbytes) for c in found] == [
        ("reduce_scatter", 3, 12),
        ("reduce_scatter", 6, 24),
        ("all_reduce", 2, 8),
        ("all_reduce", 3, 12),
        ("all_reduce", 4, 16),
    ]


def test_definitions() -> None:
    factors = {
        "all_reduce": 1.5,
        "reduce_scatter": 0.75,
        "all_gather": 0.75,
        "all_to_all": 0.75,
        "broadcast": 1,
    }
    assert {verb: busbw_factor(verb, 4) for verb in factors} == factors
    assert [name(ns) for ns in (None, 50.0, 300.0, 5000.0)] == ["-", "near", "far", "shared"]
