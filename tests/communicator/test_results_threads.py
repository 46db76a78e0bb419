"""Executed results against NumPy, ranks as threads: every dtype, operator and algorithm; any shape, root and layout."""

from __future__ import annotations

import calls
import pytest
import ranks
import reference
import strategies
from calls import Call
from hypothesis import given, settings


def everything(size: int) -> list[Call]:
    """Every operator of every dtype by every algorithm of every verb; floats also with data that has to be rounded."""
    made: list[Call] = []
    for verb in reference.VERBS:
        for algorithm in reference.algorithms(verb, size):
            for dtype in reference.DTYPES if verb != "barrier" else ["uint8"]:
                inexact = reference.is_float(dtype) or reference.is_complex(dtype)
                for op in reference.operators(dtype) if verb in reference.REDUCING else ["sum"]:
                    for exact in (
                        (True, False) if inexact and op in ("sum", "prod", "avg", "scaled_sum") else (True,)
                    ):
                        number = len(made)
                        made.append(
                            Call(verb, algorithm, op, dtype, (7,), number % size, exact=exact, seed=number)
                        )
    return made


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_every_dtype_operator_and_algorithm(size: int) -> None:
    made = everything(size)[:: 1 if size < 4 else 5]
    calls.agree(made, ranks.threads(size, calls.check_all, made))


@settings(max_examples=80)
@given(strategies.jobs(most=9))
def test_any_call(job: tuple[int, list[Call]]) -> None:
    size, made = job
    calls.agree(made, ranks.threads(size, calls.check_all, made))


@pytest.mark.parametrize("size", [2, 3, 7, 9])
def test_every_root(size: int) -> None:
    made = [
        Call(verb, algorithm, dtype="int32", shape=(513,), root=root, into=into, seed=root)
        for verb in reference.ROOTED
        for algorithm in reference.algorithms(verb, size)
        for root in range(size)
        for into in ("new", "in place", "offset")
    ]
    calls.agree(made, ranks.threads(size, calls.check_all, made))


@pytest.mark.parametrize("size", [4, 9])
def test_in_place_for_every_count(size: int) -> None:
    made = [
        Call(verb, algorithm, dtype="int16", shape=(count,), root=count % size, into="in place", seed=count)
        for verb in reference.VERBS
        if verb != "barrier"
        for count in range(0, 131, 1 if size == 4 else 13)
        for algorithm in reference.algorithms(verb, size)
    ]
    calls.agree(made, ranks.threads(size, calls.check_all, made))
