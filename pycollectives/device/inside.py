"""Hierarchical calls: kernels inside the host, shards of the data between the hosts.

    all_reduce        kernels: reduce-scatter      lane: all-reduce of the shard        kernels: all-gather
    reduce_scatter    kernels: reduce-scatter      lane: reduce-scatter of H blocks
    all_gather                                     lane: all-gather of H blocks         kernels: all-gather

A lane has the ranks of one place on every host, so all ranks of a host use the network at once, each with its shard. What goes
through a lane is staged (staging.py) or goes from device to device (direct.py).

The ranks compare what they call in the kernels and in the lanes, each with the whole call in its fingerprint; outputs are written
after both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..arrays import dtype_name
from ..calls import Kind
from ..errors import CollectiveError
from ..fusion import LabelledKind
from ..ops import Operator
from .combining import Combiner
from .device import Device
from .direct import RESULT, Direct
from .options import Options
from .staging import Staging, left, wait_for

if TYPE_CHECKING:
    from ..communicator import Communicator

VERBS = ("all_reduce", "reduce_scatter", "all_gather")
SHARD, COLUMNS, ROUNDED = 0, 1, RESULT  # pieces of device memory for what lies between the steps


class Inside:
    """The parts of a communicator for its hierarchical calls: the ranks of this host, and those of this rank's lane.

    Made collectively; `members`: the ranks of each host (`even_hosts`).
    """

    def __init__(
        self,
        comm: Communicator,
        options: Options,
        number: int,
        staging: Staging,
        combiner: Combiner,
        direct: bool,
        members: list[list[int]],
    ) -> None:
        self.comm, self.staging = comm, staging
        self.columns = [list(ranks) for ranks in zip(*members, strict=True)]
        host = next(h for h, ranks in enumerate(members) if comm.rank in ranks)
        place = members[host].index(comm.rank)
        world = comm.world_ranks
        make = type(comm)._of_family
        near, far = [world[r] for r in members[host]], [world[r] for r in self.columns[place]]
        shared: dict[str, Any] = {"timeout": comm.timeout, "holds": False, "parent": comm}
        self.near = make(comm._family, f"{comm.name}/inside {host}", near, **shared)
        self.lane = make(comm._family, f"{comm.name}/lane {place}", far, **shared)
        self.device = Device(self.near, options, number)
        self.combiner = combiner
        self.direct = Direct(self.lane, staging.copies, combiner) if direct else None
        self._taken: dict[Kind, bool] = {}
        self._last: Any = None

    def takes(self, kind: Kind) -> bool:
        """Is it for kernels inside the host? The same on all ranks."""
        if (found := self._taken.get(kind)) is None:
            found = self._taken[kind] = fits(self.comm, kind)
        return found

    def call(self, kind: Kind, source: int, target: int, ready: list[Any], deadline: float) -> Any:
        """Make a call that it takes; see `Staging.call`."""
        for event in (self._last, self.combiner.last):  # the memory between the steps is used again
            if event is not None:
                wait_for(event, self.comm, deadline)
        self._last = getattr(_Way(self, kind, deadline), kind.verb)(source, target, ready)
        return self._last

    @contextmanager
    def translating(self, inner: Communicator) -> Iterator[None]:
        """Errors of a communicator inside are raised with the ranks of the whole one."""
        try:
            yield
        except CollectiveError as error:
            peer = None if error.peer is None else self.comm.world_ranks.index(inner.world_ranks[error.peer])
            name = inner.name.rpartition("/")[2]
            raise type(error)(f"in {name!r}: {error}", rank=self.comm.rank, peer=peer) from None

    def abort(self) -> None:
        """End what runs inside."""
        self.near.abort()
        self.lane.abort()
        self.device.abort()

    def close(self) -> None:
        """Leave."""
        self.device.close()
        self.near.close()
        self.lane.close()


def fits(comm: Communicator, kind: Kind) -> bool:
    """Is it for kernels inside the hosts? Where the choice is `hierarchical`, and all hosts have equally many ranks.

    Whichever of these: the lanes choose for themselves what they do between the hosts.
    """
    return (
        kind.verb in VERBS
        and kind.counts is None
        and (kind.operator is None or kind.operator.user is None)
        and even_hosts(comm) is not None
        and comm._calls.choose(kind).name.startswith("hierarchical")
    )


def even_hosts(comm: Communicator) -> list[list[int]] | None:
    """The ranks of each host, where all have equally many and more than one; else None."""
    members: list[list[int]] = [[] for _ in range(max(comm.hosts) + 1)]
    for rank, host in enumerate(comm.hosts):
        members[host].append(rank)
    return members if len(members[0]) > 1 and len(set(map(len, members))) == 1 else None


def _wide(kind: Kind) -> bool:
    """Do partial sums of this kind have another type than the data?"""
    if kind.operator is None:
        return False
    return bool(_core.is_wide(_core.DTYPES.index(dtype_name(kind.dtype))))


class _Way:
    """One call on its way."""

    def __init__(self, inside: Inside, kind: Kind, deadline: float) -> None:
        self.inside, self.kind, self.deadline = inside, kind, deadline
        self.item, self.wide = kind.dtype.itemsize, _wide(kind)
        self.partial = np.dtype(np.float32) if self.wide else kind.dtype  # of sums that are not complete
        self.label = (kind.verb, kind.count, repr(kind.operator))

    def all_reduce(self, source: int, target: int, ready: list[Any]) -> Any:
        near, n = self.inside.near, self.kind.count
        shards = [n // near.size + (r < n % near.size) for r in range(near.size)]
        mine = shards[near.rank]
        shard = self._memory(SHARD, mine, self.partial)
        counts = None if len(set(shards)) == 1 else tuple(shards)
        scattered = self._near("reduce_scatter", n, counts, source, shard, ready)
        summed = self._lane("all_reduce", mine, shard, shard, [scattered])
        if self.wide:
            partial, shard = shard, self._memory(ROUNDED, mine)
            summed = self._rounded(mine, partial, shard, summed)
        count = n if counts else mine
        return self._near("all_gather", count, counts, shard, target, [summed])

    def reduce_scatter(self, source: int, target: int, ready: list[Any]) -> Any:
        near, lane = self.inside.near, self.inside.lane
        block = self.kind.count // (near.size * lane.size)
        sorted_blocks = self._memory(COLUMNS, self.kind.count)
        column = self._memory(SHARD, lane.size * block, self.partial)
        packed = self._copies(
            [
                (sorted_blocks + i * block * self.item, source + rank * block * self.item, block * self.item)
                for i, rank in enumerate(rank for ranks in self.inside.columns for rank in ranks)
            ],
            ready,
        )
        scattered = self._near("reduce_scatter", self.kind.count, None, sorted_blocks, column, [packed])
        if not self.wide:
            return self._lane("reduce_scatter", lane.size * block, column, target, [scattered])
        mine = self._memory(ROUNDED, block, self.partial)
        summed = self._lane("reduce_scatter", lane.size * block, column, mine, [scattered])
        return self._rounded(block, mine, target, summed)

    def all_gather(self, source: int, target: int, ready: list[Any]) -> Any:
        near, lane, block = self.inside.near, self.inside.lane, self.kind.count
        column = self._memory(SHARD, lane.size * block)
        everything = self._memory(COLUMNS, near.size * lane.size * block)
        gathered = self._lane("all_gather", block, source, column, ready)
        whole = self._near("all_gather", lane.size * block, None, column, everything, [gathered])
        return self._copies(
            [
                (target + rank * block * self.item, everything + i * block * self.item, block * self.item)
                for i, rank in enumerate(rank for ranks in self.inside.columns for rank in ranks)
            ],
            [whole],
        )

    def _memory(self, which: int, elements: int, dtype: np.dtype[Any] | None = None) -> int:
        nbytes = elements * (dtype or self.kind.dtype).itemsize
        return int(self.inside.staging.copies.scratch(which, max(1, nbytes)))

    def _rounded(self, count: int, source: int, target: int, summed: Any) -> Any:
        """Complete sums in the type of the data, finished."""
        return self.inside.combiner.combine(self.kind, 1, count, source, target, [summed], wide=True)

    def _copies(self, copies: list[tuple[int, int, int]], ready: list[Any]) -> Any:
        return self.inside.device.copy(copies, ready)

    def _near(
        self,
        verb: str,
        count: int,
        counts: tuple[int, ...] | None,
        source: int,
        target: int,
        ready: list[Any],
    ) -> Any:
        """A call by kernels. The sum of a host is not complete: it is finished in the lane."""
        operator = self.kind.operator
        partial = (
            None if operator is None or verb == "all_gather" else Operator(operator.kernel, operator.kernel)
        )
        wide = self.wide and partial is not None
        named = "direct" if wide else None  # everyone's own data are added at once, and never rounded
        kind = LabelledKind(
            verb, self.kind.dtype, count, partial, named=named, counts=counts, label=self.label
        )
        device, comm = self.inside.device, self.inside.comm  # what `comm` raises has its own ranks
        inside = self.inside
        with inside.translating(inside.near):
            end = device.launch(kind, source, target, ready, left(self.deadline), wide=wide)
        wait_for(end, comm, self.deadline)  # also the last one: what the kernels found is raised here
        with inside.translating(inside.near):
            device.settle()  # it may have been given up
            device.check()
        return end

    def _lane(self, verb: str, count: int, source: int, target: int, ready: list[Any]) -> Any:
        operator = self.kind.operator
        if self.wide and operator is not None:  # finished when it is rounded
            operator = Operator(operator.kernel, operator.kernel)
        dtype = self.kind.dtype if operator is None else self.partial
        kind = LabelledKind(verb, dtype, count, operator, label=self.label)
        lane, direct = self.inside.lane, self.inside.direct
        with self.inside.translating(lane):
            if direct is not None:
                return direct.call(kind, source, target, ready, self.deadline)
            return self.inside.staging.call(lane, kind, source, target, ready, self.deadline)
