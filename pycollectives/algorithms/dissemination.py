"""Dissemination barrier: in step k every rank tells the rank 2^k to its right.

    step 0   0 -> 1 -> 2 -> 3 -> 4 -> 0
    step 1   0 -> 2 -> 4 -> 1 -> 3 -> 0
    step 2   0 -> 4 -> 3 -> 2 -> 1 -> 0

cost     ceil(log2 P) alpha
source   Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", IJPP 1988
"""

from __future__ import annotations

from ..schedule import Program, algorithm, log2_ceil


@algorithm("barrier", cost="⌈log₂P⌉ α")
def dissemination(p: Program) -> None:
    """After step k everyone has heard of the 2^(k+1) - 1 ranks to its left."""
    p.chunks(1)
    for step in p.steps(log2_ceil(p.size)):
        p.send(p.chunk(0), to=(p.rank + (1 << step)) % p.size)
        p.reduce(p.chunk(0), source=(p.rank - (1 << step)) % p.size)
