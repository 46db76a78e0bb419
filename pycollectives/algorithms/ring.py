"""Rings: every rank talks to its right neighbour only.

        0 --> 1 --> 2 --> 3
        ^                 |          each step, every rank sends one chunk to the right
        +-----------------+

cost     reduce_scatter, all_gather: (P-1) alpha + (P-1)/P n beta      all_reduce: both, one after the other
source   Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..schedule import Program, View, algorithm


@algorithm("all_reduce", cost="2(P-1) α + 2(P-1)/P n β + (P-1)/P n γ")
def ring(p: Program) -> None:
    """Sums travel once around the ring, then the results do."""
    right, left = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    with p.phase("reduce-scatter"):
        for step in p.steps(p.size - 1):
            p.send(p.chunk((p.rank - step) % p.size), to=right)
            p.reduce(p.chunk((p.rank - step - 1) % p.size), source=left)
    with p.phase("all-gather"):
        for step in p.steps(p.size - 1):
            p.send(p.chunk((p.rank + 1 - step) % p.size), to=right)
            p.recv(p.chunk((p.rank - step) % p.size), source=left)


@algorithm("reduce_scatter", name="ring", cost="(P-1) α + (P-1)/P n (β + γ)")
def ring_reduce_scatter(p: Program) -> None:
    """The sum of chunk r starts at rank r + 1 and ends at rank r."""
    scatter_sums(p, p.chunk)


@algorithm("all_gather", name="ring", cost="(P-1) α + (P-1)/P n β")
def ring_all_gather(p: Program) -> None:
    """Everyone passes on what it received in the step before."""
    gather(p, p.chunk)


def scatter_sums(p: Program | View, chunk: Callable[[Any], Any]) -> None:
    """Around a ring of p: rank r ends with the sum of `chunk(r)`."""
    right, left = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    for step in p.steps(p.size - 1):
        p.send(chunk((p.rank - step - 1) % p.size), to=right)
        p.reduce(chunk((p.rank - step - 2) % p.size), source=left)


def gather(p: Program | View, chunk: Callable[[Any], Any]) -> None:
    """Around a ring of p: from each rank r's `chunk(r)` all chunks everywhere."""
    right, left = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    for step in p.steps(p.size - 1):
        p.send(chunk((p.rank - step) % p.size), to=right)
        p.recv(chunk((p.rank - step - 1) % p.size), source=left)
