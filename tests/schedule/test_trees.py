"""NCCL's double binary tree: its rule at known sizes, and its properties at every size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pycollectives.algorithms.double_tree import binary_tree, double_tree
from pycollectives.schedule import Program, log2_ceil
from pycollectives.schedule.values import plain, present_mask

NCCL = json.loads((Path(__file__).parents[1] / "data" / "nccl_trees.json").read_text())
Links = tuple[list[int | None], list[list[int]]]


def trees(n: int) -> list[Links]:
    """Parent and children of every real rank, for both trees."""
    program = Program(n, np.arange(n))

    def numbers(value: object) -> list[int | None]:
        there = np.broadcast_to(present_mask(value), n).tolist()
        return [int(v) if q else None for v, q in zip(np.broadcast_to(plain(value), n), there, strict=True)]

    found = []
    for tree in double_tree(program):
        parent, *children = (numbers(tree.real(link)) for link in binary_tree(tree))
        found.append((parent, [[c for c in pair if c is not None] for pair in zip(*children, strict=True)]))
    return found


def inner(links: Links) -> dict[int, list[int]]:
    return {rank: children for rank, children in enumerate(links[1]) if children}


@pytest.mark.parametrize(("n", "which"), [(14, 1), (12, 1), (12, 2), (13, 2)])
def test_nccl_rule(n: int, which: int) -> None:
    expected = {int(parent): children for parent, children in NCCL[str(n)][f"tree{which}"].items()}
    assert inner(trees(n)[which - 1]) == expected


@pytest.mark.parametrize(("n", "depth"), [(int(n), depth) for n, depth in NCCL["depth_of_tree1"].items()])
def test_depth(n: int, depth: int) -> None:
    assert max(depths(trees(n)[0])) == depth


def depths(links: Links) -> list[int]:
    """The distance of every rank from the root; checks that links agree and reach all, each once."""
    parent, children = links
    found: list[int | None] = [None] * len(parent)
    (root,) = (rank for rank, above in enumerate(parent) if above is None)
    level, depth = [root], 0
    while level:
        for rank in level:
            assert found[rank] is None
            found[rank] = depth
        for rank in level:
            assert all(parent[child] == rank for child in children[rank])
        level, depth = [child for rank in level for child in children[rank]], depth + 1
    assert None not in found
    return [d for d in found if d is not None]


def test_properties_at_every_size() -> None:
    for n in range(1, 1201):
        both = trees(n)
        for links in both:
            assert max(depths(links)) <= log2_ceil(n)
        first, second = both
        assert first[0][0] is None
        assert all(len(a) + len(b) <= 2 for a, b in zip(first[1], second[1], strict=True))
        twice = inner(first).keys() & inner(second).keys()
        if n > 1:
            assert twice == (set() if n % 2 == 0 else {0}), n
