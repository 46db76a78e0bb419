"""Collectives on Python objects: pickles of any size, carried by the collectives on arrays.

    value -> pickle -> lengths to all (all_gather) -> bytes (all_gatherv, gatherv, ...) -> unpickle -> value

A rank whose object cannot be pickled says so in place of a length; then no pickles are moved and every rank
raises. What is trusted is written down in pickles.py, the steps are in object_exchange.py.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from .caller import Caller
from .group import deferrable
from .object_exchange import Exchange, Function, failed, function_of, watched
from .pickles import Parcel

Op = Function | str


class Objects(Caller):
    """The collectives on objects; `Communicator` inherits them.

    Objects are pickled with protocol 5, before the call returns; unpickling runs the sender's code, so they
    trust the ranks of the job. Objects are of any size, so there are no uneven forms. `op`: a function of
    two objects, of which the first is from the lower ranks, or "sum" (a + b), "prod", "min", "max", "band",
    "bor", "bxor"; it is applied in rank order, to copies of the values, in whatever thread executes the call.

    If an object cannot be pickled, or `op` raises, InvalidArgumentError is raised on every rank and names
    the rank at fault; the communicator stays usable. Damaged lengths, and lengths beyond the free memory,
    are a TransportError before anything is allocated; ranks in different verbs get MismatchError. What
    arrives but cannot be unpickled is a CollectiveError on that rank.

    `async_op=True` returns a `Work` at once, whose `wait()` returns the object or raises. `comm.plan(verb,
    ...)` takes the options without the object, and is called with the next one. In a `group()` they are
    made at its end. `timeout` holds for each of the collectives on arrays that they consist of.
    """

    @deferrable
    def all_gather_object(self, value: Any, *, async_op: bool = False, timeout: float | None = None) -> Any:
        """Every rank's `value`: a list in rank order. All entries are copies, the rank's own too."""
        exchange = Exchange(self, "all_gather_object", timeout)
        return exchange.go(exchange.all_gather, Parcel.of(value), async_op=async_op)

    @deferrable
    def gather_object(
        self, value: Any, *, root: int = 0, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """Every rank's `value` at `root`: a list in rank order; the others get None."""
        exchange = Exchange(self, "gather_object", timeout, self._root(root))

        def steps(parcel: Parcel) -> list[Any] | None:
            pieces = exchange.gather(parcel)
            return None if pieces is None else exchange.cut(*pieces)

        return exchange.go(steps, Parcel.of(value), async_op=async_op)

    @deferrable
    def broadcast_object(
        self, value: Any = None, *, root: int = 0, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """`root`'s `value`: the object itself there, a copy elsewhere, where the argument is ignored."""
        exchange = Exchange(self, "broadcast_object", timeout, self._root(root))
        parcel = Parcel.of(value) if self.rank == exchange.root else Parcel()
        return exchange.go(exchange.broadcast, value, parcel, async_op=async_op)

    @deferrable
    def scatter_object(
        self,
        values: Sequence[Any] | None = None,
        *,
        root: int = 0,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """A copy of `root`'s `values[rank]`; `values` has one entry per rank there and counts only there."""
        exchange = Exchange(self, "scatter_object", timeout, self._root(root))
        parcel = self._one_each(values) if self.rank == exchange.root else Parcel()
        return exchange.go(exchange.scatter, parcel, async_op=async_op)

    @deferrable
    def all_to_all_object(
        self, values: Sequence[Any], *, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """`values[i]` to rank i, for all i; returns what the ranks sent here: a list in rank order."""
        exchange = Exchange(self, "all_to_all_object", timeout)

        def steps(parcel: Parcel) -> list[Any]:
            return exchange.cut(*exchange.all_to_all(parcel))

        return exchange.go(steps, self._one_each(values), async_op=async_op)

    @deferrable
    def reduce_object(
        self,
        value: Any,
        op: Op = operator.add,
        *,
        root: int = 0,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """op(...op(op(v0, v1), v2)...) of the ranks' values, in rank order, at `root`; the others get None.

        `op` is called at `root` only.
        """
        exchange = Exchange(self, "reduce_object", timeout, self._root(root))
        fold = _fold(op)

        def steps(parcel: Parcel) -> Any:
            result, state = exchange.fold(exchange.gather(parcel), fold)
            exchange.meet(state)  # did it go well?
            return result

        return exchange.go(steps, Parcel.of(value), async_op=async_op)

    @deferrable
    def all_reduce_object(
        self, value: Any, op: Op = operator.add, *, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """op(...op(op(v0, v1), v2)...) of the ranks' values, in rank order, on every rank.

        `op` is called on rank 0 only; the others get copies of its result.
        """
        exchange = Exchange(self, "all_reduce_object", timeout, 0)
        fold = _fold(op)

        def steps(parcel: Parcel) -> Any:
            result, state = exchange.fold(exchange.gather(parcel), fold)
            if self.rank == 0 and not state.problem:
                state = Parcel.of(result)
            return exchange.broadcast(result, state)

        return exchange.go(steps, Parcel.of(value), async_op=async_op)

    @deferrable
    def reduce_scatter_object(
        self,
        values: Sequence[Any],
        op: Op = operator.add,
        *,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """op(...op(op(v0, v1), v2)...) of the ranks' `values[r]`, in rank order, on rank r.

        `values` has one entry per rank. `op` is called on every rank.
        """
        exchange = Exchange(self, "reduce_scatter_object", timeout)
        fold = _fold(op)

        def steps(parcel: Parcel) -> Any:
            result, state = exchange.fold(exchange.all_to_all(parcel), fold)
            exchange.meet(state)  # did it go well everywhere?
            return result

        return exchange.go(steps, self._one_each(values), async_op=async_op)

    @deferrable
    def scan_object(
        self, value: Any, op: Op = operator.add, *, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """`reduce_object` of the ranks 0 to r, on rank r (inclusive prefix).

        `op` is called on rank 0 only; every rank gets a copy of its result.
        """
        return self._prefixes("scan_object", value, op, 0, async_op, timeout)

    @deferrable
    def exscan_object(
        self, value: Any, op: Op = operator.add, *, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """`reduce_object` of the ranks 0 to r - 1, on rank r (exclusive prefix). Rank 0 gets None.

        `op` is called on rank 0 only; every rank gets a copy of its result.
        """
        return self._prefixes("exscan_object", value, op, 1, async_op, timeout)

    def _prefixes(
        self, form: str, value: Any, op: Op, shift: int, async_op: bool, timeout: float | None
    ) -> Any:
        exchange = Exchange(self, form, timeout, 0)
        combine = function_of(op)

        def steps(parcel: Parcel) -> Any:
            values, state = exchange.fold(exchange.gather(parcel), list)
            if self.rank == 0 and not state.problem:
                failure = list[Exception]()
                found = itertools.accumulate(values[: self.size - shift], watched(combine, failure))
                results = itertools.chain([None] * shift, found)
                state = Parcel.of_each(results, "the result of op for rank {}")
                if failure:
                    state = failed(failure[0])
            return exchange.scatter(state)

        return exchange.go(steps, Parcel.of(value), async_op=async_op)

    def _one_each(self, values: Any) -> Parcel:
        """The pickles of one value for every rank."""
        try:
            given = list(values)
        except Exception as error:
            return Parcel(problem=f"values is {type(values).__name__}, not a sequence: {error}", cause=error)
        if len(given) != self.size:
            return Parcel(problem=f"values has {len(given)} entries; it must have {self.size}, one per rank")
        return Parcel.of_each(given)


def _fold(op: Op) -> Callable[[list[Any]], Any]:
    return functools.partial(functools.reduce, function_of(op))
