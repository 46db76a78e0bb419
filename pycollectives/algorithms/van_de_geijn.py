r"""van de Geijn's broadcast: scatter the data, then gather it everywhere.

    root  0 1 2 3      scatter     0 | 1 | 2 | 3      all-gather     0 1 2 3 | 0 1 2 3 | 0 1 2 3 | 0 1 2 3
                      (binomial)                        (ring)

    A rank that has handed on blocks in the scatter still has them: the ring leaves them out, so that every
    rank but the root receives each block once.

cost     (ceil(log2 P) + P - 1) alpha + 2(P-1)/P n beta
source   Barnett et al., "Interprocessor collective communication library (InterCom)", SHPCC 1994; Thakur,
         Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..schedule import Program, algorithm
from .binomial_blocks import binomial_scatter


@algorithm("broadcast", cost="(⌈log₂P⌉ + P-1) α + 2(P-1)/P n β")
def scatter_all_gather(p: Program) -> None:
    """Each rank's block goes around the ring as far as it is needed."""
    right, left = (p.rank + 1) % p.size, (p.rank - 1) % p.size

    def held(rank: Any) -> Any:
        """How many blocks from its own on a rank has after the scatter."""
        place = (rank - p.root) % p.size
        return p.select(place == 0, p.size, np.minimum(place & -place, p.size - place))

    with p.phase("scatter"):
        binomial_scatter(p)
    with p.phase("all-gather"):
        wanted, wants = held(right), held(p.rank)
        for step in p.steps(p.size - 1):
            distance = p.size - 1 - step  # of the block from the receiver's own
            p.send(p.chunk((p.rank - step) % p.size), to=p.select(distance >= wanted, right))
            p.recv(p.chunk((left - step) % p.size), source=p.select(distance >= wants, left))
