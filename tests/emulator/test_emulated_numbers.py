"""Types, operators and layouts by the CUDA kernels: the same bits as on the CPU."""

from __future__ import annotations

from typing import Any

import calls
import emulated
import pytest
import reference
import strategies
from calls import Call
from hypothesis import given, settings

from pycollectives import device

ALGORITHMS = ("two_shot", "ring", "recursive_doubling", "double_binary_tree")


def reductions(dtype: str) -> list[Call]:
    """Every operator of a dtype, by algorithms with n-ary, fused and staged reductions; odd lengths."""
    found = []
    for i, op in enumerate(reference.operators(dtype)):
        for k, algorithm in enumerate(ALGORITHMS):
            exact = (i + k) % 2 == 0 or op == "prod"
            shape = (29 + 16 * k,)
            into = ("new", "in place", "offset", "strided")[k]
            found.append(Call("all_reduce", algorithm, op, dtype, shape, into=into, exact=exact, seed=i))
    return found


@pytest.mark.parametrize("any_kernel", [False, True])
@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_every_operator(dtype: str, any_kernel: bool) -> None:
    made = reductions(dtype)
    digests = emulated.run(3, calls.check_all, made, options=device.emulated(any_kernel=any_kernel))
    calls.agree(made, digests)


@pytest.mark.parametrize("any_kernel", [False, True])
@pytest.mark.parametrize("protocol", ["simple", "ll", "ll128"])
def test_every_protocol(protocol: str, any_kernel: bool) -> None:
    """With every operator of every type, which `test_every_operator` leaves to chance."""
    made = [
        Call("all_reduce", ("two_shot", "ring")[i % 2], op, dtype, (83,), exact=op == "prod", seed=i)
        for dtype in reference.DTYPES
        for i, op in enumerate(reference.operators(dtype))
    ]
    digests = emulated.run(3, calls.check_all, made, options=device.emulated(protocol, any_kernel=any_kernel))
    calls.agree(made, digests)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_deterministic(dtype: str) -> None:
    """The left fold in rank order, to the bit, as on the CPU."""
    made = [
        Call("all_reduce", None, "sum", dtype, (n,), exact=False, deterministic=True, seed=n)
        for n in (1, 67, 501)
    ]
    emulated.run(4, calls.check_all, made)


@settings(max_examples=60)
@given(strategies.jobs(4))
def test_any_call(job: tuple[int, list[Call]]) -> None:
    size, made = job
    digests: list[Any] = emulated.run(size, calls.check_all, made)
    calls.agree(made, digests)
