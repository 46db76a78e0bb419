r"""Recursive doubling: in step k everyone exchanges all it has with the rank at distance 2^k.

    step 0   0 <-> 1   2 <-> 3   4 <-> 5   6 <-> 7
    step 1   0 <-> 2   1 <-> 3   4 <-> 6   5 <-> 7        sums are of runs of ranks, so operators need
    step 2   0 <-> 4   1 <-> 5   2 <-> 6   3 <-> 7        not commute

cost     all_reduce: log2 P (alpha + n (beta + gamma)); otherwise floor(log2 P) + 2 steps, see folding.py
         all_gather: log2 P alpha + (P-1)/P n beta; otherwise floor(log2 P) + 2 steps
source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005
"""

from __future__ import annotations

from ..schedule import Program, algorithm, log2_ceil
from .folding import fold


@algorithm("all_reduce", cost="log₂P (α + n (β + γ)); P ≠ 2^k: (⌊log₂P⌋ + 2) (α + n β)")
def recursive_doubling(p: Program) -> None:
    """In every step a sum covers twice as many ranks."""
    p.chunks(1)
    f = fold(p)
    with p.phase("fold"):
        for _ in p.steps(f.extra > 0):
            p.send(p.chunk(0), to=f.host)
            p.reduce(p.chunk(0), source=f.guest)
    with p.phase("doubling"):
        for step in p.steps(log2_ceil(f.hosts.size)):
            f.hosts.send(p.chunk(0), to=f.hosts.rank ^ (1 << step))
            f.hosts.reduce(p.chunk(0), source=f.hosts.rank ^ (1 << step))
    with p.phase("unfold"):
        p.send(p.chunk(0), to=f.guest)
        p.recv(p.chunk(0), source=f.host)


@algorithm("all_gather", name="recursive_doubling", cost="log₂P α + (P-1)/P n β; P ≠ 2^k: ⌊log₂P⌋ + 2 steps")
def recursive_doubling_all_gather(p: Program) -> None:
    """In every step everyone has twice as many blocks."""
    f = fold(p)
    with p.phase("fold"):
        for _ in p.steps(f.extra > 0):
            p.send(p.chunk(p.rank), to=f.host)
            p.recv(p.chunk(f.guest), source=f.guest)
    with p.phase("doubling"):
        for step in p.steps(log2_ceil(f.hosts.size)):
            width = 1 << step
            mine = f.hosts.rank & -width
            theirs = mine ^ width
            have, want = (p.chunk(f.first(a), f.first(a + width) - f.first(a)) for a in (mine, theirs))
            f.hosts.send(have, to=f.hosts.rank ^ width)
            f.hosts.recv(want, source=f.hosts.rank ^ width)
    with p.phase("unfold"):
        p.send(p.chunk(f.guest + 1, p.size - 1), to=f.guest)
        p.recv(p.chunk(p.rank + 1, p.size - 1), source=f.host)
