"""How far from the exact result each algorithm ends: real calls on ranks that are threads, against a wider reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, ops
from ..arrays import Array
from ..errors import InvalidArgumentError
from ..extended_dtypes import dtype_of, finfo
from ..schedule import find, names
from ..schedule.verifier import verified
from ..world import run_threads

if TYPE_CHECKING:
    from ..communicator import Communicator

DATA = ("normal", "positive", "cancelling", "wide")
OPERATORS = ("sum", "avg", "prod")
_WIDE = np.dtype(np.longdouble)


@dataclass(frozen=True)
class Error:
    """One algorithm. Errors in units in the last place (ulp) of the exact result as the dtype would round it;
    `bound` is the largest error as a multiple of u Σ|x|, with u the rounding unit of the accumulation type and the
    one rounding to the dtype taken off."""

    dtype: str
    ranks: int
    algorithm: str
    largest: float
    mean: float
    bound: float
    same_bits: bool  # on all ranks
    left_fold: bool  # what deterministic=True accepts


@dataclass(frozen=True)
class Cost:
    """Microseconds of a call (the median of the slowest rank) as chosen freely and with deterministic=True."""

    nbytes: int
    ranks: int
    free: float
    deterministic: float
    algorithms: tuple[str, str]


def inputs(dtype: str, ranks: int, elements: int, data: str, seed: int) -> list[Array]:
    """What each rank brings: drawn in float64, then rounded to `dtype`."""
    rng = np.random.default_rng([seed, ranks])
    drawn = rng.standard_normal((ranks, elements))
    if data == "positive":
        drawn = rng.random((ranks, elements))
    elif data == "cancelling":  # large terms whose sum is small
        drawn[-1] = -drawn[:-1].sum(0) + 1e-3 * drawn[-1] if ranks > 1 else drawn[-1]
    elif data == "wide":  # magnitudes over eight powers of ten
        drawn *= 10.0 ** rng.uniform(-4, 4, (ranks, elements))
    kind = dtype_of(dtype)
    parts: Array = drawn + 1j * rng.permuted(drawn, axis=1) if kind.kind == "c" else drawn
    with np.errstate(over="ignore"):
        return [x.astype(kind) for x in parts]


def exact(xs: Sequence[Array], op: str) -> tuple[Array, Array]:
    """(result, Σ|x| in the result's scale) in at least float64: long double where the processor has it."""
    high = np.dtype(np.clongdouble) if xs[0].dtype.kind == "c" else _WIDE
    wide = np.stack([x.astype(np.complex128 if high.kind == "c" else np.float64).astype(high) for x in xs])
    if op == "prod":
        product = np.multiply.reduce(wide)
        return product, np.abs(product) * len(xs)
    share = _WIDE.type(1) / len(xs) if op == "avg" else _WIDE.type(1)
    return np.add.reduce(wide) * share, np.add.reduce(np.abs(wide)) * share


def unit(dtype: Any) -> Any:
    """The real dtype of one part of a number."""
    return dtype_of({"complex64": "float32", "complex128": "float64"}.get(dtype_of(dtype).name, dtype))


def ulps(error: Array, reference: Array, dtype: Any) -> Array:
    """`error` in units in the last place of `dtype` at `reference`."""
    info = finfo(unit(dtype))
    power = np.floor(np.log2(np.maximum(np.abs(reference).astype(np.float64), float(info.smallest_normal))))
    return np.asarray(np.abs(error).astype(np.float64) / (float(info.eps) * 2.0**power))


def check(dtype: str, op: str, data: str) -> None:
    """InvalidArgumentError for what has no error to measure."""
    if dtype_of(dtype).kind not in "fcV" or dtype == "bool":
        raise InvalidArgumentError(
            f"{dtype} is exact: it wraps and never rounds; name a floating-point dtype"
        )
    if op not in OPERATORS:
        raise InvalidArgumentError(f"op is {op!r}; measured are {', '.join(OPERATORS)}")
    if data not in DATA:
        raise InvalidArgumentError(f"data is {data!r}; known are {', '.join(DATA)}")


def measure(
    collective: str,
    dtype: str,
    ranks: int,
    op: str,
    elements: int,
    data: str,
    seed: int,
    wanted: Sequence[str] = (),
) -> list[Error]:
    """The errors of each algorithm of `collective` (all_reduce, reduce or reduce_scatter) that can run on `ranks`.

    Raises InvalidArgumentError, UnsupportedError.
    """
    check(dtype, op, data)
    for name in wanted:
        find(collective, name)
    elements += -elements % ranks
    xs = inputs(dtype, ranks, elements, data, seed)
    ops.check(ops.resolve(op, ranks), dtype)
    able = [
        name
        for name in names(collective)
        if not find(collective, name).obstacle(ranks) and (not wanted or name in wanted)
    ]

    def body(comm: Communicator) -> list[Array | None]:
        call = getattr(comm, collective)
        return [call(xs[comm.rank], op, algorithm=name) for name in able]

    by_rank = run_threads(ranks, body)
    want, size = exact(xs, op)
    return [
        _error(collective, name, [mine[i] for mine in by_rank], want, size, dtype, ranks)
        for i, name in enumerate(able)
    ]


def _error(
    collective: str, name: str, parts: list[Array | None], want: Array, size: Array, dtype: str, ranks: int
) -> Error:
    there = [part for part in parts if part is not None]
    same = all(part.tobytes() == there[0].tobytes() for part in there)
    got = there[0] if collective != "reduce_scatter" else np.concatenate([part.ravel() for part in there])
    wide = got.astype(want.dtype if got.dtype.kind in "fc" else np.float64).astype(want.dtype)
    ok = np.isfinite(np.abs(wide).astype(np.float64)) & np.isfinite(np.abs(want).astype(np.float64))
    error = np.abs(wide[ok] - want[ok])
    units = ulps(error, want[ok], dtype)
    accumulated = np.dtype("float32") if _is_wide(dtype) else unit(dtype)
    rounding = 0.5 * _ulp_size(want[ok], dtype) if _is_wide(dtype) else 0.0
    scale = float(np.finfo(accumulated).eps) / 2 * size[ok].astype(np.float64)
    left = np.maximum(error.astype(np.float64) - rounding, 0.0)
    return Error(
        dtype=dtype,
        ranks=ranks,
        algorithm=name,
        largest=float(units.max(initial=0.0)),
        mean=float(units.mean()) if units.size else 0.0,
        bound=float(np.max(left / np.maximum(scale, np.finfo(np.float64).tiny), initial=0.0)),
        same_bits=same if collective == "all_reduce" else True,
        left_fold=verified(find(collective, name), ranks, 0).left_fold,
    )


def _is_wide(dtype: str) -> bool:
    """Is the dtype accumulated in a wider one?"""
    return bool(_core.is_wide(_core.DTYPES.index(dtype)))


def _ulp_size(reference: Array, dtype: Any) -> Array:
    """The distance of neighbouring numbers of `dtype` at `reference`."""
    return np.asarray(1.0 / ulps(np.ones(reference.shape), reference, dtype))


def cost(comm: Communicator, nbytes: int, calls: int) -> Cost:
    """Collective: the time of an all_reduce of float32 as chosen freely and with deterministic=True."""
    x = np.arange(max(1, nbytes // 4), dtype=np.float32)
    out = np.empty_like(x)
    times, chosen = [], []
    for fixed in (False, True):
        again = comm.plan("all_reduce", x, out=out, deterministic=fixed)
        mine = []
        for _ in range(calls + calls // 4):
            comm.barrier()
            start = perf_counter_ns()
            again()
            mine.append(perf_counter_ns() - start)
        slowest = comm.all_reduce(np.array(mine[calls // 4 :]), "max")
        times.append(float(np.median(slowest)) / 1e3)
        chosen.append(comm.explain("all_reduce", nbytes=x.nbytes, deterministic=fixed).chosen)
    return Cost(x.nbytes, comm.size, times[0], times[1], (chosen[0], chosen[1]))
