r"""Binomial trees: in every step twice as many ranks are reached, or half as many are left.

         0              broadcast: from the root down, the widest step first
       / | \            reduce: the same tree upwards, the narrowest step first
      4  2  1
     /|  |
    6 5  3
    |
    7

cost     broadcast: ceil(log2 P) (alpha + n beta)        reduce: + n gamma in every step
source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005
"""

from __future__ import annotations

from typing import Any

from ..schedule import Program, View, algorithm, log2_ceil


def from_root(p: Program) -> View:
    """The ranks counted from the root on."""
    return p.renumber(p.size, (p.rank - p.root) % p.size, lambda i: (i + p.root) % p.size)


def edges(tree: View, width: int) -> tuple[Any, Any]:
    """The parent of a rank and the child, `width` below and above it; NULL where there is none."""
    place, child = tree.rank % (2 * width), tree.rank + width
    parent = tree.select(place == width, tree.rank - width)
    return parent, tree.select((place == 0) & (child < tree.size), child)


@algorithm("broadcast", name="binomial", cost="⌈log₂P⌉ (α + n β)")
def binomial_broadcast(p: Program) -> None:
    """In every step twice as many ranks have the data."""
    p.chunks(1)
    tree, last = from_root(p), log2_ceil(p.size) - 1
    for step in p.steps(last + 1):
        parent, child = edges(tree, 1 << (last - step))
        tree.recv(p.chunk(0), source=parent)
        tree.send(p.chunk(0), to=child)


@algorithm("reduce", name="binomial", cost="⌈log₂P⌉ (α + n (β + γ))")
def binomial_reduce(p: Program) -> None:
    """In every step half of the ranks pass on their sum and are done."""
    p.chunks(1)
    tree = from_root(p)
    for step in p.steps(log2_ceil(p.size)):
        parent, child = edges(tree, 1 << step)
        tree.reduce(p.chunk(0), source=child)
        tree.send(p.chunk(0), to=parent)


@algorithm("all_reduce", cost="2 ⌈log₂P⌉ (α + n β) + ⌈log₂P⌉ n γ")
def reduce_broadcast(p: Program) -> None:
    """To rank 0 and back."""
    with p.phase("reduce"):
        binomial_reduce(p)
    with p.phase("broadcast"):
        binomial_broadcast(p)
