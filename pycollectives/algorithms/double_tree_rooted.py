r"""The double binary tree for broadcast and reduce: the root joins the tops of two trees of the others.

             root                 each half of the data takes one of the trees (double_tree.py);
            /    \                the root sends, or receives, each half once
      tree 1      tree 2

cost     2 log2 P alpha + n beta (reduce: + n gamma), pipelined
source   as double_tree.py
"""

from __future__ import annotations

from ..schedule import NULL, Program, algorithm
from .double_tree import binary_tree, double_tree


@algorithm("broadcast", name="double_binary_tree", cost="2 log₂P α + n β, pipelined")
def double_binary_tree_broadcast(p: Program) -> None:
    """The root sends a half down each tree."""
    _rooted(p, reduce=False)


@algorithm("reduce", name="double_binary_tree", cost="2 log₂P α + n (β + γ), pipelined")
def double_binary_tree_reduce(p: Program) -> None:
    """Each tree reduces its half towards the root."""
    _rooted(p, reduce=True)


def _rooted(p: Program, *, reduce: bool) -> None:
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
