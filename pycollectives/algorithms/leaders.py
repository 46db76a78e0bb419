r"""Leaders: of each host one rank uses the network.

    host 0     host 1     host 2         up       everyone hands its data to the leader, in shared memory
      0          3          6            between  an algorithm of short steps between the leaders
     / \        / \        / \           down     the leaders hand out the result
    1   2      4   5      7   8
                                         The leader of the root's host is the root. Hosts may be unequal.

cost     two steps more than the algorithm between the H leaders has; inside, k n per host
source   Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation
         performance", IPDPS 2000
"""

from __future__ import annotations

from typing import Any

from ..schedule import HOSTS, Program, View, algorithm
from .binomial import binomial_broadcast, binomial_reduce
from .dissemination import dissemination
from .hosts import Hosts
from .recursive_doubling import recursive_doubling

Where = tuple[int, ...] | None


def up(p: Program, view: View, leader: Any) -> None:
    """The leader of a host reduces all of it."""
    view.send(p.chunk(0), to=p.select(view.rank != leader, leader))
    view.reduce(p.chunk(0), source=p.select(view.rank == leader, view.others()))


def down(p: Program, view: View, leader: Any) -> None:
    """The leader of a host publishes what it has."""
    view.send(p.chunk(0), to=p.select(view.rank == leader, view.others()))
    view.recv(p.chunk(0), source=p.select(view.rank != leader, leader))


@algorithm("all_reduce", cost="(⌈log₂H⌉ + 2) α + ⌈log₂H⌉ n β between hosts", parameter=HOSTS)
def leaders(p: Program, hosts: Where = None) -> None:
    """Recursive doubling between the leaders."""
    p.chunks(1)
    all_hosts = Hosts.of(p, hosts)
    with p.phase("up"):
        for view in all_hosts.inside():
            up(p, view, 0)
        p.step()
    with p.phase("between hosts"):
        recursive_doubling(all_hosts.leaders())
    with p.phase("down"):
        p.step()
        for view in all_hosts.inside():
            down(p, view, 0)


@algorithm("broadcast", name="leaders", cost="(⌈log₂H⌉ + 1) α + ⌈log₂H⌉ n β between hosts", parameter=HOSTS)
def leaders_broadcast(p: Program, hosts: Where = None) -> None:
    """A binomial tree from the root to the leaders, then inside."""
    p.chunks(1)
    all_hosts = Hosts.of(p, hosts)
    with p.phase("between hosts"):
        binomial_broadcast(all_hosts.leaders(p.root))
    with p.phase("down"):
        for view in all_hosts.inside():
            down(p, view, all_hosts.leader_place(p.root))


@algorithm("reduce", name="leaders", cost="(⌈log₂H⌉ + 1) α + ⌈log₂H⌉ n β between hosts", parameter=HOSTS)
def leaders_reduce(p: Program, hosts: Where = None) -> None:
    """Inside, then a binomial tree from the leaders to the root."""
    p.chunks(1)
    all_hosts = Hosts.of(p, hosts)
    with p.phase("up"):
        for view in all_hosts.inside():
            up(p, view, all_hosts.leader_place(p.root))
        p.step()
    with p.phase("between hosts"):
        binomial_reduce(all_hosts.leaders(p.root))


@algorithm("barrier", name="leaders", cost="(⌈log₂H⌉ + 2) α", parameter=HOSTS)
def leaders_barrier(p: Program, hosts: Where = None) -> None:
    """The leaders wait for their hosts, then for each other."""
    p.chunks(1)
    all_hosts = Hosts.of(p, hosts)
    for view in all_hosts.inside():
        up(p, view, 0)
    p.step()
    dissemination(all_hosts.leaders())
    for view in all_hosts.inside():
        view.send(p.chunk(0), to=p.select(view.rank == 0, view.others()))
        view.reduce(p.chunk(0), source=p.select(view.rank != 0, 0))
