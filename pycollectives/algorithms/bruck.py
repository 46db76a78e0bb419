r"""Bruck: logarithmically many steps for any number of ranks; in step k everyone talks at distance 2^k.

    all_gather    rank 0 of 5   step 0: 0            <- 1          it has  0 1
                                step 1: 0 1          <- 2 3                0 1 2 3
                                step 2: 0 1 2 3      <- 4                  0 1 2 3 4

    all_to_all    A block that has to travel d ranks to the right goes 2^k of them in step k, for every bit k
                  of d: slot d of the scratch holds it on its way.

cost     all_gather: ceil(log2 P) alpha + (P-1)/P n beta
         all_to_all: ceil(log2 P) alpha + n/2 log2 P beta
source   Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in
         multiport message-passing systems", IEEE TPDS 1997
"""

from __future__ import annotations

from ..schedule import Program, algorithm, log2_ceil


@algorithm("all_gather", cost="⌈log₂P⌉ α + (P-1)/P n β")
def bruck(p: Program) -> None:
    """Everyone has a run of blocks from its own on and doubles it."""
    for step in p.steps(log2_ceil(p.size)):
        distance = 1 << step
        blocks = min(distance, p.size - distance)
        left, right = (p.rank - distance) % p.size, (p.rank + distance) % p.size
        p.send(p.chunk(p.rank, blocks), to=left)
        p.recv(p.chunk(right, blocks), source=right)


@algorithm("all_to_all", name="bruck", cost="⌈log₂P⌉ α + n/2 log₂P β", even_only=True)
def bruck_all_to_all(p: Program) -> None:
    """Blocks are sorted by distance, moved bit by bit, and sorted by origin."""
    p.copy(p.input(p.rank, p.size), into=p.scratch(0, p.size))
    for step in p.steps(log2_ceil(p.size)):
        distance = 1 << step
        with_bit = p.blocks(distance, distance, 2 * distance, space="scratch")
        p.send(with_bit, to=(p.rank + distance) % p.size)
        p.recv(with_bit, source=(p.rank - distance) % p.size)
    p.copy(p.scratch(0, p.size), into=p.output(p.rank, p.size, step=-1))
