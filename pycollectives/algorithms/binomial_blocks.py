r"""Binomial trees that carry blocks: a rank stands for the run of ranks from itself on that are below it.

         0              scatter: 0 sends blocks 4..7 to 4, then 2..3 to 2 while 4 sends 6..7 to 6, then ...
       / | \            gather: the same upwards
      4  2  1
     /|  |
    6 5  3
    |
    7

cost     ceil(log2 P) alpha + (P-1)/P n beta
source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..schedule import Program, View, algorithm, log2_ceil
from .binomial import edges, from_root


def run(tree: View, place: Any, width: int) -> Any:
    """The blocks from `place` on: `width`, or as many as there are."""
    return np.minimum(width, tree.size - place)


@algorithm("scatter", name="binomial", cost="⌈log₂P⌉ α + (P-1)/P n β")
def binomial_scatter(p: Program) -> None:
    """In every step a rank hands on the upper half of its blocks."""
    tree, last = from_root(p), log2_ceil(p.size) - 1
    for step in p.steps(last + 1):
        width = 1 << (last - step)
        parent, child = edges(tree, width)
        tree.recv(p.chunk(p.rank, run(tree, tree.rank, width)), source=parent)
        tree.send(p.chunk(p.rank + width, run(tree, child, width)), to=child)


@algorithm("gather", name="binomial", cost="⌈log₂P⌉ α + (P-1)/P n β")
def binomial_gather(p: Program) -> None:
    """In every step half of the ranks pass on all of their blocks and are done."""
    tree = from_root(p)
    for step in p.steps(log2_ceil(p.size)):
        width = 1 << step
        parent, child = edges(tree, width)
        tree.recv(p.chunk(p.rank + width, run(tree, child, width)), source=child)
        tree.send(p.chunk(p.rank, run(tree, tree.rank, width)), to=parent)
