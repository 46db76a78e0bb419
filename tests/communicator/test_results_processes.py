"""Executed results against NumPy, ranks as processes."""

from __future__ import annotations

import calls
import pytest
import reference
import strategies
from calls import Call
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import Pools

SIZES = [1, 2, 3, 4]


@pytest.mark.parametrize("size", SIZES)
def test_any_call(pools: Pools, size: int) -> None:
    @settings(max_examples=60)
    @given(st.lists(strategies.calls(size), min_size=1, max_size=12))
    def run(made: list[Call]) -> None:
        calls.agree(made, pools(size).run(calls.check_all, made))

    run()


@pytest.mark.parametrize("size", SIZES)
def test_every_dtype_in_every_verb(pools: Pools, size: int) -> None:
    made = [
        Call(
            verb,
            algorithm,
            "max" if dtype == "bool" else "sum",
            dtype,
            (257,),
            seed=i,
            root=i % size,
            into=into,
        )
        for verb in reference.VERBS
        for algorithm in reference.algorithms(verb, size)
        for i, dtype in enumerate(reference.DTYPES)
        for into in ("new", "in place", "reversed")
    ]
    calls.agree(made, pools(size).run(calls.check_all, made))


LARGE = [(2, 2_000_000, "uint8"), (2, 300_007, "float32"), (3, 400_009, "float32"), (3, 100_003, "complex128"),
         (4, 262_144, "bfloat16"), (4, 500_009, "int16")]  # fmt: skip


@pytest.mark.parametrize(("size", "count", "dtype"), LARGE)
def test_data_that_is_cut_into_many_slices(pools: Pools, size: int, count: int, dtype: str) -> None:
    made = [
        Call(
            verb,
            algorithm,
            dtype=dtype,
            shape=(count // size if verb in ("all_gather", "reduce_scatter") else count,),
            root=size - 1,
            into=into,
            exact=dtype != "float32",
        )
        for verb in reference.VERBS
        for algorithm in reference.algorithms(verb, size)
        for into in ("offset", "in place")
    ]
    calls.agree(made, pools(size).run(calls.check_all, made))
