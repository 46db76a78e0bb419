r"""Hierarchies of hosts: inside a host by shared memory, between hosts on shards of the data.

    host 0        host 1        1  reduce-scatter inside: rank i has the sum of shard i of its host
    0   1   2     3   4   5     2  all-reduce of shard i between the ranks that have it: one ring for each of them,
    |   |   |     |   |   |        so all local ranks use the network at once
    +---|---|-----+   |   |     3  all-gather inside
        +---|---------+   |
            +-------------+     k ranks on every host. Unequal hosts: the data is cut into lcm(k) shards, and a rank of
                                a small host carries several.

cost     H hosts of k ranks: all_reduce 2(H-1) + 2 steps; between hosts 2(H-1)/H n/k per rank; inside 2(k-1)/k n
source   Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", MLSys
         2019
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..schedule import EVEN_HOSTS, HOSTS, Program, View, algorithm
from .hosts import Hosts
from .ring import gather, ring, scatter_sums

Where = tuple[int, ...] | None


@algorithm("all_reduce", cost="2H α + 2(H-1)/H n/k β between hosts, 2(k-1)/k n β inside", parameter=HOSTS)
def hierarchical(p: Program, hosts: Where = None) -> None:
    """Down to one shard per rank of a host, around the hosts, and back."""
    all_hosts = Hosts.of(p, hosts)
    n, shards = all_hosts.count, all_hosts.shards
    p.chunks(n * shards)
    inside, owners = all_hosts.inside(), all_hosts.owners()
    with p.phase("reduce-scatter"):
        for view in inside:
            width = n * shards // view.size
            view.send(p.chunk(view.others() * width, width), to=view.others())
            view.reduce(p.chunk(view.rank * width, width), source=view.others())
        p.step()
    with p.phase("between hosts"):
        for step in p.steps(n - 1):
            for view, shard in owners:
                view.send(p.chunk(shard * n + (view.rank - step) % n), to=(view.rank + 1) % n)
                view.reduce(p.chunk(shard * n + (view.rank - step - 1) % n), source=(view.rank - 1) % n)
        for step in p.steps(n - 1):
            for view, shard in owners:
                view.send(p.chunk(shard * n + (view.rank + 1 - step) % n), to=(view.rank + 1) % n)
                view.recv(p.chunk(shard * n + (view.rank - step) % n), source=(view.rank - 1) % n)
    with p.phase("all-gather"):
        for view in inside:
            width = n * shards // view.size
            view.send(p.chunk(view.rank * width, width), to=view.others())
            view.recv(p.chunk(view.others() * width, width), source=view.others())


@algorithm("all_reduce", cost="2(P-1) α + 2(P-1)/P n β, one link between neighbouring hosts", parameter=HOSTS)
def host_ring(p: Program, hosts: Where = None) -> None:
    """The ring, host by host: of each host only one rank sends to the next one, wherever its ranks are numbered."""
    ring(p.view(Hosts.of(p, hosts).order))


@algorithm(
    "reduce_scatter",
    name="hierarchical",
    cost="H α + (H-1)/H n/k β between hosts, (k-1)/k n β inside",
    parameter=EVEN_HOSTS,
)
def hierarchical_reduce_scatter(p: Program, hosts: Where = None) -> None:
    """Inside, each rank sums what the ranks of its place on all hosts will get; then around the hosts."""
    all_hosts = Hosts.of(p, hosts)
    (inside,), across = all_hosts.inside(), all_hosts.across()
    with p.phase("inside"):
        for place, ranks in enumerate(all_hosts.columns):
            inside.send(p.indices(ranks), to=p.select(inside.rank != place, place))
        inside.reduce(_column(p, across), source=inside.others())
        p.step()
    with p.phase("between hosts"):
        scatter_sums(across, lambda i: p.chunk(across.real(i)))


@algorithm(
    "all_gather",
    name="hierarchical",
    cost="H α + (H-1)/H n/k β between hosts, (k-1)/k n β inside",
    parameter=EVEN_HOSTS,
)
def hierarchical_all_gather(p: Program, hosts: Where = None) -> None:
    """Around the hosts between the ranks of one place; then everyone inside gets what the others have."""
    all_hosts = Hosts.of(p, hosts)
    (inside,), across = all_hosts.inside(), all_hosts.across()
    with p.phase("between hosts"):
        gather(across, lambda i: p.chunk(across.real(i)))
    with p.phase("inside"):
        inside.send(_column(p, across), to=inside.others())
        for place, ranks in enumerate(all_hosts.columns):
            inside.recv(p.indices(ranks), source=p.select(inside.rank != place, place))


def _column(p: Program, across: View) -> Any:
    """The blocks of all ranks of one place, for every rank that of its own."""
    return p.indices(across.real(np.arange(across.size, dtype=np.int64)[None, :]))
