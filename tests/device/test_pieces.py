"""A call in pieces: every element of every rank once, and the same calls on all ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycollectives import settings
from pycollectives.calls import Calls, Kind
from pycollectives.device.pieces import cut, merged
from pycollectives.ops import resolve
from pycollectives.schedule import COLLECTIVES

VERBS = tuple(verb for verb in COLLECTIVES if verb != "barrier")
UNEVEN = ("reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")
DTYPES = ("uint8", "float16", "float32", "complex128")


def kind_of(verb: str, size: int, dtype: str, counts: list[int]) -> Kind:
    """`counts` has a number, or one for every rank, or size * size of them."""
    contract = COLLECTIVES[verb]
    operator = resolve("sum", size) if contract.reduces else None
    root = size - 1 if contract.rooted else -1
    blocks: Any = None
    if len(counts) == 1:
        count = counts[0] * (size if contract.in_blocks and contract.input != "block" else 1)
    elif verb == "all_to_all":
        count, blocks = 0, tuple(tuple(counts[i * size : (i + 1) * size]) for i in range(size))
    else:
        count, blocks = sum(counts), tuple(counts)
    return Kind(verb, np.dtype(dtype), count, operator, root, counts=blocks)


@st.composite
def kinds(draw: st.DrawFn) -> tuple[int, Kind]:
    size, verb = draw(st.integers(1, 5)), draw(st.sampled_from(VERBS))
    lengths = st.integers(0, 5000)
    uneven = verb in UNEVEN and draw(st.booleans())
    many = 1 if not uneven else size * size if verb == "all_to_all" else size
    counts = draw(st.lists(lengths, min_size=many, max_size=many))
    return size, kind_of(verb, size, draw(st.sampled_from(DTYPES)), counts)


def all_calls(size: int) -> list[Calls]:
    decided = settings.decide(size, nested=True)
    return [Calls(rank, size, decided) for rank in range(size)]


@given(kinds(), st.integers(1, 20_000))
def test_every_element_once(case: tuple[int, Kind], most: int) -> None:
    size, kind = case
    made = [cut(calls, kind, most) for calls in all_calls(size)]
    for calls, pieces in zip(all_calls(size), made, strict=True):
        assert [p.kind for p in pieces] == [p.kind for p in made[0]], "all ranks make the same calls"
        blocks, sent, taken = calls.elements(kind)
        contract, n = COLLECTIVES[kind.verb], len(blocks)
        root = max(kind.root, 0)
        held = (
            sum(sent)
            if contract.apart
            else sum(blocks[i] for i in contract.input_chunks(calls.rank, size, root, n))
        )
        gets = (
            sum(taken)
            if contract.apart
            else sum(blocks[i] for i in contract.output_chunks(calls.rank, size, root, n))
        )
        for total, runs in ((held, [p.takes for p in pieces]), (gets, [p.gives for p in pieces])):
            seen = np.zeros(total, int)
            for first, n_elements in (run for piece in runs for run in piece):
                assert 0 <= first <= first + n_elements <= total
                seen[first : first + n_elements] += 1
            assert (seen == 1).all()
        for piece in pieces:  # the call of a piece has the sizes of its runs
            blocks, sent, taken = calls.elements(piece.kind)
            if contract.apart:
                assert [n for _, n in piece.takes] == sent and [n for _, n in piece.gives] == taken


@pytest.mark.parametrize("verb", VERBS)
def test_long_calls_are_cut(verb: str) -> None:
    """Pieces of about the size that is asked for, by the algorithm of the whole, whose sizes all ranks compare."""
    kind = kind_of(verb, 4, "float32", [1_000_000])
    calls = all_calls(4)[0]
    pieces = cut(calls, kind, 1 << 20)
    whole = kind.vector_bytes(4)
    assert len(pieces) == -(-whole // (1 << 20))
    assert all(abs(p.kind.vector_bytes(4) - whole / len(pieces)) <= 8 * 256 for p in pieces)
    assert {p.kind.named for p in pieces} == {calls.choose(kind).name}
    other = cut(calls, replace(kind, count=kind.count + 4 * 4096 * 4), 1 << 20)
    assert len({p.kind for p in pieces} & {p.kind for p in other}) == 0
    assert len({p.kind for p in pieces}) <= 2, "few kinds to prepare"


def test_short_calls_are_not() -> None:
    kind = kind_of("all_reduce", 2, "float32", [1000])
    (piece,) = cut(all_calls(2)[0], kind, 1 << 20)
    assert piece.kind is kind and piece.takes == piece.gives == ((0, 1000),)


def test_neighbours_are_joined() -> None:
    assert merged([(0, 3), (3, 0), (3, 4), (9, 1)]) == [(0, 7), (9, 1)]
    assert merged([(5, 0)]) == []
