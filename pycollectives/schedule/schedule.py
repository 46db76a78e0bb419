"""A recorded schedule and its concrete operations rank by rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ScheduleError
from .program import ChunkSet, Kind, Loop, Op, Program, Space
from .values import NULL, columns, plain, resolve, rows

NAMES: dict[Space, str] = {"data": "", "input": "input ", "output": "output ", "scratch": "scratch "}


@dataclass(frozen=True)
class Chunks:
    """Concrete chunks of one message; `like` gives the data chunk that each scratch chunk has the size of."""

    space: Space
    index: tuple[int, ...]
    like: tuple[int, ...] = ()

    @property
    def contents(self) -> tuple[int, ...]:
        """The data chunk whose contributions each of these may hold."""
        return self.like if self.space == "scratch" else self.index

    def __str__(self) -> str:
        several = len(self.index) != 1
        return f"{NAMES[self.space]}chunk{'s' * several} {list(self.index) if several else self.index[0]}"


@dataclass(frozen=True)
class Operation:
    """One operation of one rank.

    `parts` pairs each peer with the chunks of its message (a local operation: one part, peer None).
    """

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

    def __str__(self) -> str:
        if self.into is not None:
            return f"{self.kind} {self.parts[0][1]} into {self.into}"
        word = "to" if self.kind == "send" else "from"
        groups: dict[Chunks, list[str]] = {}
        for peer, chunks in self.parts:
            groups.setdefault(chunks, []).append(str(peer))
        shown = [
            f"{chunks} {word} {', '.join(peers[:8] + ['...'][: len(peers) > 8])}"
            for chunks, peers in groups.items()
        ]
        return f"{self.kind} {'; '.join(shown[:4] + ['...'][: len(shown) > 4])}"


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
        """The operations in program order, loops expanded; what does not depend on the step is kept as is."""
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
        """The concrete operations of every evaluated rank, in program order.

        Operations without peer or chunks have vanished. Raises ScheduleError where a value cannot be read as
        ranks or chunks.
        """
        result: dict[int, list[Operation]] = {r: [] for r in self.ranks}
        try:
            for op in self.unrolled():
                self._append(op, result)
        except (ValueError, IndexError) as error:
            text = f"{self.collective} by {self.algorithm!r}: {error}"
            raise ScheduleError(text, collective=self.collective, algorithm=self.algorithm) from error
        return result

    def _append(self, op: Op, result: dict[int, list[Operation]]) -> None:
        labels = (int(op.step), op.phase, op.channel)
        if op.into is not None:
            when = rows(op.when, len(result))
            source, target = self._concrete(op.chunk, 1), self._concrete(op.into, 1)
            for mine, (go, *_), (read, *_), (written, *_) in zip(
                result.values(), when, source, target, strict=True
            ):
                if go and read.index and written.index:
                    mine.append(Operation(op.kind, ((None, read),), written, *labels))
            return
        peers = rows(op.peers if op.peers is not NULL else columns(NULL), len(result))
        chunks = self._concrete(op.chunk, len(peers[0]), peers)
        for mine, named, sets in zip(result.values(), peers, chunks, strict=True):
            pairs = zip(named, sets, strict=True)
            parts = tuple((q, c) for q, c in pairs if q is not None and c.index)
            if parts:
                mine.append(Operation(op.kind, parts, None, *labels, op.via_switch))

    def _concrete(
        self, chunks: ChunkSet, npeers: int, peers: list[list[int | None]] | None = None
    ) -> list[list[Chunks]]:
        """The chunk indices for every evaluated rank and peer; empty where the peer is NULL."""
        n, ranks = self.nchunks, len(self.program.rank)
        if chunks.which is not None:
            which = chunks.which
            table = rows(which if np.ndim(plain(which)) == 2 else which[None, :], ranks)
            return [
                [Chunks(chunks.space, tuple(i % n for i in row if i is not None))] * npeers for row in table
            ]

        def spread(x: Any) -> list[list[int | None]]:
            if isinstance(x, int):
                return [[x] * npeers] * ranks
            table = rows(x, ranks)
            if len(table[0]) not in (1, npeers):
                raise ValueError(f"chunks for {len(table[0])} peers in an operation with {npeers}")
            return [row * npeers if len(row) == 1 else row for row in table]

        first = spread(chunks.first)
        like = first if chunks.like is None else spread(chunks.like)
        fields = [first, *map(spread, (chunks.count, chunks.step, chunks.stride)), like]
        none, space = Chunks(chunks.space, ()), chunks.space
        found = []
        for rank, line in enumerate(zip(*fields, strict=True)):
            named = peers[rank] if peers is not None else (0,) * npeers
            found.append(
                [
                    none if peer is None or None in entry[:4] else self._run(space, *entry)
                    for peer, *entry in zip(named, *line, strict=True)
                ]
            )
        return found

    def _run(self, space: Space, first: int, count: int, step: int, stride: int, like: int | None) -> Chunks:
        n = self.nchunks
        if count < 0 or stride < 0:
            raise ValueError(f"a set of {count} chunks with stride {stride}")
        if stride:
            index = tuple(b + j for b in range(first, n, stride) for j in range(count) if b + j < n)
            return Chunks(space, index, index if space == "scratch" else ())
        numbers = range(first, first + count * step, step) if step else (first,) * count
        if space == "scratch":
            base = first if like is None else like
            return Chunks(space, tuple(numbers), tuple((base + j) % n for j in range(count)))
        return Chunks(space, tuple(i % n for i in numbers))


def _resolve_chunks(chunks: ChunkSet, env: Any) -> ChunkSet:
    names = ("first", "count", "step", "stride", "which", "like")
    return ChunkSet(chunks.space, **{name: resolve(getattr(chunks, name), env) for name in names})
