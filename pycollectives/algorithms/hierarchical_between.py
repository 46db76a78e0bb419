r"""Hierarchies of hosts of equally many ranks, with another algorithm than a ring between the hosts.

    host 0    host 1    host 2    1  reduce-scatter inside: rank i has the sum of shard i of its host
    0   1     2   3     4   5     2  an all-reduce of shard i between the ranks that have it: any, which takes
    |   +-----|---+-----|---+        the shard for the whole data and these ranks for all
    +---------+---------+         3  all-gather inside

cost     two steps more than the algorithm between H hosts has, on n/k bytes; inside 2(k-1)/k n
source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005 (between hosts);
         Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", 2019
"""

from __future__ import annotations

from typing import Any

from ..schedule import EVEN_HOSTS, Algorithm, Program, View, algorithm
from .direct import one_shot
from .halving_doubling import halving_doubling
from .hosts import Hosts
from .recursive_doubling import recursive_doubling

Where = tuple[int, ...] | None


class Shard(View):
    """The ranks of a view with `count` chunks of the data from `first` on, for an algorithm that takes them for the whole."""

    def __init__(self, view: View, first: Any, count: int) -> None:
        super().__init__(view, view.size, view.rank, lambda peer: peer)
        self._first, self.nchunks = first, count

    root = 0

    def chunks(self, n: int) -> None:
        """See `Program.chunks`; they have been cut. Raises ValueError for another number."""
        if n != self.nchunks:
            raise ValueError(f"a shard of {self.nchunks} chunks cannot be cut into {n}")

    def chunk(self, first: Any, count: Any = 1, step: Any = 1) -> Any:
        """See `Program.chunk`, but it does not wrap."""
        return self._program.chunk(self._first + first, count, step)


def _with(between: Algorithm, pieces: int, p: Program, hosts: Where) -> None:
    """The same with another all-reduce between the hosts, which cuts a shard into `pieces`."""
    all_hosts = Hosts.of(p, hosts)
    (inside,), across = all_hosts.inside(), all_hosts.across()
    p.chunks(inside.size * pieces)
    mine, theirs = p.chunk(inside.rank * pieces, pieces), p.chunk(inside.others() * pieces, pieces)
    with p.phase("reduce-scatter"):
        inside.send(theirs, to=inside.others())
        inside.reduce(mine, source=inside.others())
        p.step()
    with p.phase("between hosts"):
        between(Shard(across, inside.rank * pieces, pieces))
        p.step()
    with p.phase("all-gather"):
        inside.send(mine, to=inside.others())
        inside.recv(theirs, source=inside.others())


@algorithm("all_reduce", cost="3 α + (H-1) n/k β between hosts, 2(k-1)/k n β inside", parameter=EVEN_HOSTS)
def hierarchical_one_shot(p: Program, hosts: Where = None) -> None:
    """One round between the hosts; of two of them it sends no more than any other."""
    _with(one_shot, 1, p, hosts)


@algorithm(
    "all_reduce",
    cost="(⌈log₂H⌉ + 2) α + ⌈log₂H⌉ n/k β between hosts, 2(k-1)/k n β inside",
    parameter=EVEN_HOSTS,
)
def hierarchical_recursive_doubling(p: Program, hosts: Where = None) -> None:
    """The fewest messages between the hosts."""
    _with(recursive_doubling, 1, p, hosts)


@algorithm(
    "all_reduce",
    cost="(2 log₂H + 2) α + 2(H-1)/H n/k β between hosts, 2(k-1)/k n β inside; H ≠ 2^k: < 4 n/k β",
    parameter=EVEN_HOSTS,
)
def hierarchical_halving_doubling(p: Program, hosts: Where = None) -> None:
    """As few bytes as the ring, in fewer rounds."""
    count = max(hosts or (0,)) + 1
    _with(halving_doubling, 1 << (count.bit_length() - 1), p, hosts)
