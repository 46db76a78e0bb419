r"""Flat: the root talks to every other rank at once.

          root
        / / \ \         broadcast, scatter: from the root; reduce, gather: to it
       1 2   3 4

cost     broadcast: alpha + (P-1) n beta; reduce: + (P-1) n gamma; scatter, gather: alpha + (P-1)/P n beta
order    reduce is the left fold in rank order: the same bits for any size and any chunking.
source   the "linear" algorithms of MPI libraries
"""

from __future__ import annotations

from typing import Any

from ..schedule import Program, algorithm


def root_and_leaves(p: Program) -> tuple[Any, Any]:
    """The root, as the leaves see it, and all leaves, as the root sees them; NULL elsewhere."""
    return p.select(p.rank != p.root, p.root), p.select(p.rank == p.root, p.others())


@algorithm("broadcast", name="flat", cost="α + (P-1) n β")
def flat_broadcast(p: Program) -> None:
    """The root publishes everything."""
    p.chunks(1)
    root, leaves = root_and_leaves(p)
    p.send(p.chunk(0), to=leaves)
    p.recv(p.chunk(0), source=root)


@algorithm("reduce", name="flat", cost="α + (P-1) n (β + γ)")
def flat_reduce(p: Program) -> None:
    """The root reduces everything."""
    p.chunks(1)
    root, leaves = root_and_leaves(p)
    p.send(p.chunk(0), to=root)
    p.reduce(p.chunk(0), source=leaves)


@algorithm("scatter", name="flat", cost="α + (P-1)/P n β")
def flat_scatter(p: Program) -> None:
    """The root sends everyone its block."""
    root, leaves = root_and_leaves(p)
    p.send(p.chunk(leaves), to=leaves)
    p.recv(p.chunk(p.rank), source=root)


@algorithm("gather", name="flat", cost="α + (P-1)/P n β")
def flat_gather(p: Program) -> None:
    """Everyone sends its block to the root."""
    root, leaves = root_and_leaves(p)
    p.send(p.chunk(p.rank), to=root)
    p.recv(p.chunk(leaves), source=leaves)
