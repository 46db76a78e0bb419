r"""Pairwise exchange: in step k everyone sends k to the right and receives from k to the left.

    step 1   0 -> 1 -> 2 -> 3 -> 0
    step 2   0 -> 2 -> 0     1 -> 3 -> 1       every block goes straight to where it belongs
    step 3   0 -> 3 -> 2 -> 1 -> 0

cost     reduce_scatter: (P-1) alpha + (P-1)/P n (beta + gamma); all_to_all: (P-1) alpha + (P-1)/P n beta
source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005
"""

from __future__ import annotations

from ..schedule import Program, algorithm


@algorithm("reduce_scatter", cost="(P-1) α + (P-1)/P n (β + γ)")
def pairwise(p: Program) -> None:
    """Everyone adds what comes to its own block."""
    for step in p.steps(p.size - 1):
        right, left = (p.rank + 1 + step) % p.size, (p.rank - 1 - step) % p.size
        p.send(p.chunk(right), to=right)
        p.reduce(p.chunk(p.rank), source=left)


@algorithm("all_to_all", name="pairwise", cost="(P-1) α + (P-1)/P n β")
def pairwise_all_to_all(p: Program) -> None:
    """One block out, one block in."""
    for step in p.steps(p.size - 1):
        right, left = (p.rank + 1 + step) % p.size, (p.rank - 1 - step) % p.size
        p.send(p.input(right), to=right)
        p.recv(p.output(left), source=left)
    p.copy(p.input(p.rank), into=p.output(p.rank))
