"""What a schedule moves, read off it for all ranks at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ScheduleError
from ..schedule import NULL, Algorithm, Schedule
from ..schedule.program import ChunkSet, Op
from ..schedule.values import plain, present_mask
from .rounds import Array, Clock, Node


@dataclass(frozen=True)
class Footprint:
    """Of the busiest rank, if nothing else is said; bytes are in units of the whole vector (all-gather,
    reduce-scatter: the total)."""

    steps: int  # rounds of messages, one after the other
    messages: int  # received
    sent: Fraction
    received: Fraction
    reduced: Fraction
    copied: Fraction  # from one place to another of the same rank
    total: Fraction  # received by all ranks together
    path: Fraction  # received on the longest path of one channel, where messages are passed on as a whole
    largest: Fraction  # what one rank receives in one operation
    channels: int


@lru_cache(maxsize=4096)
def footprint(algorithm: Algorithm, size: int, root: int = 0) -> Footprint:
    """Steps, messages and bytes of `algorithm` for `size` ranks, assuming equal chunks.

    Raises UnsupportedError and InvalidArgumentError where it cannot run on `size` ranks, ScheduleError where
    the schedule cannot be read.
    """
    try:
        schedule = algorithm.schedule(size, root=root, symbolic=True)
    except ScheduleError:  # an author may need the number of a step
        schedule = algorithm.schedule(size, root=root)
    try:
        return _Reader(schedule).read()
    except (TypeError, ValueError, IndexError) as error:
        text = f"{algorithm.collective} by {algorithm.name!r}: {error}"
        raise ScheduleError(text, collective=algorithm.collective, algorithm=algorithm.name) from error


class _Reader:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.ranks = schedule, schedule.size
        self.rounds = [Clock(self.ranks) for _ in range(schedule.channels)]
        self.paths = [Clock(self.ranks) for _ in range(schedule.channels)]
        self.largest = 0
        self.chunks = {
            kind: np.zeros(self.ranks, dtype=np.int64) for kind in ("sent", "received", "reduced", "copied")
        }
        self.messages = np.zeros(self.ranks, dtype=np.int64)
        self._known: dict[int, tuple[Any, Array, Array]] = {}

    def read(self) -> Footprint:
        for op in self.schedule.unrolled():
            if op.into is None:
                self._message(op)
            else:
                self._local(op)
        most = {kind: int(found.max()) for kind, found in self.chunks.items()}
        share = Fraction(1, self.schedule.nchunks * self.schedule.channels)
        return Footprint(
            steps=max(clock.end() for clock in self.rounds),
            messages=int(self.messages.max()),
            sent=most["sent"] * share,
            received=most["received"] * share,
            reduced=most["reduced"] * share,
            copied=most["copied"] * share,
            total=int(self.chunks["received"].sum()) * share,
            path=max(clock.end() for clock in self.paths) * share,
            largest=self.largest * share,
            channels=self.schedule.channels,
        )

    def _local(self, op: Op) -> None:
        go = np.asarray(plain(op.when), dtype=bool) & present_mask(op.when)
        kind = "reduced" if op.kind == "combine" else "copied"
        self.chunks[kind] += np.where(go, self._count(op.chunk)[:, 0], 0)

    def _message(self, op: Op) -> None:
        if op.peers is NULL:
            return
        peers, there = self._peers(op.peers)
        if not there.size:  # nobody has peers
            return
        count = self._count(op.chunk)
        if not count.all():
            there = there & (count > 0)
        sends, step = op.kind == "send", int(op.step)
        node = Node(sends, peers, there, step)
        if node.count == there.size and count.size == 1:  # everybody does the same
            chunks, messages, once = count[0, 0] * there.shape[1], there.shape[1], count[0, 0]
        else:
            each = np.where(there, count, 0)
            chunks, messages, once = each.sum(axis=1), there.sum(axis=1), each.max(axis=1)
        if sends:
            self.chunks["sent"] += chunks
        else:
            self.largest = max(self.largest, int(np.max(chunks)))
            self.messages += messages
            self.chunks["received"] += chunks
            if op.kind == "reduce":
                self.chunks["reduced"] += chunks
        self.rounds[op.channel].add(node)
        self.paths[op.channel].add(replace(node, takes=once if sends else chunks))

    def _peers(self, peers: Any) -> tuple[Array, Array]:
        """Peers of shape (ranks, n), and where there are any; made once if they do not depend on the step."""
        found = self._known.get(id(peers))
        if found is None or found[0] is not peers:
            number, there = np.broadcast_arrays(np.asarray(plain(peers)), present_mask(peers))
            shape = (self.ranks, number.shape[1] if number.ndim == 2 else 1)
            if number.ndim < 2:
                number, there = number.reshape(-1, 1), there.reshape(-1, 1)
            found = peers, np.broadcast_to(number, shape), np.broadcast_to(there, shape)
            if len(self._known) > 64:
                self._known.clear()
            self._known[id(peers)] = found
        return found[1:]

    def _count(self, chunks: ChunkSet) -> Array:
        """The number of chunks of a set, 0 where it is NULL, of a shape that fits (ranks, peers)."""
        if chunks.which is not None:
            named = np.broadcast_to(present_mask(chunks.which), np.shape(plain(chunks.which)))
            return _column(named.sum(axis=-1))
        first, count, stride = (plain(x) for x in (chunks.first, chunks.count, chunks.stride))
        if np.any(stride):
            runs = (self.schedule.nchunks - first + stride - 1) // stride
            last = self.schedule.nchunks - first - (runs - 1) * stride
            count = np.where(runs > 0, (runs - 1) * count + np.minimum(count, last), 0)
        found = _column(count)
        for x in (chunks.first, chunks.count, chunks.step, chunks.stride):
            if not np.all(present_mask(x)):
                found = np.where(_column(present_mask(x)), found, 0)
        return found


def _column(x: Any) -> Array:
    array = np.asarray(x)
    return array if array.ndim == 2 else array.reshape(-1, 1)
