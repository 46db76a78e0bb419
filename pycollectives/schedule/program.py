"""What the author of an algorithm sees: `Program`, which records the operations of all ranks at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .values import NULL, Deferred, Maybe, Symbol, columns, select
from .views import View, grid

Kind = Literal["send", "recv", "reduce", "copy", "combine"]
Space = Literal["data", "input", "output", "scratch"]


@dataclass(frozen=True)
class ChunkSet:
    """Chunks that travel as one message.

    `first`, `count`, `step` (from one to the next) and `stride` (of blocks of `count`) may differ per rank
    and per peer; `which` is an explicit index set of shape (n,) or (ranks, n). All indices but those of
    scratch wrap.
    """

    space: Space
    first: Any = 0
    count: Any = 1
    step: Any = 1
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

    `rank` is an int64 array: of length 1 when a rank compiles its own plan, of all ranks for the verifier and
    the simulator. `size` and `root` are ints. There is no branch on the rank: `select` chooses values, peers
    and chunks.
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

    # -- chunks -------------------------------------------------------------------------------------------

    def chunks(self, n: int) -> None:
        """Cut the data into `n` pieces (default: one per rank)."""
        if self.nodes and n != self.nchunks:
            raise ValueError("chunks(n) comes before the first operation")
        if n < 1:
            raise ValueError(f"the data cannot be cut into {n} chunks")
        self.nchunks = int(n)

    def chunk(self, first: Any, count: Any = 1, step: Any = 1) -> ChunkSet:
        """`count` chunks of the working vector: `first`, `first` + `step`, ..., wrapping at the end."""
        return ChunkSet("data", first, count, step)

    def blocks(self, first: Any, length: Any, stride: Any, space: Space = "data") -> ChunkSet:
        """Runs of `length` chunks from `first`, `first` + `stride`, ... on, below the number of chunks."""
        return ChunkSet(space, first, length, stride=stride)

    def indices(self, which: Any) -> ChunkSet:
        """An explicit set of chunks: shape (n,) for all ranks or (ranks, n); NULL entries are left out."""
        return ChunkSet("data", which=which if isinstance(which, (Deferred, Maybe)) else np.atleast_1d(which))

    def input(self, first: Any, count: Any = 1, step: Any = 1) -> ChunkSet:
        """Chunks of the caller's input (read only)."""
        return ChunkSet("input", first, count, step)

    def output(self, first: Any, count: Any = 1, step: Any = 1) -> ChunkSet:
        """Chunks of the caller's output."""
        return ChunkSet("output", first, count, step)

    def scratch(self, first: Any, count: Any = 1, like: Any = None) -> ChunkSet:
        """Temporary chunks; chunk `first` + i has the size of data chunk `like` (or `first`) + i."""
        return ChunkSet("scratch", first, count, like=like)

    # -- labels -------------------------------------------------------------------------------------------

    def steps(self, n: int, *, unroll: bool = False) -> Iterator[Any]:
        """Steps 0 to n - 1. Long loops stay symbolic where the evaluation asks for it (see `Deferred`)."""
        if self.symbolic and n >= SYMBOLIC_FROM and not unroll and self._loop is None:
            loop = self._loop = Loop(Symbol(), n)
            self.nodes.append(loop)
            start = self._step
            self._step = start + loop.symbol
            try:
                yield loop.symbol
            finally:  # also where the author leaves the loop early
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
        if c < 0:
            raise ValueError(f"there is no channel {c}")
        outer, step = self._channel, self._step
        self._channel, self._step = int(c), self._channel_steps.get(int(c), step)
        self.channels = max(self.channels, int(c) + 1)
        if order is not None:
            self.channel_order[int(c)] = order
        yield
        self._channel_steps[int(c)] = self._step
        self._channel, self._step = outer, step

    # -- values -------------------------------------------------------------------------------------------

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

    # -- operations ---------------------------------------------------------------------------------------

    def send(self, chunk: ChunkSet, to: Any) -> None:
        """Send the value that `chunk` has now. Several peers: published once."""
        self._record("send", chunk, to)

    def recv(self, chunk: ChunkSet, source: Any) -> None:
        """Receive into `chunk`."""
        self._record("recv", chunk, source)

    def reduce(self, chunk: ChunkSet, source: Any, via: Switch | None = None) -> None:
        """Receive and combine into `chunk`.

        Several sources: one n-ary reduction in rank order, own value in its place.
        """
        self._record("reduce", chunk, source, via_switch=via is not None)

    def copy(self, chunk: ChunkSet, into: ChunkSet, when: Any = True) -> None:
        """Copy locally."""
        self._record("copy", chunk, NULL, into, when)

    def combine(self, chunk: ChunkSet, into: ChunkSet, when: Any = True) -> None:
        """Combine locally: `into` becomes `chunk` op `into`."""
        self._record("combine", chunk, NULL, into, when)

    def _record(
        self,
        kind: Kind,
        chunk: ChunkSet,
        peers: Any,
        into: ChunkSet | None = None,
        when: Any = True,
        via_switch: bool = False,
    ) -> None:
        op = Op(kind, chunk, peers, into, when, self._step, self._phase, self._channel, via_switch)
        (self.nodes if self._loop is None else self._loop.body).append(op)

    # -- views --------------------------------------------------------------------------------------------

    def view(self, order: Any) -> View:
        """The same program with ranks renumbered.

        `order[i]` is the real rank of virtual rank i: shape (n,) for one numbering, or (ranks, n) where every
        rank has its own group (the rows of a torus). Ranks outside their group have rank NULL and do nothing.
        """
        return View.of(self, order)

    def renumber(self, size: int, rank: Any, real: Callable[[Any], Any]) -> View:
        """`view` by a rule: `rank` is the virtual rank of every rank, `real(i)` the real rank of i."""
        return View(self, int(size), rank, real)

    def grid(self, rows: int, columns: int) -> tuple[View, View]:
        """The rank's row and its column, each as a view, of the ranks laid out row by row."""
        return grid(self, rows, columns)
