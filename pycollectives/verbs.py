"""The verbs that move arrays; `Communicator` inherits them. What they have in common is in caller.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from . import _core
from .arrays import Array
from .caller import Caller
from .ops import OpLike

Method = TypeVar("Method", bound=Callable[..., Any])


class _Form(IntEnum):
    """What a verb makes of its input, as in csrc/bindings/fast_method.cpp."""

    SAME = 0  # a result of the same shape
    GATHERS = 1  # `size` times as much
    SCATTERS = 2  # a `size`-th; `out` may have any shape
    NOTHING = 3  # there is no data
    EXCHANGES = 4  # the same shape, never in place
    DEALS = 5  # a `size`-th, always along the first axis


class _Taker(IntEnum):
    """Which ranks get a result."""

    ALL = 0
    ROOT = 1
    ALL_BUT_FIRST = 2


def _fast(form: _Form, taker: _Taker = _Taker.ALL) -> Callable[[Method], Method]:
    """A method with the native fast way in (csrc/bindings/fast_method.cpp)."""

    def wrap(method: Method) -> Method:
        native = _core.FastMethod(method, form, taker)
        fast: Method = functools.update_wrapper(native, method)  # type: ignore[assignment]
        return fast

    return wrap


class Verbs(Caller):
    """The collectives on arrays whose ranks all have the same amount of data."""

    @_fast(_Form.SAME)
    def all_reduce(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        accumulate: Any = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Combine `x` over all ranks; every rank gets the result, of `x`'s shape and dtype, with the same bits.

        `op`: "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor", a NumPy ufunc, `pc.ReduceOp`,
        `pc.scaled_sum(factor)` or `pc.op(function)`. `deterministic=True`: the left fold in rank order, the same bits for any
        size. `accumulate`: a wider dtype to combine in, which is that of the result then; `out` must have it.
        """
        return self._call(
            "all_reduce",
            x,
            op=op,
            out=out,
            algorithm=algorithm,
            deterministic=deterministic,
            accumulate=accumulate,
            async_op=async_op,
            timeout=timeout,
        )

    @_fast(_Form.SAME, _Taker.ROOT)
    def reduce(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        accumulate: Any = None,
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
            accumulate=accumulate,
            async_op=async_op,
            timeout=timeout,
        )

    @_fast(_Form.SCATTERS)
    def reduce_scatter(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        accumulate: Any = None,
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
            accumulate=accumulate,
            async_op=async_op,
            timeout=timeout,
        )

    @_fast(_Form.GATHERS)
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

    @_fast(_Form.SAME)
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

    @_fast(_Form.GATHERS, _Taker.ROOT)
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

    @_fast(_Form.DEALS)
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

    @_fast(_Form.EXCHANGES)
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

    @_fast(_Form.SAME)
    def scan(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        accumulate: Any = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """The reduction of ranks 0 to r on rank r (inclusive prefix). "avg" is that of these r + 1 ranks."""
        return self._call(
            "scan",
            x,
            op=op,
            out=out,
            algorithm=algorithm,
            deterministic=deterministic,
            accumulate=accumulate,
            async_op=async_op,
            timeout=timeout,
        )

    @_fast(_Form.SAME, _Taker.ALL_BUT_FIRST)
    def exscan(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        accumulate: Any = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """The reduction of ranks 0 to r - 1 on rank r (exclusive prefix). "avg" is that of these r ranks.

        Rank 0 gets None, and its `out` is not touched.
        """
        return self._call(
            "exscan",
            x,
            op=op,
            out=out,
            algorithm=algorithm,
            deterministic=deterministic,
            accumulate=accumulate,
            async_op=async_op,
            timeout=timeout,
        )

    @_fast(_Form.NOTHING)
    def barrier(
        self, *, algorithm: str | None = None, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """Return when all ranks have called it."""
        return self._call(
            "barrier", np.empty(0, np.uint8), algorithm=algorithm, async_op=async_op, timeout=timeout
        )
