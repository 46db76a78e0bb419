"""The verbs that move arrays; `Communicator` inherits them. What they have in common is `_call` in communicator.py."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from . import _core
from .arrays import Array
from .ops import OpLike

Method = TypeVar("Method", bound=Callable[..., Any])


def _fast(form: int) -> Callable[[Method], Method]:
    """A method with the native fast way in (csrc/bindings/fast_method.cpp). `form`: the result has the shape of the input (0),
    gathers it (1), scatters it (2); there is no data (3)."""

    def wrap(method: Method) -> Method:
        fast: Method = functools.update_wrapper(_core.FastMethod(method, form), method)  # type: ignore[assignment]
        return fast

    return wrap


class Verbs(_core.Endpoint):
    """The collectives on arrays."""

    _call: Callable[..., Any]

    @_fast(0)
    def all_reduce(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Combine `x` over all ranks; every rank gets the result, of `x`'s shape and dtype, with the same bits.

        `op`: "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor", a NumPy ufunc, `pc.ReduceOp`,
        `pc.scaled_sum(factor)` or `pc.op(function)`. `deterministic=True`: the left fold in rank order, the same bits for any
        size.
        """
        return self._call(
            "all_reduce",
            x,
            op=op,
            out=out,
            algorithm=algorithm,
            deterministic=deterministic,
            async_op=async_op,
            timeout=timeout,
        )

    def reduce(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Like `all_reduce`, but only `root` gets the result; the others get None and their `out` is not touched."""
        return self._call(
            "reduce",
            x,
            op=op,
            root=root,
            out=out,
            algorithm=algorithm,
            deterministic=deterministic,
            async_op=async_op,
            timeout=timeout,
        )

    @_fast(2)
    def reduce_scatter(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Combine `x` over all ranks; rank r gets the r-th of `size` equal blocks along the first axis.

        `x`: shape (n, ...) with n a multiple of `size` (or any `out` of x.size / size elements); result (n / size, ...).
        """
        return self._call(
            "reduce_scatter",
            x,
            op=op,
            out=out,
            algorithm=algorithm,
            deterministic=deterministic,
            async_op=async_op,
            timeout=timeout,
        )

    def reduce_scatterv(
        self,
        x: Any,
        counts: Sequence[int],
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
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
            async_op=async_op,
            timeout=timeout,
        )

    @_fast(1)
    def all_gather(
        self,
        x: Any,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Every rank's `x`, in rank order: result (size, *x.shape), or any `out` of size * x.size elements."""
        return self._call("all_gather", x, out=out, algorithm=algorithm, async_op=async_op, timeout=timeout)

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

    @_fast(0)
    def broadcast(
        self,
        x: Any,
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """`root`'s `x` on every rank. Elsewhere `x` only says shape and dtype; `out=x` receives in place."""
        return self._call(
            "broadcast", x, root=root, out=out, algorithm=algorithm, async_op=async_op, timeout=timeout
        )

    def gather(
        self,
        x: Any,
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Every rank's `x` at `root`, in rank order: (size, *x.shape); the others get None."""
        return self._call(
            "gather", x, root=root, out=out, algorithm=algorithm, async_op=async_op, timeout=timeout
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

    def scatter(
        self,
        x: Any,
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Block r of `root`'s `x` to rank r: `x` is (n, ...) with n a multiple of `size`, the result (n / size, ...).

        Elsewhere than at `root`, `x` only says shape and dtype, or is None where `out` does.
        """
        return self._call(
            "scatter", x, root=root, out=out, algorithm=algorithm, async_op=async_op, timeout=timeout
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

    def all_to_all(
        self,
        x: Any,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Block i of `x` to rank i, for all i: `x` is (n, ...) with n a multiple of `size`; the result has the same shape, its
        block i is from rank i. `out` may not be `x`.
        """
        return self._call("all_to_all", x, out=out, algorithm=algorithm, async_op=async_op, timeout=timeout)

    def scan(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """The reduction of ranks 0 to r on rank r (inclusive prefix)."""
        return self._call("scan", x, op=op, out=out, algorithm=algorithm, async_op=async_op, timeout=timeout)

    def exscan(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """The reduction of ranks 0 to r - 1 on rank r (exclusive prefix). Rank 0 gets None, and its `out` is not touched."""
        return self._call(
            "exscan", x, op=op, out=out, algorithm=algorithm, async_op=async_op, timeout=timeout
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

    @_fast(3)
    def barrier(
        self, *, algorithm: str | None = None, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """Return when all ranks have called it."""
        return self._call(
            "barrier", np.empty(0, np.uint8), algorithm=algorithm, async_op=async_op, timeout=timeout
        )
