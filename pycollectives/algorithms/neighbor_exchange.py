r"""Neighbour exchange: everyone talks to its two neighbours in turn, two blocks per message.

    step 0   0 <-> 1   2 <-> 3   4 <-> 5          0 has  0 1
    step 1   1 <-> 2   3 <-> 4   5 <-> 0                 0 1 4 5
    step 2   0 <-> 1   2 <-> 3   4 <-> 5                 0 1 2 3 4 5

    Half of the steps of a ring, and every partner is a neighbour. Even numbers of ranks only.

cost     P/2 alpha + (P-1)/P n beta
source   Chen, Zhang, Zhang and Yuan, "Performance evaluation of allgather algorithms on terascale Linux
         cluster with fast Ethernet", HPC Asia 2005
"""

from __future__ import annotations

from ..schedule import Program, Restriction, algorithm

EVEN = Restriction("an even number of ranks", lambda size: size == 1 or size % 2 == 0)


@algorithm("all_gather", cost="P/2 α + (P-1)/P n β", restriction=EVEN)
def neighbor_exchange(p: Program) -> None:
    """Everyone passes on the pair of blocks that came last."""
    if p.size == 1:
        return
    odd = p.rank % 2
    inside, outside = p.rank ^ 1, (p.rank - 1 + 2 * odd) % p.size  # the neighbour in the pair, the other one
    p.send(p.chunk(p.rank), to=inside)
    p.recv(p.chunk(inside), source=inside)
    p.step()
    pair, sign = p.rank - odd, 2 * (2 * odd - 1)  # pairs come in turn from either side, ever farther away
    for step in p.steps(p.size // 2 - 1):
        peer = p.select(step % 2 == 0, outside, inside)
        last = p.select(step % 2 == 0, -(step // 2), (step + 1) // 2)
        new = p.select(step % 2 == 0, step // 2 + 1, -((step + 1) // 2))
        p.send(p.chunk((pair + sign * last) % p.size, 2), to=peer)
        p.recv(p.chunk((pair + sign * new) % p.size, 2), source=peer)
