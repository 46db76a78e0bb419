r"""Node-aware double binary tree: trees over the hosts, chains inside.

    tree 1 over hosts      host:  2 --> 1 --> 0 ==> parent host      the result comes back the same way
    tree 2 over hosts      host:  0 --> 1 --> 2 ==> parent host      its chains run the other way round, so that
                                                                     another rank uses the network

cost     2 (k - 1 + 2 log2 H) alpha + 2 n beta, pipelined; each tree moves half of the data
source   NCCL, src/graph/trees.cc and connect.cc
"""

from __future__ import annotations

from typing import Any

from ..schedule import HOSTS, Program, View, algorithm
from .double_tree import binary_tree, double_tree, up_and_down
from .hosts import Hosts


@algorithm("all_reduce", cost="2(k - 1 + 2 log₂H) α + 2 n β + n γ, pipelined", parameter=HOSTS)
def host_double_tree(p: Program, hosts: tuple[int, ...] | None = None) -> None:
    """Up the chain and the tree, and back."""
    p.chunks(1)
    both = Hosts.of(p, hosts), Hosts.of(p, hosts).turned()
    for c, tree in enumerate(double_tree_of_views(both)):
        with p.channel(c):
            inside = both[c].inside()
            with p.phase("reduce inside"):
                for view in inside:
                    view.reduce(p.chunk(0), source=_after(p, view))
                    view.send(p.chunk(0), to=_before(p, view))
                p.step()
            up_and_down(tree, *binary_tree(tree))
            with p.phase("broadcast inside"):
                p.step()
                for view in inside:
                    view.recv(p.chunk(0), source=_before(p, view))
                    view.send(p.chunk(0), to=_after(p, view))


def double_tree_of_views(both: tuple[Hosts, Hosts]) -> tuple[View, View]:
    """The two trees over the leaders of each of two orders of the ranks."""
    return double_tree(both[0].leaders())[0], double_tree(both[1].leaders())[1]


def _after(p: Program, view: View) -> Any:
    return p.select(view.rank < view.size - 1, view.rank + 1)


def _before(p: Program, view: View) -> Any:
    return p.select(view.rank > 0, view.rank - 1)
