r"""Rabenseifner's halving and doubling: exchange halves, then quarters, ... of the data; then the way back.

    halving    step 0   0 <-> 1   2 <-> 3   halves        rank 0 keeps  ########........
               step 1   0 <-> 2   1 <-> 3   quarters                    ####............
    doubling   step 2   0 <-> 2   1 <-> 3   quarters                    ########........
               step 3   0 <-> 1   2 <-> 3   halves                      ################

    Near ranks first: every sum is of a run of ranks, so operators need not commute. A reduce gathers in place
    of doubling. Of the pairs of folding.py each rank reduces one half first.

cost     2 log2 P alpha + 2(P-1)/P n beta + (P-1)/P n gamma
         P' < P < 2 P': all_reduce (3 + 2 log2 P') alpha + (4 - 2/P') n beta + (3/2 - 1/P') n gamma
source   Rabenseifner, "Optimization of collective reduction operations", ICCS 2004
"""

from __future__ import annotations

from typing import Any

from ..schedule import Program, View, algorithm, log2_ceil
from .folding import Fold, fold


@algorithm("all_reduce", cost="2 log₂P α + 2(P-1)/P n β + (P-1)/P n γ; P ≠ 2^k: 2⌊log₂P⌋ + 3 steps, < 4 n β")
def halving_doubling(p: Program) -> None:
    """Reduce-scatter by halving, all-gather by doubling."""
    f = fold(p)
    hosts, first, width = _halving(p, f)
    with p.phase("doubling"):
        for step in p.steps(log2_ceil(hosts.size)):
            peer = hosts.rank ^ (hosts.size >> (step + 1))
            hosts.send(p.chunk(first, width), to=peer)
            hosts.recv(p.chunk(first ^ width, width), source=peer)
            first, width = first & ~width, 2 * width
    with p.phase("unfold"):
        p.send(p.chunk(0, p.nchunks), to=f.guest)
        p.recv(p.chunk(0, p.nchunks), source=f.host)


@algorithm("reduce", cost="2 log₂P α + 2(P-1)/P n β + (P-1)/P n γ; P ≠ 2^k: 2⌊log₂P⌋ + 2 steps")
def rabenseifner(p: Program) -> None:
    """Reduce-scatter by halving, then a gather: who is farther from the root sends and is done."""
    hosts, first, width = _halving(p, fold(p))
    with p.phase("gather"):
        for step in p.steps(log2_ceil(hosts.size)):
            distance = hosts.size >> (step + 1)
            far = (hosts.rank ^ hosts.root) // distance
            hosts.send(p.chunk(first, width), to=p.select(far == 1, hosts.rank ^ distance))
            hosts.recv(p.chunk(first ^ width, width), source=p.select(far == 0, hosts.rank ^ distance))
            first, width = first & ~width, 2 * width


def _halving(p: Program, f: Fold) -> tuple[View, Any, int]:
    """The hosts, and the run of chunks (first, width) whose sum each of them has in the end."""
    hosts, n = f.hosts, f.hosts.size
    p.chunks(n)
    with p.phase("fold"):
        for _ in p.steps(f.extra > 0):  # the host reduces the lower half, the guest the upper one
            for peer, mine in ((f.guest, 0), (f.host, n // 2)):
                p.send(p.chunk(n // 2 - mine, n // 2), to=peer)
                p.reduce(p.chunk(mine, n // 2), source=peer)
            p.step()
            p.send(p.chunk(n // 2, n // 2), to=f.host)
            p.recv(p.chunk(n // 2, n // 2), source=f.guest)
    first, width = 0 * hosts.rank, n
    with p.phase("halving"):
        for step in p.steps(log2_ceil(n)):
            width //= 2
            upper = ((hosts.rank >> step) & 1) * width
            hosts.send(p.chunk(first + (width - upper), width), to=hosts.rank ^ (1 << step))
            hosts.reduce(p.chunk(first + upper, width), source=hosts.rank ^ (1 << step))
            first = first + upper
    return hosts, first, width
