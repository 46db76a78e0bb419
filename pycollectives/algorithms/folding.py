r"""Folding: how algorithms for powers of two run on any number of ranks.

    ranks     0 1   2 3   4   5   6        P = 7 = 4 + 3: the first 2 x 3 ranks pair up, one guest each
    hosts     0     1     2       3        leaves its data with its host and gets the result in the end

source   Rabenseifner and Traeff, "More efficient reduction algorithms for non-power-of-two number of
         processors in message-passing parallel systems", EuroPVM/MPI 2004
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..schedule import Program, View


@dataclass(frozen=True)
class Fold:
    """The hosts as a view of 2^k ranks in rank order. The root is always a host.

    `guest` is the rank that a host stands for beside itself, `host` the rank where a guest has left its data
    (NULL for all others), `extra` the number of guests.
    """

    hosts: View
    guest: Any
    host: Any
    extra: int

    def first(self, host: Any) -> Any:
        """The first of the ranks that a host stands for: those of hosts a..b-1 are first(a)..first(b)-1."""
        return host + np.minimum(host, self.extra)


def fold(p: Program) -> Fold:
    """Hosts and guests of all ranks."""
    power = 1 << (p.size.bit_length() - 1)
    extra, root = p.size - power, p.root
    paired, pair = p.rank < 2 * extra, p.rank // 2
    host = p.select(pair == root // 2, root, 2 * pair)  # of each pair

    def real(i: Any) -> Any:
        return p.select(i >= extra, i + extra, p.select(i == root // 2, root, 2 * i))

    stays = ~paired | (p.rank == host)
    number = p.select(stays, p.select(paired, pair, p.rank - extra))
    other = p.select(paired, p.rank ^ 1)
    return Fold(p.renumber(power, number, real), p.select(stays, other), p.select(~stays, other), extra)
