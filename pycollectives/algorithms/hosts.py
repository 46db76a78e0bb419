"""What algorithms for several hosts are composed of: the ranks of one host, and ranks of one place on all hosts.

    ranks on hosts   0 1 2 | 3 4 5       inside: {0 1 2} and {3 4 5}
    their places     0 1 2 | 0 1 2       across: {0 3}, {1 4} and {2 5}; the leaders are those of place 0

Ranks of one host need not be neighbours. Where all hosts have equally many ranks a composition has one view for all of
them, else one for each.

source   Träff and Rougier, MPI Collectives and Datatypes for Hierarchical All-to-all Communication, 2014 (the decomposition
         into ranks of one host and ranks of one place)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..schedule import Program, View


@dataclass(frozen=True)
class Hosts:
    """The ranks of a program by hosts. `members[h]`: those of host h in rank order."""

    program: Program
    members: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, p: Program, placement: tuple[int, ...] | None) -> Hosts:
        """By the host of every rank."""
        placement = placement or (0,) * p.size
        found: list[list[int]] = [[] for _ in range(max(placement) + 1)]
        for rank, host in enumerate(placement):
            found[host].append(rank)
        return cls(p, tuple(tuple(ranks) for ranks in found))

    def turned(self) -> Hosts:
        """The same hosts with their ranks in the opposite order."""
        return Hosts(self.program, tuple(ranks[::-1] for ranks in self.members))

    @property
    def count(self) -> int:
        """How many hosts there are."""
        return len(self.members)

    @property
    def even(self) -> bool:
        """Do all have equally many ranks?"""
        return len({len(ranks) for ranks in self.members}) == 1

    @property
    def order(self) -> list[int]:
        """All ranks, host by host."""
        return [rank for ranks in self.members for rank in ranks]

    @property
    def columns(self) -> list[list[int]]:
        """By place, the ranks of that place on all hosts; for an even placement."""
        return [list(ranks) for ranks in zip(*self.members, strict=True)]

    @property
    def shards(self) -> int:
        """The least number of parts that can be shared equally on every host."""
        return math.lcm(*(len(ranks) for ranks in self.members))

    def _of_rank(self, table: Any) -> Any:
        """The row of `table` (host by host) of every rank's host."""
        host = np.empty(self.program.size, dtype=np.int64)
        for number, ranks in enumerate(self.members):
            host[list(ranks)] = number
        return np.asarray(table)[host[self.program.rank]]

    def inside(self) -> list[View]:
        """The ranks of one host as views that together have all ranks."""
        if self.even:
            return [self.program.view(self._of_rank(self.members))]
        return [self.program.view(ranks) for ranks in self.members]

    def place(self) -> Any:
        """The place of every rank on its host."""
        place = np.empty(self.program.size, dtype=np.int64)
        for ranks in self.members:
            place[list(ranks)] = range(len(ranks))
        return place[self.program.rank]

    def across(self) -> View:
        """The ranks of one place on all hosts; for an even placement."""
        return self.program.view(np.asarray(self.columns)[self.place()])

    def leaders(self, root: int | None = None) -> View:
        """The first rank of every host, but the root where it is one of that host."""
        return self.program.view([root if root in ranks else ranks[0] for ranks in self.members])

    def leader_place(self, root: int | None = None) -> Any:
        """The place of the leader of every rank's host."""
        return self._of_rank([ranks.index(root) if root in ranks else 0 for ranks in self.members])

    def owners(self) -> list[tuple[View, Any]]:
        """Who carries which shard between the hosts: views of one rank per host, and the number of the shard."""
        if self.even:
            return [(self.across(), self.place())]
        n = self.shards
        return [
            (self.program.view([ranks[shard * len(ranks) // n] for ranks in self.members]), shard)
            for shard in range(n)
        ]
