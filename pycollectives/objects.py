"""Collectives on Python objects: pickles of any size, carried by the collectives on arrays.

    value -> pickle -> lengths to all (all_gather) -> bytes (all_gatherv, gatherv, ...) -> unpickle -> value

A rank whose object cannot be pickled says so in place of a length; then no pickles are moved and every rank
raises. What is trusted is written down in pickles.py.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core
from .arrays import Array
from .errors import CollectiveError, InvalidArgumentError, MismatchError, TransportError
from .group import deferrable
from .pickles import FAILED, LONGEST_REASON, Parcel, described, opened, unpacked
from .uneven import Uneven
from .verbs import Verbs

LARGE = 64 << 20  # bytes; above, the ranks compare the lengths with their free memory


class Objects(Verbs, Uneven):
    """The collectives on objects; `Communicator` inherits them.

    Objects are pickled with protocol 5; unpickling runs the sender's code, so they trust the ranks of the
    job.

    If an object cannot be pickled, or `op` raises, InvalidArgumentError is raised on every rank and names
    the rank at fault; the communicator stays usable. Damaged lengths, and lengths beyond the free memory,
    are a TransportError before anything is allocated; ranks in different verbs get MismatchError. What
    arrives but cannot be unpickled is a CollectiveError on that rank. In a `group()` they are made at its
    end. `timeout` holds for each of the collectives on arrays that they consist of.
    """

    @deferrable
    def all_gather_object(self, value: Any, *, timeout: float | None = None) -> Any:
        """Every rank's `value`: a list in rank order. All entries are copies, the rank's own too."""
        parcel = Parcel.of(value)
        lengths = self._meet("all_gather_object", parcel, timeout)[:, 0].tolist()
        joined = self.all_gatherv(parcel.bytes(), lengths, timeout=timeout)
        return self._cut("all_gather_object", joined, lengths)

    @deferrable
    def gather_object(self, value: Any, *, root: int = 0, timeout: float | None = None) -> Any:
        """Every rank's `value` at `root`: a list in rank order; the others get None."""
        return self._gather("gather_object", value, self._root(root), timeout)

    @deferrable
    def broadcast_object(self, value: Any = None, *, root: int = 0, timeout: float | None = None) -> Any:
        """`root`'s `value`: the object itself there, a copy elsewhere, where the argument is ignored."""
        root = self._root(root)
        parcel = Parcel.of(value) if self.rank == root else Parcel()
        return self._broadcast("broadcast_object", value, parcel, root, timeout)

    @deferrable
    def scatter_object(
        self, values: Sequence[Any] | None = None, *, root: int = 0, timeout: float | None = None
    ) -> Any:
        """A copy of `root`'s `values[rank]`; `values` has one entry per rank there and counts only there."""
        root = self._root(root)
        parcel = self._one_each(values) if self.rank == root else Parcel()
        return self._scatter("scatter_object", parcel, root, timeout)

    @deferrable
    def all_to_all_object(self, values: Sequence[Any], *, timeout: float | None = None) -> Any:
        """`values[i]` to rank i, for all i; returns what the ranks sent here: a list in rank order."""
        form, parcel = "all_to_all_object", self._one_each(values)
        lengths = self._meet(form, parcel, timeout, slots=self.size)
        mine = lengths[:, self.rank].tolist()
        joined = self.all_to_allv(parcel.bytes(), lengths[self.rank].tolist(), mine, timeout=timeout)
        return self._cut(form, joined, mine)

    @deferrable
    def reduce_object(
        self,
        value: Any,
        op: Callable[[Any, Any], Any] = operator.add,
        *,
        root: int = 0,
        timeout: float | None = None,
    ) -> Any:
        """op(...op(op(v0, v1), v2)...) of the ranks' values, in rank order, at `root`; the others get None.

        `op` is called at `root` only, on copies of the values.
        """
        form, root = "reduce_object", self._root(root)
        result, parcel = self._at_root(form, value, functools.partial(functools.reduce, op), root, timeout)
        self._meet(form, parcel, timeout, root)  # did it go well?
        return result

    @deferrable
    def all_reduce_object(
        self, value: Any, op: Callable[[Any, Any], Any] = operator.add, *, timeout: float | None = None
    ) -> Any:
        """op(...op(op(v0, v1), v2)...) of the ranks' values, in rank order, on every rank.

        `op` is called on rank 0 only, on copies of the values; the others get copies of its result.
        """
        form = "all_reduce_object"
        result, parcel = self._at_root(form, value, functools.partial(functools.reduce, op), 0, timeout)
        if self.rank == 0 and not parcel.problem:
            parcel = Parcel.of(result)
        return self._broadcast(form, result, parcel, 0, timeout)

    @deferrable
    def scan_object(
        self, value: Any, op: Callable[[Any, Any], Any] = operator.add, *, timeout: float | None = None
    ) -> Any:
        """`reduce_object` of the ranks 0 to r, on rank r (inclusive prefix).

        `op` is called on rank 0 only, on copies of the values; every rank gets a copy of its result.
        """
        form, failure = "scan_object", list[Exception]()
        values, parcel = self._at_root(form, value, list, 0, timeout)
        if self.rank == 0 and not parcel.problem:
            prefixes = itertools.accumulate(values, _watched(op, failure))
            parcel = Parcel.of_each(prefixes, "the result of op for rank {}")
            if failure:
                parcel = _failed(failure[0])
        return self._scatter(form, parcel, 0, timeout)

    # -- what they are made of -----------------------------------------------------------------------------

    def _meet(
        self, form: str, parcel: Parcel, timeout: float | None, root: int = -1, slots: int = 1
    ) -> Array:
        """All lengths, of shape (size, slots). Raises on every rank if one has a problem."""
        headers = self.all_gather(parcel.header(form, root, slots), timeout=timeout)
        fields = [opened(form, headers[peer], self.rank, peer) for peer in range(self.size)]
        for peer, (theirs, *_) in enumerate(fields):
            if theirs != root:
                text = f"{form}: root is {root} on rank {self.rank}, {theirs} on rank {peer}"
                raise MismatchError(text, rank=self.rank, peer=peer, collective=form)
        lengths = np.array([line[2:] for line in fields], np.int64)
        failed = [peer for peer, (_, state, *_) in enumerate(fields) if state == FAILED]
        if failed:
            self._raise(form, parcel, failed, lengths[:, 0].tolist(), timeout)
        self._check_memory(form, sum(lengths.ravel().tolist()), timeout)
        return lengths

    def _raise(
        self, form: str, parcel: Parcel, failed: list[int], lengths: list[int], timeout: float | None
    ) -> None:
        """Everybody hears the reasons, and raises the first."""
        lengths = [min(n, LONGEST_REASON) if peer in failed else 0 for peer, n in enumerate(lengths)]
        mine = np.array(list(parcel.problem), np.uint8)
        text = self.all_gatherv(mine, lengths, timeout=timeout).tobytes()
        ends = [0, *itertools.accumulate(lengths)]
        reasons = [
            f"rank {peer}: {text[ends[peer] : ends[peer + 1]].decode(errors='replace')}" for peer in failed
        ]
        raise InvalidArgumentError(
            f"{form}: {'; '.join(reasons)}", rank=self.rank, peer=failed[0], collective=form
        ) from parcel.cause

    def _check_memory(self, form: str, total: int, timeout: float | None) -> None:
        """TransportError on every rank if what is to come does not fit the free memory of one."""
        if total <= LARGE:
            return
        free = int(self.all_gather(np.array([_core.available_memory()], np.int64), timeout=timeout).min())
        if total > free:
            text = f"{form}: {total} bytes are announced, but only {free} bytes of memory are free"
            raise TransportError(text, rank=self.rank, collective=form)

    def _gather(self, form: str, value: Any, root: int, timeout: float | None) -> list[Any] | None:
        parcel = Parcel.of(value)
        lengths = self._meet(form, parcel, timeout, root)[:, 0].tolist()
        joined = self.gatherv(parcel.bytes(), lengths, root=root, timeout=timeout)
        return None if joined is None else self._cut(form, joined, lengths)

    def _at_root(
        self, form: str, value: Any, fold: Callable[[list[Any]], Any], root: int, timeout: float | None
    ) -> tuple[Any, Parcel]:
        """`fold` of everybody's values at `root`, None elsewhere; and what went wrong there."""
        parcel = Parcel.of(value)
        lengths = self._meet(form, parcel, timeout, root)[:, 0].tolist()
        joined = self.gatherv(parcel.bytes(), lengths, root=root, timeout=timeout)
        if joined is None:
            return None, Parcel()
        try:
            values = self._cut(form, joined, lengths)
        except CollectiveError as error:
            return None, Parcel(problem=str(error), cause=error)
        try:
            return fold(values), Parcel()
        except Exception as error:
            return None, _failed(error)

    def _broadcast(self, form: str, value: Any, parcel: Parcel, root: int, timeout: float | None) -> Any:
        lengths = self._meet(form, parcel, timeout, root)
        at_root = self.rank == root
        data = parcel.bytes() if at_root else np.empty(self._from(lengths, root)[0], np.uint8)
        arrived = self.broadcast(data, root=root, out=None if at_root else data, timeout=timeout)
        return value if at_root else unpacked(form, arrived, self.rank, root)

    def _scatter(self, form: str, parcel: Parcel, root: int, timeout: float | None) -> Any:
        lengths = self._meet(form, parcel, timeout, root, self.size)
        counts = self._from(lengths, root) if self.rank == root else None
        return unpacked(
            form, self.scatterv(parcel.bytes(), counts, root=root, timeout=timeout), self.rank, root
        )

    @staticmethod
    def _from(lengths: Array, root: int) -> list[int]:
        found: list[int] = lengths[root].tolist()
        return found

    def _one_each(self, values: Any) -> Parcel:
        """The pickles of one value for every rank."""
        try:
            given = list(values)
        except Exception as error:
            return Parcel(problem=f"values is {type(values).__name__}, not a sequence: {error}", cause=error)
        if len(given) != self.size:
            return Parcel(problem=f"values has {len(given)} entries; it must have {self.size}, one per rank")
        return Parcel.of_each(given)

    def _cut(self, form: str, joined: Array, lengths: Sequence[int]) -> list[Any]:
        ends = [0, *itertools.accumulate(lengths)]
        return [
            unpacked(form, joined[ends[peer] : ends[peer + 1]], self.rank, peer) for peer in range(self.size)
        ]


def _failed(error: Exception) -> Parcel:
    return Parcel(problem=f"op raised {described(error)}", cause=error)


def _watched(op: Callable[[Any, Any], Any], failure: list[Exception]) -> Callable[[Any, Any], Any]:
    """`op`, noting what it raises: to tell this from a result that cannot be pickled."""

    def call(a: Any, b: Any) -> Any:
        try:
            return op(a, b)
        except Exception as error:
            failure.append(error)
            raise

    return call
