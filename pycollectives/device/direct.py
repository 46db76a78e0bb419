"""Calls whose data go from device to device by MPI, where it takes device pointers; with GPUDirect RDMA no byte touches the host.

    all_gather, gather, scatter, all_to_all    one exchange: every block from where it is to where it belongs
    broadcast                                  two: the root scatters, all gather
    reduce_scatter                             block r of everyone to rank r, which combines them in rank order (combining.py)
    all_reduce, reduce                         that, and an exchange of the results

The ranks compare what they call first, by a barrier of the host communicator. What is combined is rounded once, in the order of
the ranks: the left fold, as the algorithm `direct` does it.

source   Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, 2005 (reduce-scatter by
         pairwise exchange, scatter and all-gather)
"""

from __future__ import annotations

import time
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..calls import Kind
from ..errors import CollectiveTimeoutError
from ..fusion import LabelledKind
from .combining import Combiner
from .extension import chosen_device
from .pieces import cut
from .staging import LOOK, left, wait_for

if TYPE_CHECKING:
    from ..communicator import Communicator

VERBS = (
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
)
PIECE = 64 << 20  # bytes of the whole vector that are received at once, to be combined
RECEIVED, RESULT = (2, 3), 4  # pieces of device memory

Messages = list[tuple[int, int, int]]  # rank, address, bytes


class Direct:
    """The calls of one communicator: all ranks, or a lane."""

    def __init__(self, comm: Communicator, copies: Any, combiner: Combiner) -> None:
        network = comm._network
        assert network is not None
        self.comm, self._copies, self._combiner = comm, copies, combiner
        self._exchanger = _core.DirectExchange(
            comm._native(), network.library, network.handle, list(comm.world_ranks), comm._first_tag
        )
        self._others = [(comm.rank + i) % comm.size for i in range(1, comm.size)]

    @staticmethod
    def takes(kind: Kind) -> bool:
        """Not prefixes, users' operators, and algorithms that are asked for by name."""
        user = kind.operator is not None and kind.operator.user is not None
        return kind.verb in VERBS and not user and kind.named is None

    def call(self, kind: Kind, source: int, target: int, ready: list[Any], deadline: float) -> Any:
        """Make a call when the events `ready` have come; the event of its end. In the order of the calls of the communicator."""
        token = LabelledKind("barrier", np.dtype(np.uint8), 0, label=("before", repr(kind)))
        self.comm._native().run(self.comm._calls.find(token), 0, 0, left(deadline))
        if self._combiner.last is not None:  # the memory between the steps is used again
            ready = [*ready, self._combiner.last]
        for event in ready:
            wait_for(event, self.comm, deadline)
        return _Way(self, kind, deadline).make(source, target)

    def exchange(self, receives: Messages, sends: Messages, deadline: float) -> None:
        """Move messages. Raises TransportError, PeerError, CollectiveTimeoutError."""
        with chosen_device(self._combiner.module, self._combiner.number):  # MPI works on the current one
            try:
                self._exchanger.start(receives, sends)
                while not self._exchanger.wait(LOOK):
                    self.comm._native().check()
                    if time.monotonic() > deadline:
                        raise CollectiveTimeoutError(
                            "a call between devices of several hosts did not end in time", rank=self.comm.rank
                        )
            except BaseException:
                self._exchanger.give_up()  # nothing may come to the caller's memory after this
                raise


class _Way:
    """One call on its way."""

    def __init__(self, direct: Direct, kind: Kind, deadline: float) -> None:
        self.direct, self.kind, self.deadline = direct, kind, deadline
        self.rank, self.size, self.others = direct.comm.rank, direct.comm.size, direct._others
        self.item = kind.dtype.itemsize
        self.blocks, self.sent, self.taken = direct.comm._calls.elements(kind)

    def make(self, source: int, target: int) -> Any:
        end: Any = getattr(self, self.kind.verb)(source, target)
        return end

    # -- what is only moved --------------------------------------------------------------------------------------------

    def all_gather(self, source: int, target: int) -> Any:
        return self._gather(source, target, self.blocks, range(self.size))

    def gather(self, source: int, target: int) -> Any:
        return self._gather(source, target, self.blocks, [self.kind.root])

    def _gather(self, source: int, target: int, blocks: list[int], roots: Any) -> Any:
        """Everyone's block to all `roots`; `source` is the own one."""
        at, mine = self._offsets(blocks), blocks[self.rank] * self.item
        here = self.rank in roots
        receives = [(r, target + at[r], blocks[r] * self.item) for r in self.others if here]
        self._exchange(receives, [(r, source, mine) for r in self.others if r in roots])
        return self._copy([(target + at[self.rank], source, mine)] if here else [])

    def scatter(self, source: int, target: int) -> Any:
        self._scatter(source, target, self.blocks)
        at, root = self._offsets(self.blocks), self.kind.root
        mine = self.blocks[self.rank] * self.item
        return self._copy([(target, source + at[root], mine)] if self.rank == root else [])

    def _scatter(self, source: int, target: int, blocks: list[int]) -> None:
        """The root's blocks to the others."""
        at, root = self._offsets(blocks), self.kind.root
        if self.rank == root:
            self._exchange([], [(r, source + at[r], blocks[r] * self.item) for r in self.others])
        else:
            self._exchange([(root, target, blocks[self.rank] * self.item)], [])

    def broadcast(self, source: int, target: int) -> Any:
        blocks, root = self._evenly(self.kind.count), self.kind.root
        at, here = self._offsets(blocks), self.rank == root
        self._scatter(source, target + at[self.rank], blocks)
        mine = (source if here else target) + at[self.rank]
        receives = [(r, target + at[r], blocks[r] * self.item) for r in self.others if not here]
        self._exchange(receives, [(r, mine, blocks[self.rank] * self.item) for r in self.others if r != root])
        return self._copy([(target, source, self.kind.count * self.item)] if here else [])

    def all_to_all(self, source: int, target: int) -> Any:
        out, into = self._offsets(self.sent), self._offsets(self.taken)
        self._exchange(
            [(r, target + into[r], self.taken[r] * self.item) for r in self.others],
            [(r, source + out[r], self.sent[r] * self.item) for r in self.others],
        )
        mine = self.sent[self.rank] * self.item
        return self._copy([(target + into[self.rank], source + out[self.rank], mine)])

    # -- what is combined ----------------------------------------------------------------------------------------------

    def reduce_scatter(self, source: int, target: int) -> Any:
        return self._combine(source, target, self.blocks)

    def all_reduce(self, source: int, target: int) -> Any:
        blocks = self._evenly(self.kind.count)
        mine = target + self._offsets(blocks)[self.rank]
        wait_for(self._combine(source, mine, blocks), self.direct.comm, self.deadline)
        return self._gather(mine, target, blocks, range(self.size))

    def reduce(self, source: int, target: int) -> Any:
        blocks = self._evenly(self.kind.count)
        mine = self._memory(RESULT, blocks[self.rank])
        wait_for(self._combine(source, mine, blocks), self.direct.comm, self.deadline)
        return self._gather(mine, target, blocks, [self.kind.root])

    def _combine(self, source: int, target: int, blocks: list[int]) -> Any:
        """Block `rank` of everyone's `source`, combined, at `target`, in pieces: one is combined while the next one comes."""
        kind, comm = self.kind, self.direct.comm
        whole = LabelledKind("reduce_scatter", kind.dtype, sum(blocks), kind.operator, counts=tuple(blocks))
        ends: list[Any] = []
        for i, piece in enumerate(cut(comm._calls, whole, PIECE)):
            if i > 1:  # the memory may be replaced by a larger piece of it
                wait_for(ends[i - 2], comm, self.deadline)
            first, n = piece.gives[0]
            received = self._memory(RECEIVED[i % 2], self.size * n)
            own = source + piece.takes[self.rank][0] * self.item
            copied = self._copy([(received + self.rank * n * self.item, own, n * self.item)])
            self._exchange(
                [(r, received + r * n * self.item, n * self.item) for r in self.others],
                [
                    (r, source + piece.takes[r][0] * self.item, piece.takes[r][1] * self.item)
                    for r in self.others
                ],
            )
            ends.append(
                self.direct._combiner.combine(
                    kind, self.size, n, received, target + first * self.item, [copied]
                )
            )
        return ends[-1]

    # -- tools -----------------------------------------------------------------------------------------------------------

    def _offsets(self, blocks: list[int]) -> list[int]:
        """Where blocks begin, in bytes."""
        return [0, *(n * self.item for n in accumulate(blocks))]

    def _evenly(self, count: int) -> list[int]:
        return [count // self.size + (r < count % self.size) for r in range(self.size)]

    def _exchange(self, receives: Messages, sends: Messages) -> None:
        self.direct.exchange(receives, sends, self.deadline)

    def _copy(self, copies: list[tuple[int, int, int]]) -> Any:
        return self.direct._combiner.copy(copies, [])

    def _memory(self, which: int, elements: int) -> int:
        return int(self.direct._copies.scratch(which, max(1, elements * self.item)))
