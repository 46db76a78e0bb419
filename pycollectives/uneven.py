"""The verbs that move arrays of which each rank has its own number of rows; `Communicator` inherits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .arrays import Array
from .caller import Caller
from .ops import OpLike


class Uneven(Caller):
    """The collectives on uneven blocks: `counts` are rows, the lengths of the first axis."""

    def reduce_scatterv(
        self,
        x: Any,
        counts: Sequence[int],
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        accumulate: Any = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """`reduce_scatter` with blocks of `counts[r]` rows; `x` has sum(counts) rows, the result counts[rank]."""
        return self._call(
            "reduce_scatterv",
            x,
            op=op,
            counts=counts,
            out=out,
            algorithm=algorithm,
            deterministic=deterministic,
            accumulate=accumulate,
            async_op=async_op,
            timeout=timeout,
        )

    def all_gatherv(
        self,
        x: Any,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Every rank's rows one after the other: result (sum(counts), *x.shape[1:]).

        `counts`: the rows of every rank, given on all ranks alike, or None: they are exchanged first.
        """
        return self._call(
            "all_gatherv", x, counts=counts, out=out, algorithm=algorithm, async_op=async_op, timeout=timeout
        )

    def gatherv(
        self,
        x: Any,
        counts: Sequence[int] | None = None,
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Every rank's rows one after the other at `root`; the others get None. `counts` as in `all_gatherv`."""
        return self._call(
            "gatherv",
            x,
            root=root,
            counts=counts,
            out=out,
            algorithm=algorithm,
            async_op=async_op,
            timeout=timeout,
        )

    def scatterv(
        self,
        x: Any,
        counts: Sequence[int] | None = None,
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """`scatter` with blocks of `counts[r]` rows. `counts` is needed at `root` only, and sent from there.

        Elsewhere `x` says the dtype and the shape of a row, or is None where `out` does.
        """
        return self._call(
            "scatterv",
            x,
            root=root,
            counts=counts,
            out=out,
            algorithm=algorithm,
            async_op=async_op,
            timeout=timeout,
        )

    def all_to_allv(
        self,
        x: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """`send_counts[i]` rows of `x` to rank i, one block after the other; the result holds the rows of rank 0, 1, ...

        The counts of all ranks are exchanged first; `recv_counts`, where given, are checked against them (MismatchError).
        """
        return self._call(
            "all_to_allv",
            x,
            counts=(send_counts, recv_counts),
            out=out,
            algorithm=algorithm,
            async_op=async_op,
            timeout=timeout,
        )
