r"""Trees: binomial, and NCCL's double binary tree.

    binomial, 8 ranks         double binary tree, 8 ranks: two trees, each moves half of the data
         0                         0                                        7
       / | \                       |                                        |
      4  2  1                      4                                        3
     /|  |                       /   \      an inner rank of one          5   1
    6 5  3                      2     6     is a leaf of the other       / \ / \
    |                          / \   / \                                6  4 2  0
    7                         1   3 5   7

cost     binomial: ceil(log2 P) (alpha + n beta)
         double tree: 2 log2 P alpha + n beta per direction, pipelined
source   NCCL, src/graph/trees.cc; Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth
         broadcast, reduction and scan", Parallel Computing 2009
"""

from __future__ import annotations

from typing import Any

from ..schedule import NULL, Program, View, algorithm


def log2_ceil(n: int) -> int:
    """The least k with 2^k >= n."""
    return max(0, n - 1).bit_length()


def binary_tree(p: Program | View) -> tuple[Any, Any, Any]:
    """Parent and two children of every rank in NCCL's binary tree with root 0; NULL where there is none."""
    n, rank = p.size, p.rank
    low = rank & -rank
    up = (rank ^ low) | (low << 1)
    parent = p.select(rank != 0, p.select(up >= n, rank ^ low, up))
    first = p.select(low > 1, rank - (low >> 1))
    second, width = rank + (low >> 1), low >> 1
    for _ in range(log2_ceil(n)):  # beyond the last rank: the root of the next smaller subtree, if any
        beyond = second >= n
        second, width = p.select(beyond, rank + (width >> 1), second), p.select(beyond, width >> 1, width)
    second = p.select((low > 1) & (width > 0) & (second < n), second)
    top = 1 << log2_ceil(n) >> 1 if n > 1 else NULL  # the root's only child
    return parent, p.select(rank == 0, top, first), p.select(rank == 0, NULL, second)


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
        parent, *children = binary_tree(tree)
        with p.channel(c):
            with p.phase("reduce"):
                tree.reduce(p.chunk(0), source=p.peers(*children))
                tree.send(p.chunk(0), to=parent)
                p.step()
            with p.phase("broadcast"):
                tree.recv(p.chunk(0), source=parent)
                tree.send(p.chunk(0), to=p.peers(*children))


@algorithm("broadcast", name="double_binary_tree", cost="2 log₂P α + n β, pipelined")
def double_binary_tree_broadcast(p: Program) -> None:
    """The root sends a half down each tree."""
    _rooted(p, reduce=False)


@algorithm("reduce", name="double_binary_tree", cost="2 log₂P α + n (β + γ), pipelined")
def double_binary_tree_reduce(p: Program) -> None:
    """Each tree reduces its half towards the root."""
    _rooted(p, reduce=True)


def _rooted(p: Program, *, reduce: bool) -> None:
    """Both trees span the other ranks; the root is joined to the top of each and moves each half once."""
    n, root = p.size, p.root
    p.chunks(1)
    if n == 1:
        return
    place = (p.rank - root - 1) % n  # 0 .. n-2: the other ranks, n-1: the root
    others = p.renumber(n - 1, p.select(place < n - 1, place), lambda i: (i + root + 1) % n)
    for c, tree in enumerate(double_tree(others)):
        parent, *children = binary_tree(tree)
        above = p.select(tree.rank == 0, root, tree.real(parent))
        first, second = (tree.real(child) for child in children)
        at_root = place == n - 1
        below = p.peers(p.select(at_root, tree.real(0), first), p.select(at_root, NULL, second))
        with p.channel(c):
            if reduce:
                p.reduce(p.chunk(0), source=below)
                p.send(p.chunk(0), to=above)
            else:
                p.recv(p.chunk(0), source=above)
                p.send(p.chunk(0), to=below)


@algorithm("broadcast", name="binomial", cost="⌈log₂P⌉ (α + n β)")
def binomial_broadcast(p: Program) -> None:
    """In every step twice as many ranks have the data."""
    p.chunks(1)
    tree = p.renumber(p.size, (p.rank - p.root) % p.size, lambda i: (i + p.root) % p.size)
    for step in p.steps(log2_ceil(p.size)):
        width = 1 << (log2_ceil(p.size) - 1 - step)
        place, above = tree.rank % (2 * width), tree.rank + width
        tree.recv(p.chunk(0), source=p.select(place == width, tree.rank - width))
        tree.send(p.chunk(0), to=p.select((place == 0) & (above < p.size), above))


@algorithm("reduce", name="binomial", cost="⌈log₂P⌉ (α + n (β + γ))")
def binomial_reduce(p: Program) -> None:
    """In every step half of the ranks pass on their sum and are done."""
    p.chunks(1)
    tree = p.renumber(p.size, (p.rank - p.root) % p.size, lambda i: (i + p.root) % p.size)
    for step in p.steps(log2_ceil(p.size)):
        width = 1 << step
        place, above = tree.rank % (2 * width), tree.rank + width
        tree.reduce(p.chunk(0), source=p.select((place == 0) & (above < p.size), above))
        tree.send(p.chunk(0), to=p.select(place == width, tree.rank - width))
