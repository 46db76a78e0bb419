"""One collective call as a value, made and checked on every rank.

check(comm, Call("all_reduce", "ring", dtype="bfloat16", shape=(7, 3), into="transposed", seed=1))
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import reference
from reference import Array

import pycollectives as pc

LAYOUTS = ("c", "column", "strided", "reversed", "transposed", "fortran", "real", "offset")
WAYS = ("call", "async", "plan")


@dataclass(frozen=True)
class Call:
    """Everything that decides a call and its data."""

    verb: str
    algorithm: str | None = None
    op: str = "sum"
    dtype: str = "float32"
    shape: tuple[int, ...] = (5,)  # of one block: all_gather's input, reduce_scatter's output, else of x
    root: int = 0
    layout: str = "c"  # of x
    into: str = "new"  # "new", "in place", or a layout of out
    way: str = "call"
    exact: bool = True
    deterministic: bool = False
    seed: int = 0
    memory: Any = None  # f(shape, dtype) -> array: where contiguous buffers come from

    def options(self) -> dict[str, Any]:
        """The keyword arguments of the verb, but for out."""
        found: dict[str, Any] = {"algorithm": self.algorithm}
        if self.verb in reference.ROOTED:
            found["root"] = self.root
        if self.verb in reference.REDUCING:
            found["op"] = pc.scaled_sum(reference.FACTOR) if self.op == "scaled_sum" else self.op
            found["deterministic"] = self.deterministic
        return found


def frame(shape: tuple[int, ...], dtype: Any, layout: str, memory: Any = None) -> tuple[Array, Array]:
    """An array of the given layout, and the memory it lies in."""
    if memory is None:
        memory = np.empty
    if layout == "column":
        whole = memory((*shape, 3), dtype)
        return whole[..., 1], whole
    if layout == "strided" and shape:
        whole = memory((2 * shape[0], *shape[1:]), dtype)
        return whole[::2], whole
    if layout == "reversed" and shape:
        whole = memory(shape, dtype)
        return whole[::-1], whole
    if layout == "transposed":
        whole = memory(shape[::-1], dtype)
        return whole.T, whole
    if layout == "fortran":
        whole = np.empty(shape, dtype, order="F")
        return whole, whole
    if layout == "real" and np.dtype(dtype) in (np.float32, np.float64):
        whole = memory(shape, np.complex64 if np.dtype(dtype) == np.float32 else np.complex128)
        return whole.real, whole
    if layout == "offset" and shape:  # contiguous, but not where the memory begins
        whole = memory((shape[0] + 2, *shape[1:]), dtype)
        return whole[1:-1], whole
    whole = memory(shape, dtype)
    return whole, whole


def poison(whole: Array) -> None:
    """Fill memory with bytes that no result has by chance."""
    raw = np.frombuffer(b"\x5a" * whole.itemsize, dtype=whole.dtype if whole.dtype != bool else np.uint8)[0]
    whole.view(np.uint8 if whole.dtype == bool else whole.dtype)[...] = raw


def inputs(call: Call, size: int) -> list[Array]:
    """Everybody's x, not to be written. The data depends on rank and index."""
    shape = call.shape
    if call.verb == "reduce_scatter":
        shape = (size * shape[0], *shape[1:]) if shape else (size,)
    return _inputs(call.dtype, shape, call.exact, call.seed, size)


@lru_cache(maxsize=16)
def _inputs(dtype: str, shape: tuple[int, ...], exact: bool, seed: int, size: int) -> list[Array]:
    rng = np.random.default_rng([seed, size])
    return [reference.values(dtype, shape, rng, exact=exact) for _ in range(size)]


@lru_cache(maxsize=16)
def _fold(op: str, dtype: str, shape: tuple[int, ...], exact: bool, seed: int, size: int) -> Array:
    return reference.fold(op, _inputs(dtype, shape, exact, seed, size))


def wanted(call: Call, xs: list[Array], rank: int) -> Array | None:
    """The result of a rank by the left fold."""
    if call.verb == "broadcast":
        return xs[call.root]
    if call.verb == "all_gather":
        return np.stack(xs)
    if call.verb == "reduce" and rank != call.root:
        return None
    total = _fold(call.op, call.dtype, xs[0].shape, call.exact, call.seed, len(xs))
    return block(total, len(xs), rank) if call.verb == "reduce_scatter" else total


def block(x: Array, size: int, rank: int) -> Array:
    """The part of a reduce_scatter's vector that a rank gets."""
    return x.reshape(size, -1)[rank].reshape(x.shape[0] // size, *x.shape[1:])


def check(comm: Any, call: Call) -> str:
    """Make the call and check this rank's result; returns a digest of it."""
    if call.verb == "barrier":
        assert comm.barrier(algorithm=call.algorithm) is None
        return ""
    xs = inputs(call, comm.size)
    mine = xs[comm.rank]
    want = wanted(call, xs, comm.rank)
    shape = want.shape if want is not None else mine.shape
    out = outer = before = None
    if call.into == "in place" and call.verb in ("all_gather", "reduce_scatter"):
        x, out = _block_in_place(call, mine, shape, comm)
        x[...] = mine
    else:
        x, whole = frame(mine.shape, mine.dtype, call.layout, call.memory)
        poison(whole)
        x[...] = mine
        if call.into == "in place":
            out = x
        elif call.into != "new":
            out, outer = frame(shape, mine.dtype, call.into, call.memory)
            poison(outer)
            before = outer.copy()
    got = _made(comm, call, x, out)
    where = f"rank {comm.rank} of {comm.size}: {replace(call, memory=None)}"
    if want is None:
        assert got is None, where
        assert outer is None or outer.tobytes() == before.tobytes(), (
            f"out of a rank without result changed; {where}"
        )
        if call.into == "in place":
            assert reference.same(np.ascontiguousarray(x).reshape(x.shape), mine), f"x changed; {where}"
        return ""
    assert isinstance(got, np.ndarray) and (out is None or got is out), where
    assert got.shape == shape and got.dtype == mine.dtype, f"{got.shape} {got.dtype}; {where}"
    result = np.ascontiguousarray(got).reshape(shape)
    _judge(comm, call, xs, result, want, where)
    if outer is not None:  # nothing but the result has been written
        keep = result.copy()
        poison(out) if out.dtype != bool else out.view(np.uint8).__setitem__(..., 0x5A)
        assert outer.tobytes() == before.tobytes(), f"wrote beside out; {where}"
        out[...] = keep
    if call.into != "in place":
        assert reference.same(np.ascontiguousarray(x).reshape(x.shape), mine), f"x changed; {where}"
    return hashlib.blake2b(result.tobytes()).hexdigest()


def _block_in_place(call: Call, mine: Array, shape: tuple[int, ...], comm: Any) -> tuple[Array, Array]:
    """x is the own block of out, or out that of x."""
    memory = np.empty if call.memory is None else call.memory
    if call.verb == "all_gather":
        out = memory(shape, mine.dtype)
        poison(out)
        return out[comm.rank : comm.rank + 1].reshape(mine.shape), out
    x = memory(mine.shape, mine.dtype)
    return x, x[comm.rank * shape[0] : (comm.rank + 1) * shape[0]] if shape else x[comm.rank :][:1]


def _made(comm: Any, call: Call, x: Array, out: Array | None) -> Any:
    options = call.options()
    if call.way == "plan":
        again = comm.plan(call.verb, x, out=out, **options)
        if call.into != "in place":
            again()
        return again()
    method = getattr(comm, call.verb)
    if call.way == "async":
        return method(x, out=out, async_op=True, **options).wait()
    return method(x, out=out, **options)


def _judge(comm: Any, call: Call, xs: list[Array], got: Array, want: Array, where: str) -> None:
    inexact = reference.is_float(call.dtype) or reference.is_complex(call.dtype)
    folds = (call.verb, call.algorithm) in reference.LEFT_FOLD or call.deterministic
    if call.verb not in reference.REDUCING or not inexact or folds:
        right = reference.same(got, want)
    elif call.exact:  # the order decides no more than the sign of zeros
        right = np.array_equal(got, want, equal_nan=True)
    else:
        parts = [block(x, comm.size, comm.rank) for x in xs] if call.verb == "reduce_scatter" else xs
        right = reference.close(call.op, got, parts)
    assert right, f"{got} is not {want}; {where}"


def check_all(comm: Any, calls: list[Call]) -> list[str]:
    """`check` for each call in turn."""
    return [check(comm, call) for call in calls]


def agree(calls: list[Call], digests: list[list[str]]) -> None:
    """What every rank gets must have the same bits on all of them."""
    for i, call in enumerate(calls):
        if call.verb in ("all_reduce", "all_gather", "broadcast"):
            assert len({mine[i] for mine in digests}) == 1, f"different bits on different ranks: {call}"
