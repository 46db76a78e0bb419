r"""Two trees numbered in order, each moves half of the data; operators need not commute.

    tree 1 of 8 ranks   7      tree 2   0         Left of a rank are lower ranks only, right of it
                       /                 \        higher ones, so sums are taken in rank order.
                     3                    4       Tree 2 is the mirror image of tree 1: no rank
                   /   \                /   \     is an inner one of both. An odd number of
                  1     5              2     6    ranks: the last one joins both trees as their
                 / \   / \            / \   / \   common root.
                0   2 4   6          1   3 5   7

         The edges have two colours such that a rank meets neither its parents nor its children by one colour:
         alternating between them it sends at most one message and receives one at a time.

cost     per direction (2 h + 2 k)(alpha + n/2k beta) in 2k segments, h ~ log2 P; and n gamma
source   Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
         Parallel Computing 35 (2009)
"""

from __future__ import annotations

from typing import Any

from ..schedule import Program, View, algorithm, log2_ceil, select
from .double_tree import above, binary_tree, up_and_down


def in_order_trees(p: Program) -> tuple[View, View]:
    """Both trees as views with ranks 1..n numbered in order; number 0 is the common root of an odd size."""
    n = p.size - p.size % 2
    first, second = (p.rank + 1) % (n + 1), (n - p.rank) % (n + 1)
    return (
        p.renumber(n + 1, first, lambda i: (i - 1) % p.size),
        p.renumber(n + 1, second, lambda i: n - i),
    )


def colour(number: Any, n: int) -> Any:
    """The colour of the edge from rank `number` of tree 1 to its parent; that of tree 2 is the other one."""
    inner = select(number % 2 == 0, number, n + 1 - number)  # the same rank where it is no leaf
    found: Any = select(inner > 0, 1, 1)
    for _ in range(log2_ceil(n + 1)):
        parent = above(inner, n + 1)
        flips = (parent > inner) ^ (n // 2 % 2 == 1)
        found, inner = select((parent > 0) & flips, 1 - found, found), select(parent > 0, parent, inner)
    return found


@algorithm("all_reduce", cost="4 log₂P α + 2 n β + n γ, pipelined")
def two_tree(p: Program) -> None:
    """Each tree reduces its half towards its root, which sends the result back down."""
    p.chunks(1)
    for c, tree in enumerate(in_order_trees(p)):
        parent, *children = binary_tree(tree)
        if p.size % 2 == 0:
            parent = p.select(parent > 0, parent)  # nobody is number 0
        edges = p.peers(*(colour(number, tree.size - 1) for number in (tree.rank, *children)))
        with p.channel(c, order=edges if c == 0 else 1 - edges):
            up_and_down(tree, parent, *children)
