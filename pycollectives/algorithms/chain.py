r"""Chains: one rank after the other. The executor cuts long data into segments that follow each other.

    broadcast     root --> root+1 --> ... --> root-1
    reduce          0  -->   1    --> ... -->  P-1  (--> root)      the left fold in rank order:
    all_reduce      0 <-->   1   <--> ... <--> P-1                  the same bits for any size and chunking

cost     (P-1) alpha + n beta, pipelined: (P + k)(alpha + n/k beta) in k segments
source   the linear pipeline, as in Sanders, Speck and Traeff, Parallel Computing 35 (2009)
"""

from __future__ import annotations

from ..schedule import Program, algorithm


@algorithm("broadcast", name="chain", cost="(P-1) α + n β, pipelined")
def chain_broadcast(p: Program) -> None:
    """Everyone passes on what comes."""
    p.chunks(1)
    place, last = (p.rank - p.root) % p.size, p.size - 1
    p.recv(p.chunk(0), source=p.select(place > 0, (p.rank - 1) % p.size))
    p.send(p.chunk(0), to=p.select(place < last, (p.rank + 1) % p.size))


@algorithm("reduce", name="chain", cost="P α + 2 n β + n γ, pipelined")
def chain_reduce(p: Program) -> None:
    """The sum of ranks 0..r leaves rank r; the last rank hands the result to the root."""
    p.chunks(1)
    last = p.size - 1
    _fold(p)
    if p.root != last:
        p.step()
        p.send(p.chunk(0), to=p.select(p.rank == last, p.root))
        p.recv(p.chunk(0), source=p.select(p.rank == p.root, last))


@algorithm("all_reduce", cost="2(P-1) α + 2 n β + n γ, pipelined")
def chain(p: Program) -> None:
    """The sum goes up the chain, the result comes back down."""
    p.chunks(1)
    with p.phase("reduce"):
        _fold(p)
        p.step()
    with p.phase("broadcast"):
        p.recv(p.chunk(0), source=p.select(p.rank < p.size - 1, p.rank + 1))
        p.send(p.chunk(0), to=p.select(p.rank > 0, p.rank - 1))


def _fold(p: Program) -> None:
    p.reduce(p.chunk(0), source=p.select(p.rank > 0, p.rank - 1))
    p.send(p.chunk(0), to=p.select(p.rank < p.size - 1, p.rank + 1))
