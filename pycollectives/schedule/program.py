"""What the author of an algorithm sees: `Program`, which records the operations of all evaluated ranks at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .values import NULL, Deferred, Maybe, Symbol, columns, plain, present_mask, select

Kind = Literal["send", "recv", "reduce", "copy", "combine"]
Space = Literal["data", "input", "output", "scratch"]


@dataclass(frozen=True)
class ChunkSet:
    """Chunks that travel as one message.

    `first` and `count` (with `stride` and `length` for blocks) may differ per rank and per peer; `which` is an
    explicit index set of shape (ranks, n). Indices of data, input and output wrap at the number of chunks.
    """

    space: Space
    first: Any = 0
    count: Any = 1
    stride: Any = 0
    which: Any = None
    like: Any = None  # scratch: the data chunk whose size each of these has


class Switch:
    """Marks a reduction that is done inside a network switch (SHARP, NVLS): `p.reduce(..., via=p.switch)`."""


@dataclass
class Op:
    """One recorded operation for all evaluated ranks; fields may be arrays or wait for a symbolic step."""

    kind: Kind
    chunk: ChunkSet
    peers: Any
    into: ChunkSet | None
    when: Any
    step: Any
    phase: str
    channel: int
    via_switch: bool = False


@dataclass
class Loop:
    """A symbolic loop: `body` is repeated for every value of `symbol` from 0 to `count` - 1."""

    symbol: Symbol
    count: int
    body: list[Op] = field(default_factory=list)


SYMBOLIC_FROM = 64  # shorter loops are unrolled: they are those of logarithmic algorithms


class Program:
    """One SPMD schedule under construction.

    `rank` is an int64 array: of length 1 when a rank compiles its own plan, of all ranks for the verifier and the
    simulator. `size` and `root` are ints. There is no branch on the rank: `select` chooses values, peers and chunks.
    """

    switch = Switch()

    def __init__(self, size: int, ranks: Any, root: int = 0, *, symbolic: bool = False) -> None:
        self.size = int(size)
        self.rank = np.asarray(ranks, dtype=np.int64)
        self.root = int(root)
        self.symbolic = symbolic
        self.nodes: list[Op | Loop] = []
        self.nchunks = self.size
        self.channels = 1
        self.channel_order: dict[int, Any] = {}
        self._loop: Loop | None = None
        self._step: Any = 0
        self._channel_steps: dict[int, Any] = {}
        self._phase, self._channel = "", 0

    # -- chunks ------------------------------------------------------------------------------------------------

    def chunks(self, n: int) -> None:
        """Cut the data into `n` pieces (default: one per rank)."""
        if self.nodes:
            raise ValueError("chunks(n) comes before the first operation")
        self.nchunks = int(n)

    def chunk(self, first: Any, count: Any = 1) -> ChunkSet:
        """`count` consecutive chunks of the working vector from `first` on, wrapping at the end."""
        return ChunkSet("data", first, count)

    def blocks(self, first: Any, length: Any, stride: Any) -> ChunkSet:
        """Runs of `length` chunks that start at `first`, `first` + `stride`, ... below the number of chunks."""
        return ChunkSet("data", first, length, stride)

    def indices(self, which: Any) -> ChunkSet:
        """An explicit set of chunks: shape (n,) for all ranks or (ranks, n); NULL entries are left out."""
        return ChunkSet("data", which=which)

    def input(self, first: Any, count: Any = 1) -> ChunkSet:
        """Chunks of the caller's input (read only)."""
        return ChunkSet("input", first, count)

    def output(self, first: Any, count: Any = 1) -> ChunkSet:
        """Chunks of the caller's output."""
        return ChunkSet("output", first, count)

    def scratch(self, first: Any, count: Any = 1, like: Any = None) -> ChunkSet:
        """Chunks of temporary memory; chunk i has the size of data chunk `like` (default i), modulo the chunks."""
        return ChunkSet("scratch", first, count, like=like)

    # -- labels ------------------------------------------------------------------------------------------------

    def steps(self, n: int, *, unroll: bool = False) -> Iterator[Any]:
        """Steps 0 to n - 1. Long loops stay symbolic where the evaluation asks for it (see `Deferred`)."""
        if self.symbolic and n >= SYMBOLIC_FROM and not unroll and self._loop is None:
            loop = self._loop = Loop(Symbol(), n)
            self.nodes.append(loop)
            start = self._step
            self._step = start + loop.symbol
            yield loop.symbol
            self._loop = None
            self._step = start + n
            return
        for i in range(n):
            yield i
            self.step()

    def step(self) -> None:
        """End one step. Steps are labels: they order nothing."""
        self._step = self._step + 1

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name the operations inside, for people and pictures."""
        before, self._phase = self._phase, name
        yield
        self._phase = before

    @contextlib.contextmanager
    def channel(self, c: int, order: Any = None) -> Iterator[None]:
        """The operations inside move slice `c` of every chunk; channels run side by side from the same step.

        `order` names the segment order where it is the point of the algorithm (Sanders' two colours).
        """
        outer, step = self._channel, self._step
        self._channel, self._step = int(c), self._channel_steps.get(int(c), step)
        self.channels = max(self.channels, int(c) + 1)
        if order is not None:
            self.channel_order[int(c)] = order
        yield
        self._channel_steps[int(c)] = self._step
        self._channel, self._step = outer, step

    # -- values ------------------------------------------------------------------------------------------------

    @staticmethod
    def select(condition: Any, a: Any, b: Any = NULL) -> Any:
        """`a` where `condition`, else `b` (default NULL)."""
        return select(condition, a, b)

    @staticmethod
    def peers(*values: Any) -> Any:
        """Several peers in one operation; NULL entries vanish."""
        return columns(*values)

    def others(self) -> Any:
        """All other ranks, in rank order: shape (ranks, size - 1)."""
        k = np.arange(self.size - 1, dtype=np.int64)[None, :]
        return k + (k >= self.rank[:, None])

    # -- operations --------------------------------------------------------------------------------------------

    def send(self, chunk: ChunkSet, to: Any) -> None:
        """Send the value that `chunk` has now. Several peers: published once."""
        self._record("send", chunk, to)

    def recv(self, chunk: ChunkSet, source: Any) -> None:
        """Receive into `chunk`."""
        self._record("recv", chunk, source)

    def reduce(self, chunk: ChunkSet, source: Any, via: Switch | None = None) -> None:
        """Receive and combine into `chunk`; several sources: one n-ary reduction in rank order, own value in its place."""
        self._record("reduce", chunk, source, via_switch=via is not None)

    def copy(self, chunk: ChunkSet, into: ChunkSet, when: Any = True) -> None:
        """Copy locally."""
        self._record("copy", chunk, NULL, into, when)

    def combine(self, chunk: ChunkSet, into: ChunkSet, when: Any = True) -> None:
        """Combine locally: `into` becomes `chunk` op `into`."""
        self._record("combine", chunk, NULL, into, when)

    def _record(
        self, kind: Kind, chunk: ChunkSet, peers: Any, into: ChunkSet | None = None, when: Any = True, via_switch: bool = False
    ) -> None:
        op = Op(kind, chunk, peers, into, when, self._step, self._phase, self._channel, via_switch)
        (self.nodes if self._loop is None else self._loop.body).append(op)

    # -- views -------------------------------------------------------------------------------------------------

    def view(self, order: Any) -> View:
        """The same program with ranks renumbered.

        `order[i]` is the real rank of virtual rank i: shape (n,) for one numbering, or (ranks, n) where every rank
        has its own group (the rows of a torus). Ranks outside their group have rank NULL and do nothing.
        """
        return _view(self, order)

    def renumber(self, size: int, rank: Any, real: Callable[[Any], Any]) -> View:
        """`view` by a rule in place of a table: `rank` is the virtual rank of every rank, `real(i)` the real rank of i."""
        return View(self, int(size), rank, real)


class View:
    """A `Program` seen through a renumbering of its ranks. Everything but ranks and peers is the program's own."""

    def __init__(self, program: Program | View, size: int, rank: Any, real: Callable[[Any], Any]) -> None:
        self._program: Program = program._program if isinstance(program, View) else program
        self._real = _composed(program._real, real) if isinstance(program, View) else real
        self.size, self.rank = size, rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def real(self, peer: Any) -> Any:
        """The real rank of a virtual one; NULL stays NULL."""
        if isinstance(peer, Deferred):
            return Deferred(self.real, peer)
        if peer is NULL:
            return NULL
        if isinstance(peer, Maybe):
            return Maybe(self._real(peer.value), peer.present)
        return self._real(peer)

    def others(self) -> Any:
        """All other virtual ranks, in order: shape (ranks, size - 1)."""
        k = np.arange(self.size - 1, dtype=np.int64)[None, :]
        return k + select(k >= columns(self.rank), 1, 0)

    def send(self, chunk: ChunkSet, to: Any) -> None:
        self._program.send(chunk, self._guard(to))

    def recv(self, chunk: ChunkSet, source: Any) -> None:
        self._program.recv(chunk, self._guard(source))

    def reduce(self, chunk: ChunkSet, source: Any, via: Switch | None = None) -> None:
        self._program.reduce(chunk, self._guard(source), via)

    def copy(self, chunk: ChunkSet, into: ChunkSet, when: Any = True) -> None:
        self._program.copy(chunk, into, self._inside(when))

    def combine(self, chunk: ChunkSet, into: ChunkSet, when: Any = True) -> None:
        self._program.combine(chunk, into, self._inside(when))

    def _inside(self, when: Any) -> Any:
        return when if not isinstance(self.rank, Maybe) else select(self.rank.present, when, False)

    def _guard(self, peer: Any) -> Any:
        peer = self.real(peer)
        if not isinstance(self.rank, Maybe):
            return peer
        present = self.rank.present
        return select(present[:, None] if np.ndim(getattr(peer, "value", peer)) == 2 else present, peer, NULL)

    def view(self, order: Any) -> View:
        """A view of this view; `order` names virtual ranks."""
        return _view(self, order)

    def renumber(self, size: int, rank: Any, real: Callable[[Any], Any]) -> View:
        return View(self, int(size), rank, real)


def _composed(outer: Callable[[Any], Any], inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda i: outer(inner(i))


def _view(program: Program | View, order: Any) -> View:
    table = np.asarray(order, dtype=np.int64)
    rank, present = plain(program.rank), np.broadcast_to(present_mask(program.rank), np.shape(plain(program.rank)))
    if table.ndim == 1:
        place = np.full(program.size, -1, dtype=np.int64)
        place[table] = np.arange(table.size)
        mine = place[rank]
        inside = present & (mine >= 0)
    else:
        hit = table == rank[:, None]
        mine, inside = hit.argmax(axis=1), present & hit.any(axis=1)
    line = np.arange(len(table))

    def real(i: Any) -> Any:
        if table.ndim == 1:
            return table[i]
        return table[line if np.ndim(i) < 2 else line[:, None], i]

    return View(program, table.shape[-1], mine if inside.all() else Maybe(mine, inside), real)
