"""What the collectives on objects are made of: collectives on arrays, one after another.

parcel -> meet: everybody's lengths (all_gather)  -> gather, scatter, ...: the bytes (all_gatherv, ...) -> objects
                or everybody's problems -> all raise
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _core
from .arrays import Array
from .caller import Caller
from .errors import CollectiveError, InvalidArgumentError, MismatchError, TransportError
from .ops import ReduceOp
from .pickles import FAILED, LONGEST_REASON, Parcel, described, opened, unpacked
from .schedule.registry import suggest
from .user_op import UserOp
from .work import TaskWork

LARGE = 64 << 20  # bytes; above, the ranks compare the lengths with their free memory

Function = Callable[[Any, Any], Any]
NAMED: dict[str, Function] = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": min,
    "max": max,
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
}


def function_of(op: Any) -> Function:
    """The function that combines two objects; InvalidArgumentError if `op` is none, or no name of one."""
    if isinstance(op, str):
        name = op.value if isinstance(op, ReduceOp) else op
        if name not in NAMED:
            known = f"known for objects: {', '.join(NAMED)}, and functions of two objects"
            raise InvalidArgumentError(f"unknown operator {name!r}{suggest(name, NAMED)}; {known}")
        return NAMED[name]
    if not callable(op):
        raise InvalidArgumentError(f"op is {op!r}; it must be a function of two objects, or a name")
    if isinstance(op, UserOp) and op.fills:
        raise InvalidArgumentError(f"{op.name} fills arrays; objects need a function of two objects")
    made: Function = op
    return made


class Pieces(NamedTuple):
    """The pickles of all ranks, one after the other."""

    joined: Array
    lengths: list[int]


class Exchange:
    """One call of a verb on objects. Its steps are collective, and all ranks raise where one cannot go on."""

    def __init__(self, comm: Caller, form: str, timeout: float | None, root: int = -1) -> None:
        self.comm, self.form, self.root = comm, form, root
        self.rank, self.size = comm.rank, comm.size
        self.timeout = comm._limit(timeout)

    def go(self, steps: Callable[..., Any], *arguments: Any, async_op: bool) -> Any:
        """Takes the steps now, or, `async_op`, as one task when its turn has come: returns its `Work`."""
        self.comm._native()
        if async_op:
            return TaskWork(self.comm, functools.partial(steps, *arguments), self.timeout, self.form)
        try:
            return steps(*arguments)
        except KeyboardInterrupt:  # in the middle: the other ranks would wait for the rest
            self.comm._native().abort(interrupted=True)
            self.comm.abort()
            raise

    # -- steps -------------------------------------------------------------------------------------------------

    def all_gather(self, parcel: Parcel) -> list[Any]:
        """Everybody's object."""
        lengths = self.meet(parcel)[:, 0].tolist()
        return self.cut(self._call("all_gatherv", parcel.bytes(), counts=lengths), lengths)

    def gather(self, parcel: Parcel) -> Pieces | None:
        """Everybody's pickle, at the root."""
        lengths = self.meet(parcel)[:, 0].tolist()
        joined = self._call("gatherv", parcel.bytes(), counts=lengths, root=self.root)
        return None if joined is None else Pieces(joined, lengths)

    def all_to_all(self, parcel: Parcel) -> Pieces:
        """The pickles that everybody has for this rank."""
        lengths = self.meet(parcel, self.size)
        mine = lengths[:, self.rank].tolist()
        counts = lengths[self.rank].tolist(), mine
        return Pieces(self._call("all_to_allv", parcel.bytes(), counts=counts), mine)

    def broadcast(self, value: Any, parcel: Parcel) -> Any:
        """The root's object: `value` itself there, a copy elsewhere."""
        lengths = self.meet(parcel)
        if self.rank == self.root:
            self._call("broadcast", parcel.bytes(), root=self.root)
            return value
        data = np.empty(lengths[self.root, 0], np.uint8)
        return self.read(self._call("broadcast", data, root=self.root, out=data), self.root)

    def scatter(self, parcel: Parcel) -> Any:
        """What the root has for this rank."""
        lengths = self.meet(parcel, self.size)
        counts = lengths[self.root].tolist() if self.rank == self.root else None
        return self.read(self._call("scatterv", parcel.bytes(), counts=counts, root=self.root), self.root)

    def fold(self, pieces: Pieces | None, function: Callable[[list[Any]], Any]) -> tuple[Any, Parcel]:
        """`function` of the objects; None where there are none. And what went wrong, to be told to all."""
        if pieces is None:
            return None, Parcel()
        try:
            values = self.cut(*pieces)
        except CollectiveError as error:
            return None, Parcel(problem=str(error), cause=error)
        try:
            return function(values), Parcel()
        except Exception as error:
            return None, failed(error)

    # -- what these are made of --------------------------------------------------------------------------------

    def _call(self, verb: str, x: Array, **options: Any) -> Any:
        return self.comm._now(verb, x, timeout=self.timeout, **options)

    def meet(self, parcel: Parcel, slots: int = 1) -> Array:
        """All lengths, of shape (size, slots). Raises on every rank if one has a problem."""
        headers = self._call("all_gather", parcel.header(self.form, self.root, slots))
        fields = [opened(self.form, headers[peer], self.rank, peer) for peer in range(self.size)]
        for peer, (theirs, *_) in enumerate(fields):
            if theirs != self.root:
                text = f"{self.form}: root is {self.root} on rank {self.rank}, {theirs} on rank {peer}"
                raise MismatchError(text, rank=self.rank, peer=peer, collective=self.form)
        lengths = np.array([line[2:] for line in fields], np.int64)
        wrong = [peer for peer, (_, state, *_) in enumerate(fields) if state == FAILED]
        if wrong:
            self._raise(parcel, wrong, lengths[:, 0].tolist())
        self._check_memory(sum(lengths.ravel().tolist()))
        return lengths

    def _raise(self, parcel: Parcel, wrong: list[int], lengths: list[int]) -> None:
        """Everybody hears the reasons, and raises the first."""
        lengths = [min(n, LONGEST_REASON) if peer in wrong else 0 for peer, n in enumerate(lengths)]
        mine = np.array(list(parcel.problem), np.uint8)
        text = self._call("all_gatherv", mine, counts=lengths).tobytes()
        ends = [0, *itertools.accumulate(lengths)]
        reasons = [
            f"rank {peer}: {text[ends[peer] : ends[peer + 1]].decode(errors='replace')}" for peer in wrong
        ]
        raise InvalidArgumentError(
            f"{self.form}: {'; '.join(reasons)}", rank=self.rank, peer=wrong[0], collective=self.form
        ) from parcel.cause

    def _check_memory(self, total: int) -> None:
        """TransportError on every rank if what is to come does not fit the free memory of one."""
        if total <= LARGE:
            return
        free = int(self._call("all_gather", np.array([_core.available_memory()], np.int64)).min())
        if total > free:
            text = f"{self.form}: {total} bytes are announced, but only {free} bytes of memory are free"
            raise TransportError(text, rank=self.rank, collective=self.form)

    def cut(self, joined: Array, lengths: Sequence[int]) -> list[Any]:
        """The objects of all ranks, side by side in `joined`."""
        ends = [0, *itertools.accumulate(lengths)]
        return [self.read(joined[ends[peer] : ends[peer + 1]], peer) for peer in range(self.size)]

    def read(self, data: Array, peer: int) -> Any:
        """The object in `data`, which came from `peer`."""
        return unpacked(self.form, data, self.rank, peer)


def failed(error: Exception) -> Parcel:
    """`op` raised."""
    return Parcel(problem=f"op raised {described(error)}", cause=error)


def watched(op: Function, failure: list[Exception]) -> Function:
    """`op`, noting what it raises: to tell this from a result that cannot be pickled."""

    def call(a: Any, b: Any) -> Any:
        try:
            return op(a, b)
        except Exception as error:
            failure.append(error)
            raise

    return call
