"""The answer of a policy."""

from __future__ import annotations

from dataclasses import dataclass

from ...schedule import COLLECTIVES
from ..query import Query


@dataclass(frozen=True)
class Advice:
    """`theirs`: the algorithm in the other library's words; `name`: that, or the nearest one, here."""

    theirs: str
    name: str


def block_bytes(query: Query) -> int:
    """Bytes of one rank's block, where the vector has one for each rank, else of the vector."""
    blocks = COLLECTIVES[query.collective].in_blocks
    return query.nbytes // query.size if blocks else query.nbytes


def is_power_of_two(n: int) -> bool:
    """1, 2, 4, ..."""
    return n & (n - 1) == 0
