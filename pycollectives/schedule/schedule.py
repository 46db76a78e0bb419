"""A recorded schedule and its concrete operations rank by rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .program import ChunkSet, Kind, Loop, Op, Program, Space
from .values import NULL, columns, plain, present_mask, resolve, rows


@dataclass(frozen=True)
class Chunks:
    """Concrete chunks of one message; `like` gives the data chunk that each scratch chunk has the size of."""

    space: Space
    index: tuple[int, ...]
    like: tuple[int, ...] = ()

    def __str__(self) -> str:
        name = {"data": "chunk", "input": "input chunk", "output": "output chunk", "scratch": "scratch chunk"}[self.space]
        return f"{name} {self.index[0]}" if len(self.index) == 1 else f"{name}s {list(self.index)}"


@dataclass(frozen=True)
class Operation:
    """One operation of one rank. `parts` pairs each peer with the chunks of its message (a local operation: one part, peer None)."""

    kind: Kind
    parts: tuple[tuple[int | None, Chunks], ...]
    into: Chunks | None
    step: int
    phase: str
    channel: int
    via_switch: bool = False

    @property
    def peers(self) -> tuple[int, ...]:
        return tuple(peer for peer, _ in self.parts if peer is not None)


@dataclass
class Schedule:
    """An algorithm evaluated for `size` ranks; `ranks` are those it was evaluated for."""

    collective: str
    algorithm: str
    program: Program

    @property
    def size(self) -> int:
        return self.program.size

    @property
    def root(self) -> int:
        return self.program.root

    @property
    def nchunks(self) -> int:
        return self.program.nchunks

    @property
    def channels(self) -> int:
        return self.program.channels

    @property
    def ranks(self) -> list[int]:
        return [int(r) for r in self.program.rank]

    def unrolled(self) -> Iterator[Op]:
        """The operations in program order with symbolic loops expanded; what does not depend on the step is kept as it is."""
        for node in self.program.nodes:
            if isinstance(node, Loop):
                for i in range(node.count):
                    env = {node.symbol: i}
                    for op in node.body:
                        yield replace(
                            op,
                            chunk=_resolve_chunks(op.chunk, env),
                            peers=resolve(op.peers, env),
                            into=None if op.into is None else _resolve_chunks(op.into, env),
                            when=resolve(op.when, env),
                            step=resolve(op.step, env),
                        )
            else:
                yield node

    def operations(self) -> dict[int, list[Operation]]:
        """The concrete operations of every evaluated rank, in program order; those without peer or chunks have vanished."""
        ranks = self.ranks
        result: dict[int, list[Operation]] = {r: [] for r in ranks}
        for op in self.unrolled():
            if op.kind in ("copy", "combine"):
                assert op.into is not None
                when = rows(op.when, len(ranks))
                source, target = self._concrete(op.chunk, 1), self._concrete(op.into, 1)
                for i, rank in enumerate(ranks):
                    if when[i][0] and source[i][0].index:
                        parts = ((None, source[i][0]),)
                        result[rank].append(Operation(op.kind, parts, target[i][0], int(op.step), op.phase, op.channel))
                continue
            peers = rows(op.peers if op.peers is not NULL else columns(NULL), len(ranks))
            chunks = self._concrete(op.chunk, len(peers[0]))
            for i, rank in enumerate(ranks):
                found = tuple((q, c) for q, c in zip(peers[i], chunks[i], strict=True) if q is not None and c.index)
                if found:
                    result[rank].append(Operation(op.kind, found, None, int(op.step), op.phase, op.channel, op.via_switch))
        return result

    def _concrete(self, chunks: ChunkSet, npeers: int) -> list[list[Chunks]]:
        """The chunk indices for every evaluated rank and peer."""
        n, ranks = self.nchunks, len(self.program.rank)
        wraps = chunks.space != "scratch"
        if chunks.which is not None:
            which = chunks.which
            table = rows(which if np.ndim(plain(which)) == 2 else _as_row(which), ranks)
            return [[Chunks(chunks.space, tuple(i % n if wraps else i for i in row if i is not None))] * npeers for row in table]

        def spread(x: Any) -> list[list[int]]:
            table = rows(x, ranks)
            return [[0 if v is None else v for v in (row * npeers if len(row) == 1 else row)] for row in table]

        first, count, stride = spread(chunks.first), spread(chunks.count), spread(chunks.stride)
        like = None if chunks.like is None else spread(chunks.like)
        out: list[list[Chunks]] = []
        for i in range(ranks):
            row = []
            for k in range(npeers):
                f, c, s = first[i][k], count[i][k], stride[i][k]
                if s:
                    index = tuple(b + j for b in range(f, n, s) for j in range(c) if b + j < n)
                else:
                    index = tuple((f + j) % n if wraps else f + j for j in range(c))
                if wraps:
                    row.append(Chunks(chunks.space, index))
                else:
                    base = f if like is None else like[i][k]
                    row.append(Chunks(chunks.space, index, tuple((base + j) % n for j in range(c))))
            out.append(row)
        return out


def _as_row(which: Any) -> Any:
    value, present = np.atleast_1d(plain(which)), np.atleast_1d(present_mask(which))
    return columns(*(value[i] if bool(np.broadcast_to(present, value.shape)[i]) else NULL for i in range(value.size)))


def _resolve_chunks(chunks: ChunkSet, env: Any) -> ChunkSet:
    fields = {name: resolve(getattr(chunks, name), env) for name in ("first", "count", "stride", "which", "like")}
    return ChunkSet(chunks.space, **fields)
