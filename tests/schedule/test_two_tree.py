"""The two trees of Sanders, Speck and Traeff: the properties that the paper proves, at every size."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from pycollectives.algorithms.double_tree import binary_tree
from pycollectives.algorithms.two_tree import in_order_trees, two_tree
from pycollectives.schedule import Program
from pycollectives.schedule.values import plain, present_mask
from pycollectives.schedule.verifier import verified

SIZES = [*range(1, 130), 254, 255, 256, 257, 510, 511, 1000, 1023, 1024, 1025]
Edges = dict[int, int | None]  # from every rank to its parent


def numbers(value: object, n: int) -> list[int | None]:
    there = np.broadcast_to(present_mask(value), n).tolist()
    return [int(v) if q else None for v, q in zip(np.broadcast_to(plain(value), n), there, strict=True)]


def parents(size: int) -> list[Edges]:
    """The parent of every rank in both trees, as the schedule has them."""
    found: list[Edges] = [dict.fromkeys(range(size)) for _ in range(2)]
    for rank, mine in two_tree.schedule(size).operations().items():
        for op in mine:
            if op.phase == "reduce" and op.kind == "send":
                (found[op.channel][rank],) = op.peers
    return found


def children(edges: Edges) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for rank, parent in edges.items():
        if parent is not None:
            found[parent].append(rank)
    return found


def subtree(rank: int, below: dict[int, list[int]]) -> list[int]:
    return [rank, *(r for child in below[rank] for r in subtree(child, below))]


def depth(edges: Edges) -> int:
    def above(rank: int) -> int:
        parent = edges[rank]
        return 0 if parent is None else 1 + above(parent)

    return max(above(rank) for rank in edges)


@pytest.mark.parametrize("size", SIZES)
def test_the_trees(size: int) -> None:
    both = parents(size)
    # h - 1 with h = ceil(log2(p + 2)) for the even number of ranks in the trees, and the common root
    height = (size + 1).bit_length() - 1 if size % 2 == 0 else (size.bit_length() if size > 1 else 0)
    for edges in both:
        assert sum(parent is None for parent in edges.values()) == 1
        below = children(edges)
        for rank in range(size):  # in order: one subtree of lower ranks and one of higher ones, side by side
            inside = [subtree(child, below) for child in below[rank]]
            for ranks in inside:
                assert sorted(ranks) == list(range(min(ranks), max(ranks) + 1))
                assert rank in (min(ranks) - 1, max(ranks) + 1)
            assert len([ranks for ranks in inside if ranks[0] < rank]) <= 1
            assert len(inside) <= 2
        assert depth(edges) == height
    inner = [set(children(edges)) for edges in both]
    if size % 2 == 0:
        assert not inner[0] & inner[1]
    elif size > 1:
        assert inner[0] & inner[1] == {size - 1}
        assert [edges[size - 1] for edges in both] == [None, None]
        assert all(len(children(edges)[size - 1]) == 1 for edges in both)
    if size > 2:
        assert 0 not in inner[0]  # a leaf of the first tree
        assert len(children(both[0]).get(size - 1, [])) < 2


@pytest.mark.parametrize("size", [2, 6, 14, 30, 62])
def test_a_complete_tree_lacks_the_rightmost_leaf(size: int) -> None:
    first = parents(size)[0]
    height = (size + 2).bit_length() - 1
    root = 2 ** (height - 1) - 1
    assert first[root] is None
    assert depth(first) == height - 1
    assert len(children(first)) == size // 2
    assert len(children(first)[size - 1]) == 1


@pytest.mark.parametrize("size", SIZES)
def test_the_colours_of_edges(size: int) -> None:
    """Both of a rank's parents by different colours, and all of its children (of both trees) too."""
    program = Program(size, np.arange(size))
    two_tree(program)
    meets: dict[int, list[int | None]] = defaultdict(list)
    parent_edges: dict[int, list[int | None]] = defaultdict(list)
    for edges, (tree, above) in zip(
        program.channel_order.values(), zip(in_order_trees(program), parents(size), strict=True), strict=True
    ):
        own, *below = ([row[k] for row in edges_of(edges, size)] for k in range(3))
        _, *named = binary_tree(tree)
        for rank in range(size):
            if above[rank] is not None:
                parent_edges[rank].append(own[rank])
            for child, colour in zip(named, below, strict=True):
                real = numbers(tree.real(child), size)[rank]
                if real is not None:
                    meets[rank].append(colour[rank])
    for rank in range(size):
        assert len(set(parent_edges[rank])) == len(parent_edges[rank]), rank
        assert len(set(meets[rank])) == len(meets[rank]) <= 2, rank


def edges_of(edges: object, size: int) -> list[list[int | None]]:
    columns = [numbers(edges[:, k], size) for k in range(3)]  # type: ignore[index]
    return [list(row) for row in zip(*columns, strict=True)]


def test_rank_order_at_every_size() -> None:
    for size in (*range(18, 28), 30, 39, 40):  # small ones: test_algorithms
        assert verified(two_tree, size).rank_order
