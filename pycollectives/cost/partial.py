"""How much of what travels is partial sums: they take four bytes where the data are 16- or 8-bit floats."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from ..schedule import COLLECTIVES, Algorithm
from ..schedule.verifier import Stage, verified
from .footprint import footprint

EXACT_UP_TO = 8  # ranks; the flow of more takes too long for a choice that is made within a call


@lru_cache(maxsize=4096)
def partial_bytes(algorithm: Algorithm, size: int, root: int = 0) -> Fraction:
    """Received by the busiest rank in messages of partial sums, in units of the whole vector.

    Read off the verifier's flow; above EXACT_UP_TO ranks everything that is reduced counts, which is the most it can
    be. Raises what `footprint` and `verified` raise.
    """
    verb = COLLECTIVES[algorithm.collective]
    if not verb.reduces or verb.repeats:
        return Fraction(0)
    if size > EXACT_UP_TO:
        cost = footprint(algorithm, size, root)
        return min(cost.received, cost.reduced)
    proof = verified(algorithm, size, root)
    most = 0
    for rank, operations in proof.operations.items():
        chunks = 0
        for op, stages in zip(operations, proof.message[rank], strict=True):
            if op.kind in ("recv", "reduce"):
                parts = zip(op.parts, stages, strict=True)
                chunks += sum(len(part.index) for (_, part), stage in parts if stage == Stage.PARTIAL)
        most = max(most, chunks)
    return Fraction(most, proof.schedule.nchunks * proof.schedule.channels)
