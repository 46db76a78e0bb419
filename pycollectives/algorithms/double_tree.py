r"""NCCL's double binary tree: two trees, each moves half of the data.

         0                       7
         |                       |
         4                       3            an inner rank of one tree
       /   \                   /   \          is a leaf of the other, so
      2     6                 5     1         every rank sends and receives
     / \   / \               / \   / \        about as much as the others
    1   3 5   7             6   4 2   0

cost     2 log2 P alpha + n beta per direction, pipelined; P odd: one rank is an inner one of both trees
source   NCCL, src/graph/trees.cc, after Sanders, Speck and Traeff, see two_tree.py
"""

from __future__ import annotations

from typing import Any

from ..schedule import NULL, Program, View, algorithm, log2_ceil, select


def above(rank: Any, n: int) -> Any:
    """The parent of rank > 0: the multiple of four times its lowest bit beside it that is below n."""
    low = rank & -rank
    up = (rank ^ low) | (low << 1)
    return select(up >= n, rank ^ low, up)


def binary_tree(p: Program | View) -> tuple[Any, Any, Any]:
    """Parent and two children of every rank in NCCL's binary tree with root 0; NULL where there is none."""
    n, rank = p.size, p.rank
    low = rank & -rank
    first = p.select(low > 1, rank - (low >> 1))
    second, width = rank + (low >> 1), low >> 1
    for _ in range(log2_ceil(n)):  # beyond the last rank: the root of the next smaller subtree, if any
        beyond = second >= n
        second, width = p.select(beyond, rank + (width >> 1), second), p.select(beyond, width >> 1, width)
    second = p.select((low > 1) & (width > 0) & (second < n), second)
    top = 1 << log2_ceil(n) >> 1 if n > 1 else NULL  # the root's only child
    children = p.select(rank == 0, top, first), p.select(rank == 0, NULL, second)
    return p.select(rank > 0, above(rank, n)), *children


def double_tree(p: Program | View) -> tuple[View, View]:
    """The two trees as views: tree 2 is the mirror image (even sizes) or shifted by one rank (odd sizes)."""
    n = p.size
    first = p.renumber(n, p.rank, lambda i: i)
    if n % 2 == 0:
        return first, p.renumber(n, n - 1 - p.rank, lambda i: n - 1 - i)
    return first, p.renumber(n, (p.rank - 1) % n, lambda i: (i + 1) % n)


@algorithm("all_reduce", cost="4 log₂P α + 2 n β + n γ, pipelined")
def double_binary_tree(p: Program) -> None:
    """Each tree reduces its half towards its root, which sends the result back down."""
    p.chunks(1)
    for c, tree in enumerate(double_tree(p)):
        with p.channel(c):
            up_and_down(tree, *binary_tree(tree))


def up_and_down(tree: View, parent: Any, *children: Any) -> None:
    """One all-reduce over a tree."""
    with tree.phase("reduce"):
        tree.reduce(tree.chunk(0), source=tree.peers(*children))
        tree.send(tree.chunk(0), to=parent)
        tree.step()
    with tree.phase("broadcast"):
        tree.recv(tree.chunk(0), source=parent)
        tree.send(tree.chunk(0), to=tree.peers(*children))
