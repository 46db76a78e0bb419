"""What each collective asks for, in chunks: where the data starts, and what every rank must end with.

    verb             input of rank r           output of rank r      contributions to chunk c of the output
    all_reduce       all chunks                all                   every rank
    reduce           all                       all, at the root      every rank
    reduce_scatter   all                       block r               every rank
    scan             all                       all                   ranks 0 .. r
    exscan           all                       all, but at rank 0    ranks 0 .. r-1
    all_gather       block r                   all                   the rank that owns c
    gather           block r                   all, at the root      the rank that owns c
    broadcast        all, at the root          all                   the root
    scatter          all, at the root          block r               the root
    all_to_all       all                       all                   block i is rank i's input block r
    barrier          a token                   -                     every rank, any number of times

Block r is the r-th of `size` equal runs of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Held = Literal["all", "block", "root", "after_first", "none"]


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
    prefix: Literal["", "inclusive", "exclusive"] = ""  # only the ranks before count (scan, exscan)
    apart: bool = (
        False  # chunk c of the output is not chunk c of the input: no working vector, never in place
    )

    @property
    def in_blocks(self) -> bool:
        """Is the vector cut into one block per rank?"""
        return self.apart or "block" in (self.input, self.output)

    def input_chunks(self, rank: int, size: int, root: int, nchunks: int) -> range:
        """The chunks of the working vector that the input of `rank` holds, from its first element on."""
        return held(self.input, rank, size, root, nchunks)

    def output_chunks(self, rank: int, size: int, root: int, nchunks: int) -> range:
        """The chunks of the working vector that `rank`'s output holds."""
        return held(self.output, rank, size, root, nchunks)

    def contributors(self, chunk: int, rank: int, size: int, root: int, nchunks: int) -> range:
        """The ranks whose data `rank`'s result of `chunk` holds, each once."""
        if self.prefix:
            return range(rank + (self.prefix == "inclusive"))
        if self.reduces:
            return range(size)
        owner = root if self.input == "root" else chunk * size // nchunks
        return range(owner, owner + 1)

    def origin(self, chunk: int, rank: int, size: int, nchunks: int) -> int:
        """The chunk of its contributors' inputs that becomes `chunk` of `rank`'s output."""
        if not self.apart:
            return chunk
        per = nchunks // size
        return rank * per + chunk % per


def held(where: Held, rank: int, size: int, root: int, nchunks: int) -> range:
    """The chunks of a buffer that holds `where` of the working vector."""
    if where == "all" or (where == "root" and rank == root) or (where == "after_first" and rank > 0):
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
        Collective("gather", "block", "root", reduces=False, rooted=True),
        Collective("scatter", "root", "block", reduces=False, rooted=True, needs_all=False),
        Collective("all_to_all", "all", "all", reduces=False, apart=True),
        Collective("scan", "all", "all", reduces=True, needs_all=False, prefix="inclusive"),
        Collective("exscan", "all", "after_first", reduces=True, needs_all=False, prefix="exclusive"),
        Collective("barrier", "all", "none", reduces=True, repeats=True),
    )
}
