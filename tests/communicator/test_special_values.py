"""Every statement of docs/numerics.md about single values: all pairs of special ones, in every dtype, operator and algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import ranks
import reference
import special_values
from special_values import FLOATS, INTEGERS, combined, pairs, specials

import pycollectives as pc
from pycollectives import _core

ORDERLESS = ("min", "max", "land", "lor", "lxor")


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_all_pairs(dtype: str) -> None:
    *both, wanted = pairs(dtype)

    def body(comm: Any) -> None:
        special_values.all_pairs(comm, dtype, reference.algorithms("all_reduce", 2))
        for op, want in wanted.items():
            for name in reference.algorithms("reduce", 2):
                reduced = comm.reduce(both[comm.rank], op, root=1, algorithm=name)
                assert comm.rank == 0 or reference.same(reduced, want), (op, name)

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
    ranks.threads(2, special_values.averages_truncate, dtype, reference.algorithms("all_reduce", 2))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_scaled_sums_saturate(dtype: str) -> None:
    ranks.threads(2, special_values.scaled_sums_saturate, dtype, reference.algorithms("all_reduce", 2))


def test_overflow_of_small_floats() -> None:
    ranks.threads(2, special_values.small_floats_overflow, reference.algorithms("all_reduce", 2))


def test_subnormals_are_not_flushed() -> None:
    ranks.threads(3, special_values.subnormals_stay, reference.algorithms("all_reduce", 3))


def test_large_integers_are_exact() -> None:
    ranks.threads(2, special_values.large_integers_are_exact, reference.algorithms("all_reduce", 2))


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
