"""The fusion buffer of a group: the arrays of several calls side by side, moved by one call.

columns       a      b        d
row 0      [  ...  |  ..  |  ....  ]      one row, or one for every rank where the verb cuts its input
   ...     [  ...  |  ..  |  ....  ]      (reduce_scatter, scatter, all_to_all) or joins its results
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .arguments import Arguments
from .arrays import Array, address, dtype_name, share_memory
from .calls import Kind
from .errors import AbortedError, InvalidArgumentError
from .schedule import COLLECTIVES
from .work import Work

if TYPE_CHECKING:
    from .communicator import Communicator

SPLITS = ("reduce_scatter", "scatter", "all_to_all")  # the input has one row per rank
JOINS = ("all_gather", "gather", "all_to_all")  # the result has

_bytes = np.dtype(np.uint8)


@dataclass(frozen=True)
class LabelledKind(Kind):
    """A kind of call with more for the ranks to agree on: `label` is part of the fingerprint."""

    label: tuple[Any, ...] = ()


class Pending(Work):
    """A call inside `comm.group()`. `wait()` returns its result once the block is over."""

    def __init__(self, call: str | Kind) -> None:
        self._call = call
        self._finished = False
        self._result: Any = None
        self._error: BaseException | None = None

    @property
    def text(self) -> str:
        """What is called, in words."""
        call = self._call
        return call if isinstance(call, str) else f"{call.verb}({call.dtype}[{call.count}])"

    def done(self) -> bool:
        """Has the call been made?"""
        return self._finished

    def wait(self, timeout: float | None = None) -> Any:
        """The result. Raises InvalidArgumentError inside the block, AbortedError if the block raised."""
        if self._error is not None:
            raise AbortedError(
                f"{self.text} was not made: its group ended with {self._error!r}"
            ) from self._error
        if not self._finished:
            raise InvalidArgumentError(
                f"{self.text} is made at the end of its group: wait() belongs after the block"
            )
        return self._result

    def finish(self, result: Any) -> None:
        """The call has been made."""
        self._result, self._finished = result, True

    def fail(self, error: BaseException) -> None:
        """It will never be."""
        if not self._finished:
            self._error = error

    def __repr__(self) -> str:
        state = "failed" if self._error is not None else "done" if self._finished else "pending"
        return f"<{type(self).__name__} {self.text} {state}>"


class Item(NamedTuple):
    """One call in a bucket: `width` elements in each of its rows."""

    pending: Pending
    position: int
    arguments: Arguments
    width: int


@dataclass
class Bucket:
    """Calls that become one; side by side in the columns of a fusion buffer."""

    limit: int
    timeout: float
    items: list[Item] = field(default_factory=list)
    nbytes: int = 0

    def has_room(self, nbytes: int) -> bool:
        """May `nbytes` more go in?"""
        return self.nbytes + nbytes <= self.limit

    def add(self, item: Item, nbytes: int, timeout: float) -> None:
        """One more call; the shortest timeout counts."""
        self.items.append(item)
        self.nbytes += nbytes
        self.timeout = min(self.timeout, timeout)

    def run(self, comm: Communicator) -> None:
        """Pack, make the call, unpack."""
        first = self.items[0].arguments.kind
        contract = COLLECTIVES[first.verb]
        dtype = first.dtype if contract.reduces else _bytes
        ends = np.cumsum(
            [0, *(item.width * item.arguments.kind.dtype.itemsize // dtype.itemsize for item in self.items)]
        ).tolist()
        rows_in = comm.size if first.verb in SPLITS else 1
        rows_out = comm.size if first.verb in JOINS else 1
        source = np.empty((rows_in, ends[-1]), dtype)
        columns = [slice(a, b) for a, b in itertools.pairwise(ends)]
        if contract.input != "root" or comm.rank == first.root:
            for item, place in zip(self.items, columns, strict=True):
                x = item.arguments.x
                source[:, place].view(x.dtype)[...] = x.reshape(rows_in, item.width)
        target = (
            None if self.items[0].arguments.buffers.out is None else np.empty((rows_out, ends[-1]), dtype)
        )
        kind = LabelledKind(
            first.verb,
            dtype,
            rows_in * ends[-1],
            first.operator,
            first.root,
            first.named,
            first.deterministic,
            label=tuple(
                (item.position, dtype_name(item.arguments.kind.dtype), item.width) for item in self.items
            ),
        )
        prepared = comm._calls.find(kind)
        comm._native().run(prepared, address(source), 0 if target is None else address(target), self.timeout)
        for item, place in zip(self.items, columns, strict=True):
            result = item.arguments.buffers.result
            if target is not None and result is not None:
                _fill(result, target[:, place].view(result.dtype))
            item.pending.finish(result)


def _fill(result: Array, rows: Array) -> None:
    if result.flags.c_contiguous:
        result.reshape(rows.shape)[...] = rows
    else:
        result[...] = rows.reshape(result.shape)


class Use(NamedTuple):
    """A call reads or writes an array."""

    array: Array
    call: int
    writes: bool


def clash(uses: Sequence[Use]) -> tuple[int, int] | None:
    """Two calls that share memory which one of them writes."""
    spans = sorted(((*_bounds(use.array), use) for use in uses if use.array.size), key=lambda span: span[0])
    near: list[tuple[int, int, Use]] = []
    for span in spans:
        low, _, use = span
        near = [other for other in near if other[1] > low]
        for _, _, other in near:
            if (
                use.call != other.call
                and (use.writes or other.writes)
                and share_memory(use.array, other.array)
            ):
                return min(use.call, other.call), max(use.call, other.call)
        near.append(span)
    return None


def _bounds(array: Array) -> tuple[int, int]:
    if array.flags.c_contiguous:
        begin = address(array)
        return begin, begin + array.nbytes
    return np.lib.array_utils.byte_bounds(array)
