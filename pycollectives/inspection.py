"""What a communicator says of itself: its algorithms, its choices, its last calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import dispatch
from .caller import UNEVEN, Caller
from .calls import Kind
from .cost import Description, describe
from .explaining import explain_call
from .ops import OpLike
from .point_to_point import rank_of
from .schedule import find, names


class Inspection(Caller):
    """Explanations; `Communicator` inherits it."""

    def algorithms(self, verb: str) -> list[Description]:
        """What is known of the algorithms of a verb on this many ranks: name, cost formula, steps, bytes per rank,
        restrictions, order of the reduction. `str()` of each is a line of text; `.name` is what `algorithm=` takes."""
        base, even = self._even(verb), verb not in UNEVEN
        places = self.settings.hosts or self.settings.domains or (0,) * self.size
        known = [find(base, name).on(places) for name in names(base)]
        return [describe(one, self.size) for one in known if even or not one.even_only]

    def explain(
        self,
        verb: str,
        *,
        nbytes: Any,
        algorithm: str | None = None,
        root: int = 0,
        deterministic: bool = False,
        dtype: Any = "float32",
        op: OpLike = "sum",
        policy: str | None = None,
    ) -> dispatch.Explanation:
        """Which algorithm would run, every candidate with its predicted and measured time, and why the others lost.

        `nbytes`: of the whole vector (all_gather: of the result, reduce_scatter: of the input). `policy`: compare with
        what "mpich", "openmpi" or "nccl" would take, or "all". Needs no other rank. See docs/selection.md.

        Raises InvalidArgumentError where an argument is unknown or nbytes no number of bytes, UnsupportedError where
        the algorithm that was asked for cannot run, or none can.
        """
        base = self._even(verb)
        named, reason = self._named(base, algorithm)
        return explain_call(
            self._calls,
            base,
            nbytes,
            even=verb not in UNEVEN,
            named=named,
            reason=reason,
            root=self._root(root),
            deterministic=deterministic,
            dtype=dtype,
            op=op,
            policy=policy,
            on_device=self._way_on_device(),
        )

    def _way_on_device(self) -> Callable[[Kind], str] | None:
        """How arrays in device memory go to other hosts; None where there are none."""
        raise NotImplementedError

    def history(self, rank: int | None = None) -> list[dict[str, Any]]:
        """The flight recorder: the last calls of a rank (default: this one), oldest first."""
        place = self.rank if rank is None else rank_of(rank, self.size, "rank")
        records: list[dict[str, Any]] = self._native().records(place)
        return records
