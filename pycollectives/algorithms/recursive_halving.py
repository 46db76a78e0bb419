r"""Recursive halving: exchange one half of the blocks with a far rank, then a quarter with a nearer one, ...

    step 0   0 <-> 4   1 <-> 5   2 <-> 6   3 <-> 7        0 keeps blocks 0..3 and sends 4..7
    step 1   0 <-> 2   1 <-> 3   4 <-> 6   5 <-> 7        0 keeps blocks 0..1
    step 2   0 <-> 1   2 <-> 3   4 <-> 5   6 <-> 7        0 keeps block 0

cost     log2 P alpha + (P-1)/P n (beta + gamma)
         P not a power of two (folding.py): (floor(log2 P) + 2) alpha + about 2 n (beta + gamma)
source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005
"""

from __future__ import annotations

from ..schedule import Program, algorithm, log2_ceil
from .folding import fold


@algorithm("reduce_scatter", cost="log₂P α + (P-1)/P n (β + γ); P ≠ 2^k: ⌊log₂P⌋ + 2 steps, ≈ 2 n (β + γ)")
def recursive_halving(p: Program) -> None:
    """Everyone keeps the half with its own block."""
    f = fold(p)
    with p.phase("fold"):
        for _ in p.steps(f.extra > 0):
            p.send(p.chunk(0, p.size), to=f.host)
            p.reduce(p.chunk(0, p.size), source=f.guest)
    with p.phase("halving"):
        for step in p.steps(log2_ceil(f.hosts.size)):
            width = f.hosts.size >> (step + 1)
            mine = f.hosts.rank & -width
            theirs = mine ^ width
            keep, give = (p.chunk(f.first(a), f.first(a + width) - f.first(a)) for a in (mine, theirs))
            f.hosts.send(give, to=f.hosts.rank ^ width)
            f.hosts.reduce(keep, source=f.hosts.rank ^ width)
    with p.phase("unfold"):
        p.send(p.chunk(f.guest), to=f.guest)
        p.recv(p.chunk(p.rank), source=f.host)
