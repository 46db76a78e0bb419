"""The schedule language: ranks under other numbers, and algorithms inside others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from proving import Author, operations

from pycollectives.algorithms.binomial import binomial_reduce
from pycollectives.algorithms.ring import ring_all_gather
from pycollectives.schedule import (
    NULL,
    Algorithm,
    Program,
)
from pycollectives.schedule.values import rows
from pycollectives.schedule.verifier import verified


def pass_right(p: Any) -> None:
    """Every rank of a view sends chunk 0 to the next one, the last does not."""
    p.send(p.chunk(0), to=p.select(p.rank + 1 < p.size, p.rank + 1))
    p.recv(p.chunk(0), source=p.select(p.rank > 0, p.rank - 1))


def links(author: Author, size: int) -> set[tuple[int, int]]:
    """All (sender, receiver); checks that both ends agree, and that every rank alone does the same."""
    everyone = Algorithm("all_reduce", "test", author).schedule(size).operations()
    alone = [Algorithm("all_reduce", "test", author).schedule(size, [r]).operations() for r in range(size)]
    assert everyone == {rank: found for one in alone for rank, found in one.items()}
    sent = {(r, q) for r, mine in everyone.items() for op in mine if op.kind == "send" for q in op.peers}
    received = {(q, r) for r, mine in everyone.items() for op in mine if op.kind != "send" for q in op.peers}
    assert sent == received
    return sent


TORUS = np.arange(6).reshape(2, 3)  # two rows of three


def rows_of(p: Program) -> Any:
    return p.view(TORUS[p.rank // 3])


@pytest.mark.parametrize(
    ("author", "size", "expected"),
    [
        (lambda p: pass_right(p.view([2, 1, 0])), 3, {(2, 1), (1, 0)}),
        (lambda p: pass_right(p.renumber(3, 2 - p.rank, lambda i: 2 - i)), 3, {(2, 1), (1, 0)}),
        (lambda p: pass_right(p.renumber(3, (p.rank + 1) % 3, lambda i: (i - 1) % 3)), 3, {(2, 0), (0, 1)}),
        (lambda p: pass_right(rows_of(p)), 6, {(0, 1), (1, 2), (3, 4), (4, 5)}),
        (lambda p: pass_right(p.view(TORUS.T[p.rank % 3])), 6, {(0, 3), (1, 4), (2, 5)}),
        (lambda p: pass_right(p.view([3, 0])), 4, {(3, 0)}),
        (lambda p: pass_right(p.view([3, 1, 0]).view([2, 0])), 4, {(0, 3)}),
        (lambda p: pass_right(rows_of(p).view([2, 0])), 6, {(2, 0), (5, 3)}),
        (lambda p: pass_right(rows_of(p).renumber(3, 2 - rows_of(p).rank, lambda i: 2 - i)), 6,
         {(2, 1), (1, 0), (5, 4), (4, 3)}),
        (lambda p: pass_right(p.view([2])), 3, set()),
    ],
)  # fmt: skip
def test_views(author: Author, size: int, expected: set[tuple[int, int]]) -> None:
    assert links(author, size) == expected


def test_grid() -> None:
    assert links(lambda p: pass_right(p.grid(2, 3)[0]), 6) == {(0, 1), (1, 2), (3, 4), (4, 5)}
    assert links(lambda p: pass_right(p.grid(2, 3)[1]), 6) == {(0, 3), (1, 4), (2, 5)}
    inner = {(4, 3), (3, 2), (1, 0), (0, 5)}
    assert links(lambda p: pass_right(p.view([4, 3, 2, 1, 0, 5]).grid(2, 3)[0]), 6) == inner
    everyone = Algorithm(
        "all_reduce", "t", lambda p: p.grid(2, 3)[0].send(p.chunk(0), to=p.grid(2, 3)[0].others())
    )
    assert [op.peers for op in everyone.schedule(6).operations()[4]] == [(3, 5)]
    assert rows(Program(6, np.arange(6), root=4).grid(2, 3)[0].root, 6) == [[None]] * 3 + [[1]] * 3


def test_ranks_outside_a_view_do_nothing() -> None:
    def author(p: Program) -> None:
        some = p.view([2, 0])
        some.copy(p.chunk(0), into=p.scratch(0))
        some.combine(p.chunk(0), into=p.scratch(0), when=some.rank == 0)
        some.send(p.chunk(0), to=some.others())

    assert operations(author, 3) == {
        0: ["copy chunk 0 into scratch chunk 0", "send chunk 0 to 2"],
        1: [],
        2: ["copy chunk 0 into scratch chunk 0", "combine chunk 0 into scratch chunk 0", "send chunk 0 to 0"],
    }


def test_the_root_of_a_view() -> None:
    p = Program(6, np.arange(6), root=4)
    assert p.view([5, 4, 3]).root == 1
    assert p.view([0, 1]).root is NULL
    assert p.renumber(6, (p.rank - 4) % 6, lambda i: (i + 4) % 6).root == 0
    assert rows(rows_of(p).root, 6) == [[None]] * 3 + [[1]] * 3
    mirrored = Algorithm("reduce", "test", lambda p: binomial_reduce(p.view(np.arange(p.size)[::-1])))
    assert all(verified(mirrored, 5, root).steps == 3 for root in range(5))


def test_an_algorithm_inside_another() -> None:
    """A row-wise ring all-gather, then everything along the columns."""

    def author(p: Program) -> None:
        row, column = rows_of(p), p.view(TORUS.T[p.rank % 3])
        start = p.rank - p.rank % 3
        for step in p.steps(2):
            row.send(p.chunk(start + (row.rank - step) % 3), to=(row.rank + 1) % 3)
            row.recv(p.chunk(start + (row.rank - step - 1) % 3), source=(row.rank - 1) % 3)
        column.send(p.chunk(start, 3), to=column.others())
        column.recv(p.chunk(3 - start, 3), source=column.others())

    proof = verified(Algorithm("all_gather", "torus", author), 6)
    assert proof.steps == 3
    assert operations(lambda p: ring_all_gather(p.view([1, 0])), 2)[0] == [
        "send chunk 1 to 1",
        "recv chunk 0 from 1",
    ]
