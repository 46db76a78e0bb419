"""How long a schedule takes where messages take time and all else nothing.

A message takes 1 (the result is the number of rounds), or as long as it has chunks (the longest path of the data). A
rank can send and receive at the same time. Within a step it starts a send at once, or when what it has
received before is there; a receive takes its time, or longer if the message comes later. Its next step begins
when all of this one is done. Channels run side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass
class Node:
    """One operation of all ranks: peers of shape (ranks, n), which of them are there, and how long it takes each rank."""

    sends: bool
    peers: Array
    there: Array
    step: int
    takes: Array | int = 1  # (ranks,), or the same for all
    count: int = field(init=False)  # of messages

    def __post_init__(self) -> None:
        self.count = int(np.count_nonzero(self.there))

    def pairs(self) -> Array:
        """A number for every message, the same at both ends."""
        n = len(self.peers)
        rank, peer = np.arange(n, dtype=np.uint64)[:, None], self.peers.astype(np.uint64)
        number = rank * np.uint64(n) + peer if self.sends else peer * np.uint64(n) + rank
        return np.broadcast_to(number, self.there.shape)[self.there]

    def digest(self) -> int:
        """The set of messages in short."""
        mixed = self.pairs() * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        return int(mixed.sum(dtype=np.uint64))


class Clock:
    """The times of all ranks on one channel.

    Operations run in batches in which every message has both of its ends: one step of a ring, a whole tree.
    """

    def __init__(self, ranks: int) -> None:
        self.start = np.zeros(ranks, dtype=np.int64)  # when a rank has begun its step
        self.now = np.zeros(ranks, dtype=np.int64)  # when it can start its next operation
        self.done = np.zeros(ranks, dtype=np.int64)  # when all that it has started is done
        self.step = 0
        self._batch: list[Node] = []
        self._open = 0  # sends without receive in the batch
        self._digests: dict[tuple[int, int, bool], tuple[Node, int]] = {}

    def add(self, node: Node) -> None:
        """The next operation in program order."""
        if not node.count:
            return
        self._batch.append(node)
        self._open += node.count if node.sends else -node.count
        if self._open == 0 and self._matches():
            self.flush()

    def flush(self) -> None:
        """Run what is left."""
        if self._batch:
            self._run(self._batch)
        self._batch, self._open = [], 0

    def end(self) -> int:
        """The time when all is done."""
        self.flush()
        return int(max(self.now.max(), self.done.max()))

    def _matches(self) -> bool:
        total = 0
        for node in self._batch:
            total += self._digest(node) if node.sends else -self._digest(node)
        return total % (1 << 64) == 0

    def _digest(self, node: Node) -> int:
        key = (id(node.peers), id(node.there), node.sends)
        if key not in self._digests:
            if len(self._digests) > 64:
                self._digests.clear()
            self._digests[key] = node, node.digest()  # the node keeps its arrays, and so their ids, alive
        return self._digests[key][1]

    def _run(self, batch: list[Node]) -> None:
        """Until no time changes: once where receives are after their sends, else once per level of a tree."""
        order = [node for node in batch if node.sends]
        sources = self._sources(batch, order)
        starts = np.zeros((len(order), len(self.now)), dtype=np.int64)
        again = not batch[0].sends or len(batch) > 2
        for _ in range(len(self.now) * len(batch) + 1):
            start, now, done, step = self.start, self.now.copy(), self.done.copy(), self.step
            before, sends = starts.copy(), iter(starts)
            for node, source in zip(batch, sources, strict=True):
                if node.step != step:
                    start, step = np.maximum(now, done, out=now).copy(), node.step
                if source is None:
                    next(sends)[:] = now
                    np.maximum(done, now + node.takes, out=done, where=node.there.any(axis=1))
                    continue
                begin = np.where(node.there, np.maximum(starts[source], start[:, None]), -1).max(axis=1)
                arrival = np.where(begin < 0, 0, begin + node.takes)
                np.maximum(now, arrival, out=now)
                np.maximum(done, now, out=done)
            if not again or (before == starts).all():
                break
        self.start, self.now, self.done, self.step = start, now, done, step

    def _sources(self, batch: list[Node], order: list[Node]) -> list[Any]:
        """For each receive the index (send, rank) of the start of each of its messages; None for a send."""
        if len(order) == 1:
            return [None if node.sends else (0, node.peers) for node in batch]
        taken = [node for node in batch if not node.sends]
        sent = np.concatenate([node.pairs() for node in order])
        number = np.repeat(np.arange(len(order)), [node.count for node in order])
        number = number[np.argsort(sent, kind="stable")]  # sends of a pair in program order
        received = np.concatenate([node.pairs() for node in taken])
        which = np.zeros(len(received), dtype=np.int64)
        if len(received) == len(sent):
            which[np.argsort(received, kind="stable")] = number
        found: list[Any] = []
        first = 0
        for node in batch:
            if node.sends:
                found.append(None)
                continue
            index = np.zeros(node.there.shape, dtype=np.int64)
            index[node.there] = which[first : first + node.count]
            first += node.count
            found.append((index, node.peers))
        return found
