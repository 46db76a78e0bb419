r"""Direct algorithms: every rank talks to every other at once.

        0 <---> 1
        ^ \   / ^       one-shot: everyone publishes all of its data and reduces everything itself
        |   X   |       two-shot: everyone reduces its own chunk from all, then publishes the result
        v /   \ v
        2 <---> 3

cost     one-shot: alpha + (P-1) n (beta + gamma)
         two-shot: 2 alpha + 2(P-1)/P n beta + (P-1)/P n gamma
         direct: alpha + (P-1)/P n beta, and as much gamma where it reduces; a barrier: alpha, and P-1 messages
order    the reduction is the left fold in rank order: the same bits for any size and any chunking.
source   the direct exchange of MPI libraries for short data; the one- and two-shot kernels of GPU engines
"""

from __future__ import annotations

from ..schedule import Program, algorithm


@algorithm("all_reduce", cost="α + (P-1) n (β + γ)")
def one_shot(p: Program) -> None:
    """Everyone publishes everything."""
    p.chunks(1)
    p.send(p.chunk(0), to=p.others())
    p.reduce(p.chunk(0), source=p.others())


@algorithm("all_reduce", cost="2 α + 2(P-1)/P n β + (P-1)/P n γ")
def two_shot(p: Program) -> None:
    """Everyone reduces its own chunk, then publishes it."""
    with p.phase("reduce-scatter"):
        direct_reduce_scatter(p)
        p.step()
    with p.phase("all-gather"):
        direct_all_gather(p)


@algorithm("reduce_scatter", name="direct", cost="α + (P-1)/P n (β + γ)")
def direct_reduce_scatter(p: Program) -> None:
    """Everyone reduces its own chunk from all."""
    p.send(p.chunk(p.others()), to=p.others())
    p.reduce(p.chunk(p.rank), source=p.others())


@algorithm("all_gather", name="direct", cost="α + (P-1)/P n β")
def direct_all_gather(p: Program) -> None:
    """Everyone publishes its own chunk."""
    p.send(p.chunk(p.rank), to=p.others())
    p.recv(p.chunk(p.others()), source=p.others())


@algorithm("all_to_all", name="direct", cost="α + (P-1)/P n β")
def direct_all_to_all(p: Program) -> None:
    """Everyone sends to everyone."""
    p.send(p.input(p.others()), to=p.others())
    p.copy(p.input(p.rank), into=p.output(p.rank))
    p.recv(p.output(p.others()), source=p.others())


@algorithm("barrier", name="direct", cost="α")
def direct_barrier(p: Program) -> None:
    """Everyone tells everyone."""
    p.chunks(1)
    p.send(p.chunk(0), to=p.others())
    p.reduce(p.chunk(0), source=p.others())
