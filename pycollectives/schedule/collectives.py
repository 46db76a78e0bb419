"""What each collective asks for, in chunks: where the data starts, and what every rank must end with.

    verb             input of rank r           output of rank r      contributions to chunk c of the output
    all_reduce       all chunks                all                   every rank
    reduce           all                       all, at the root      every rank
    reduce_scatter   all                       block r               every rank
    all_gather       block r                   all                   the rank that owns c
    broadcast        all, at the root          all                   the root
    barrier          a token                   -                     every rank, any number of times

Block r is the r-th of `size` equal runs of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Held = Literal["all", "block", "root", "none"]


@dataclass(frozen=True)
class Collective:
    """The contract of one verb."""

    name: str
    input: Held
    output: Held
    reduces: bool
    rooted: bool = False
    repeats: bool = False  # a contribution may count more than once (barrier)
    needs_all: bool = True  # whoever has an output needs every rank for it

    def input_chunks(self, rank: int, size: int, root: int, nchunks: int) -> range:
        """The chunks of the working vector that the input of `rank` holds, from its first element on."""
        return held(self.input, rank, size, root, nchunks)

    def output_chunks(self, rank: int, size: int, root: int, nchunks: int) -> range:
        """The chunks of the working vector that `rank`'s output holds."""
        return held(self.output, rank, size, root, nchunks)

    def contributors(self, chunk: int, size: int, root: int, nchunks: int) -> range:
        """The ranks whose value of `chunk` the result holds, each once."""
        if self.reduces:
            return range(size)
        owner = root if self.input == "root" else chunk * size // nchunks
        return range(owner, owner + 1)


def held(where: Held, rank: int, size: int, root: int, nchunks: int) -> range:
    """The chunks of a buffer that holds `where` of the working vector."""
    if where == "all" or (where == "root" and rank == root):
        return range(nchunks)
    if where == "block":
        per = nchunks // size
        return range(rank * per, (rank + 1) * per)
    return range(0)


COLLECTIVES: dict[str, Collective] = {
    c.name: c
    for c in (
        Collective("all_reduce", "all", "all", reduces=True),
        Collective("reduce", "all", "root", reduces=True, rooted=True),
        Collective("reduce_scatter", "all", "block", reduces=True),
        Collective("all_gather", "block", "all", reduces=False),
        Collective("broadcast", "root", "all", reduces=False, rooted=True, needs_all=False),
        Collective("barrier", "all", "none", reduces=True, repeats=True),
    )
}
