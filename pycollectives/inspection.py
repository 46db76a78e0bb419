"""What a communicator says of itself: its algorithms, its choices, its last calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import dispatch, ops
from .caller import UNEVEN, Caller
from .cost import Description, describe
from .errors import InvalidArgumentError
from .point_to_point import rank_of
from .schedule import COLLECTIVES, find, names


class Inspection(Caller):
    """Explanations; `Communicator` inherits it."""

    def algorithms(self, verb: str) -> list[Description]:
        """What is known of the algorithms of a verb on this many ranks: name, cost formula, steps, bytes per rank,
        restrictions, order of the reduction. `str()` of each is a line of text; `.name` is what `algorithm=` takes."""
        even = self._spelt(verb) not in UNEVEN
        contract = self._verb(verb if even else verb[:-1])
        hosts = self.settings.hosts or (0,) * self.size
        known = [find(contract, name).on(hosts) for name in names(contract)]
        return [describe(one, self.size) for one in known if even or not one.even_only]

    def explain(
        self,
        verb: str,
        *,
        nbytes: Any,
        algorithm: str | None = None,
        root: int = 0,
        deterministic: bool = False,
    ) -> dispatch.Explanation:
        """Which algorithm would run, every candidate with its predicted time, and why the others lost.

        `nbytes`: of the whole vector (all_gather: of the result). Raises InvalidArgumentError where it is no number of bytes.
        """
        self._verb(verb)
        if not isinstance(nbytes, (int, np.integer)) or nbytes < 0:
            raise InvalidArgumentError(f"nbytes is {nbytes!r}; it must be a whole number, not negative")
        named, reason = self._named(verb, algorithm)
        operator = ops.resolve("sum", self.size) if COLLECTIVES[verb].reduces else None
        query = dispatch.Query(
            verb,
            int(nbytes),
            self.size,
            self._root(root),
            dispatch.needs(verb, operator, deterministic),
            dispatch.kind_of(verb, "float32"),
            self.settings.hosts,
        )
        return dispatch.explain(query, self.settings.tuning, named=named, reason=reason)

    def history(self, rank: int | None = None) -> list[dict[str, Any]]:
        """The flight recorder: the last calls of a rank (default: this one), oldest first."""
        place = self.rank if rank is None else rank_of(rank, self.size, "rank")
        records: list[dict[str, Any]] = self._native().records(place)
        return records
