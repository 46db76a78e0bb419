"""`comm.neighbor_exchange`: halo exchange on grids of ranks, compared with numpy.roll."""

from __future__ import annotations

from typing import Any

import neighbor_ranks as todo
import pytest
from ranks import Pools, threads


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 8, 12])
def test_all_grids_on_threads(n: int) -> None:
    threads(n, todo.all_grids, 2 if n > 6 else 3)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_grids_on_processes(pools: Pools, n: int) -> None:
    pools(n).run(todo.all_grids, 2)


@pytest.mark.parametrize("dims", [(4,), (2, 2), (1, 4), (2, 1, 2)])
def test_shapes(pools: Pools, dims: tuple[int, ...]) -> None:
    threads(4, todo.shapes, dims)
    pools(4).run(todo.shapes, dims)


@pytest.mark.parametrize("dims", [(2, 2), (1, 4), (2, 3)])
def test_stencil(dims: tuple[int, int]) -> None:
    threads(dims[0] * dims[1], todo.stencil, dims, 10)


def test_refused() -> None:
    threads(4, todo.refused)


@pytest.mark.parametrize(
    ("theirs", "mine"),
    [
        ({"dims": (4, 1)}, {"dims": (1, 4)}),  # the same counts, other blocks
        ({}, {"dims": (4, 1)}),
        ({}, {"periodic": False}),
        ({}, {"periodic": (True, False)}),
        ({}, {"dtype": "i4"}),
        ({}, {"width": 4}),
        ({}, {"width": 0}),
    ],
)
def test_mismatch(theirs: dict[str, Any], mine: dict[str, Any]) -> None:
    threads(4, todo.mismatch, theirs, mine)
