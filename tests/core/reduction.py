"""Reductions of buffers by the kernels, and what NumPy and ml_dtypes say that they have to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pycollectives import _core

Array = np.ndarray[Any, np.dtype[Any]]

SMALL_FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
DTYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in _core.DTYPES}
COMBINATIONS = [
    (dtype, op)
    for d, dtype in enumerate(_core.DTYPES)
    for o, op in enumerate(_core.OPS)
    if _core.supports(d, o, 0)
]
EPILOGUES = {name: i for i, name in enumerate(_core.EPILOGUES)}
GUARD, LINE = 64, 64
SCALES = (0.5, 1 / 3, -2.75, 1e-3)


def accumulation(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype in SMALL_FLOATS else DTYPES[dtype]


def is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name in SMALL_FLOATS


# What the results have to be.


def minimum(a: Array, b: Array) -> Array:
    if not is_float(a.dtype):
        return np.minimum(a, b)
    zero = (a == 0) & (b == 0)
    return np.where(zero, np.where(np.signbit(a), a, b), np.minimum(a, b))


def maximum(a: Array, b: Array) -> Array:
    return -minimum(-a, -b) if is_float(a.dtype) else np.maximum(a, b)


def product(a: Array, b: Array) -> Array:
    if a.dtype.kind != "c":
        return a * b
    result = np.empty_like(a)
    result.real = a.real * b.real - a.imag * b.imag
    result.imag = a.real * b.imag + a.imag * b.real
    return result


def logical(connective: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: connective(a != 0, b != 0).astype(a.dtype)


FOLDS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "prod": product,
    "min": minimum,
    "max": maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": logical(np.logical_and),
    "lor": logical(np.logical_or),
    "lxor": logical(np.logical_xor),
}


def integer_epilogue(values: Array, kind: str, factor: float) -> Array:
    limits = np.iinfo(values.dtype)

    def one(value: int) -> int:
        if kind == "divide":
            return abs(value) // int(factor) * (1 if value >= 0 else -1)
        scaled = float(value) * factor
        return int(min(max(scaled, float(limits.min)), float(limits.max)))

    return np.array([min(one(int(v)), int(limits.max)) for v in values], values.dtype)


def epilogue(values: Array, kind: str, factor: float) -> Array:
    if kind == "none":
        return values
    if values.dtype.kind in "iu":
        return integer_epilogue(values, kind, factor)
    parts = values.view(values.real.dtype)
    by = parts.dtype.type(factor)
    scaled: Array = (parts / by if kind == "divide" else parts * by).view(values.dtype)
    return scaled


def expected(case: Case, sources: list[Array]) -> list[Array]:
    """The value of every sink."""
    wide, narrow = accumulation(case.dtype), DTYPES[case.dtype]
    if narrow == np.dtype(bool):
        sources = [(source.view(np.uint8) != 0) for source in sources]
    with np.errstate(all="ignore"):
        value = sources[0].astype(wide)
        for source in sources[1:]:
            value = FOLDS[case.op](value, source.astype(wide))
        value = epilogue(value, case.epilogue, case.factor)
        return [value if is_wide else value.astype(narrow) for is_wide in case.sink_wide]


# Running them.


@dataclass(frozen=True)
class Case:
    dtype: str
    op: str
    count: int
    source_wide: tuple[bool, ...] = (False, False)
    sink_wide: tuple[bool, ...] = (False,)
    epilogue: str = "none"
    factor: float = 1.0
    in_place: int | None = None  # the source that is the first sink
    offset: int = 0  # misalignment
    far: bool = False  # read as from another core's cache
    stream: bool = False  # written past the caches
    seed: int = 0


def random_values(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> Array:
    """Arbitrary bit patterns among moderate values and zeros of both signs."""
    bits: Array = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).copy()
    if dtype.kind in "biu":
        return bits
    moderate = rng.standard_normal(count) * 2.0 ** rng.integers(-4, 5, count)
    with np.errstate(all="ignore"):
        values = np.where(rng.random(count) < 0.3, bits, moderate.astype(dtype))
        zeros = np.where(rng.random(count) < 0.5, 0.0, -0.0).astype(dtype)
        return np.where(rng.random(count) < 0.1, zeros, values).astype(dtype)


def placed(values: Array, offset: int) -> tuple[Array, Array]:
    """A guarded buffer, and the bytes of a copy of the values inside it, `offset` bytes behind the beginning of a line."""
    raw = values.view(np.uint8).reshape(-1)
    whole = np.full(raw.size + 2 * GUARD + offset + LINE, 0xA5, np.uint8)
    begin = GUARD + offset + -(whole.ctypes.data + GUARD) % LINE
    inside = whole[begin : begin + raw.size]
    inside[:] = raw
    return whole, inside


def run(case: Case, sources: list[Array], simd: str) -> list[Array]:
    widths = {False: DTYPES[case.dtype], True: accumulation(case.dtype)}
    buffers = [placed(source, case.offset + 3 * i)[1] for i, source in enumerate(sources)]
    wholes, sinks = [], []
    for i, is_wide in enumerate(case.sink_wide):
        whole, inside = placed(
            np.zeros(case.count, widths[is_wide]), 0 if case.stream else case.offset + 5 * i
        )
        if case.in_place is not None and i == 0:
            assert case.source_wide[case.in_place] == is_wide
            inside[:] = buffers[case.in_place]
            buffers[case.in_place] = inside
        wholes.append(whole)
        sinks.append(inside)
    kept = [buffer.copy() for buffer in buffers]
    _core.reduce(
        _core.DTYPES.index(case.dtype),
        _core.OPS.index(case.op),
        buffers,
        sinks,
        list(case.source_wide),
        list(case.sink_wide),
        case.count,
        EPILOGUES[case.epilogue],
        case.factor,
        simd,
        case.far,
        case.stream,
    )
    for i, (before, after) in enumerate(zip(kept, buffers, strict=True)):
        assert i == case.in_place or np.array_equal(before, after), f"source {i} was written"
    for whole, inside in zip(wholes, sinks, strict=True):
        assert whole.size - inside.size == np.count_nonzero(whole == 0xA5) - np.count_nonzero(inside == 0xA5)
    return [sink.copy().view(widths[is_wide]) for sink, is_wide in zip(sinks, case.sink_wide, strict=True)]


def assert_same_bits(actual: Array, wanted: Array, hint: object) -> None:
    """The same bytes; a NaN may be any NaN."""
    assert actual.dtype == wanted.dtype
    if actual.dtype.kind == "c":
        actual, wanted = actual.view(actual.real.dtype), wanted.view(wanted.real.dtype)
    unsigned = np.dtype(f"u{actual.dtype.itemsize}")
    same = actual.view(unsigned) == wanted.view(unsigned)
    if is_float(actual.dtype):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            same |= np.isnan(actual) & np.isnan(wanted)
    wrong = np.flatnonzero(~same)[:5]
    assert wrong.size == 0, f"{hint}: at {wrong} {actual[wrong]}, not {wanted[wrong]}"


def check(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    widths = {False: DTYPES[case.dtype], True: accumulation(case.dtype)}
    sources = [random_values(rng, widths[is_wide], case.count) for is_wide in case.source_wide]
    wanted = expected(case, sources)
    for simd in _core.SIMD:
        for actual, value in zip(run(case, sources, simd), wanted, strict=True):
            assert_same_bits(actual, value, (simd, case))
