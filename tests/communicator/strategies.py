"""Hypothesis strategies for calls."""

from __future__ import annotations

from typing import Any

import reference
from calls import LAYOUTS, WAYS, Call
from hypothesis import strategies as st

PRIMES = (2, 3, 5, 7, 11, 13, 17, 31, 61, 127, 251, 257, 509, 1021, 2053)
COUNTS = st.integers(0, 257) | st.sampled_from(PRIMES)
SHAPES = COUNTS.map(lambda n: (n,)) | st.lists(st.integers(0, 6), max_size=4).map(tuple)


@st.composite
def calls(draw: Any, size: int, *, ways: tuple[str, ...] = WAYS) -> Call:
    """A call that every rank of `size` makes."""
    verb = draw(st.sampled_from(reference.VERBS))
    dtype = draw(st.sampled_from(reference.DTYPES))
    reduces = verb in reference.REDUCING
    shape = draw(SHAPES)
    return Call(
        verb,
        draw(st.sampled_from((None, *reference.algorithms(verb, size)))),
        draw(st.sampled_from(reference.operators(dtype))) if reduces else "sum",
        dtype,
        shape if shape or verb != "reduce_scatter" else (1,),
        draw(st.integers(0, size - 1)) if verb in reference.ROOTED else 0,
        draw(st.sampled_from(LAYOUTS)),
        draw(st.sampled_from(("new", "in place", *LAYOUTS))),
        draw(st.sampled_from(ways)),
        draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )


@st.composite
def jobs(draw: Any, most: int) -> tuple[int, list[Call]]:
    """A number of ranks, and calls that they make one after the other."""
    size = draw(st.integers(1, most))
    return size, draw(st.lists(calls(size), min_size=1, max_size=8))
