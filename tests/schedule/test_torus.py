"""The torus: every grid of ranks, its steps and bytes, and where it is a ring."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pycollectives.algorithms.torus import shapes, squarest
from pycollectives.cost import footprint
from pycollectives.schedule import Algorithm, find
from pycollectives.schedule.verifier import verified

VERBS = ("all_reduce", "reduce_scatter", "all_gather")


def torus(verb: str, shape: tuple[int, ...]) -> Algorithm:
    return find(verb, f"torus({shape[0]}x{shape[1]})")


def test_shapes() -> None:
    assert shapes(12) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]
    assert [squarest(n) for n in (1, 2, 7, 12, 16, 18, 64, 72)] == [
        (1, 1), (1, 2), (1, 7), (3, 4), (4, 4), (3, 6), (8, 8), (8, 9)]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_every_grid(verb: str) -> None:
    for size in range(1, 17):
        for rows, columns in shapes(size):
            algorithm = torus(verb, (rows, columns))
            proof = verified(algorithm, size)
            assert proof.rank_identical
            assert proof.in_program_order
            both = 2 if verb == "all_reduce" else 1
            cost = footprint(algorithm, size)
            assert cost.steps == both * (rows + columns - 2)
            assert cost.sent == cost.received == both * Fraction(size - 1, size)
            assert proof.schedule.channels == (1 if 1 in (rows, columns) else 2)


@pytest.mark.parametrize("verb", VERBS)
def test_the_squarest_grid_is_the_default_and_primes_are_rings(verb: str) -> None:
    for size in (2, 7, 12, 13, 16):
        operations = find(verb, "torus").schedule(size).operations()
        assert operations == torus(verb, squarest(size)).schedule(size).operations()
        if size in (2, 7, 13):
            assert operations == find(verb, "ring").schedule(size).operations()


def test_one_half_begins_with_the_rows_and_the_other_with_the_columns() -> None:
    operations = torus("all_reduce", (2, 3)).schedule(6).operations()
    for rank, mine in operations.items():
        for channel in (0, 1):
            peers = [op.peers[0] for op in mine if op.channel == channel and op.kind == "send"]
            row, column = rank - rank % 3 + (rank + 1) % 3, (rank + 3) % 6
            assert peers == ([row] * 2 + [column] * 2 + [row] * 2, [column] + [row] * 4 + [column])[channel]
