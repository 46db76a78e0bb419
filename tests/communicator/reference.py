"""What a collective must give, computed by NumPy from the inputs of all ranks."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 - teaches NumPy the names bfloat16 and float8_*
import numpy as np

from pycollectives.schedule import find, names

Array = np.ndarray[Any, Any]

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"),
)
SMALL_FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
VERBS = ("all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "barrier")
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("reduce", "broadcast")
LEFT_FOLD = {("all_reduce", "one_shot"), ("all_reduce", "two_shot"), ("reduce_scatter", "direct")}
FACTOR = 0.75


def algorithms(verb: str, size: int) -> list[str]:
    """The names of the algorithms that can run a verb on so many ranks."""
    return [name for name in names(verb) if not find(verb, name).obstacle(size)]


def is_complex(dtype: str) -> bool:
    return dtype.startswith("complex")


def is_float(dtype: str) -> bool:
    return "float" in dtype


def operators(dtype: str) -> list[str]:
    """The operators that a dtype has."""
    if is_complex(dtype):
        return ["sum", "prod", "avg", "scaled_sum"]
    ops = ["sum", "prod", "min", "max", "land", "lor", "lxor"]
    if dtype != "bool":
        ops += ["avg", "scaled_sum"]
    if not is_float(dtype):
        ops += ["band", "bor", "bxor"]
    return ops


def values(dtype: str, shape: tuple[int, ...], rng: np.random.Generator, *, exact: bool) -> Array:
    """Random data. `exact`: small whole numbers, so that every order of a float reduction gives the same bits."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if is_complex(dtype):
        part = dtype.replace("complex64", "float32").replace("complex128", "float64")
        return np.asarray(
            values(part, shape, rng, exact=exact) + 1j * values(part, shape, rng, exact=exact)
        ).astype(dtype)
    if is_float(dtype):
        drawn = rng.integers(-3, 4, shape) if exact else rng.standard_normal(shape)
        return np.asarray(drawn).astype(dtype)
    limits = np.iinfo(dtype)
    return np.asarray(rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True))


def _product(a: Array, b: Array) -> Array:
    if a.dtype.kind != "c":
        return a * b
    # NumPy's complex product may be fused; the library's never is.
    result = np.empty_like(a)
    result.real = a.real * b.real - a.imag * b.imag
    result.imag = a.real * b.imag + a.imag * b.real
    return result


def _combine(op: str, a: Array, b: Array) -> Array:
    if a.dtype == bool:
        op = {
            "sum": "lor",
            "max": "lor",
            "prod": "land",
            "min": "land",
            "band": "land",
            "bor": "lor",
            "bxor": "lxor",
        }.get(op, op)
    if op == "prod":
        return _product(a, b)
    functions: dict[str, Any] = {
        "sum": np.add, "avg": np.add, "scaled_sum": np.add, "min": np.minimum, "max": np.maximum,
        "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
        "land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor,
    }  # fmt: skip
    return np.asarray(functions[op](a, b)).astype(a.dtype)


def _finished(op: str, total: Array, n: int) -> Array:
    """The epilogue, in the accumulation type; complex values by parts."""
    if total.dtype.kind == "c":
        return (
            _finished(op, total.reshape(-1).view(total.real.dtype), n).view(total.dtype).reshape(total.shape)
        )
    if op == "avg":
        if total.dtype.kind in "iu":  # truncated toward zero
            quotient = total // n
            return np.asarray(quotient + ((total % n != 0) & (total < 0))).astype(total.dtype)
        return np.asarray(total / total.dtype.type(n))
    if op == "scaled_sum":
        if total.dtype.kind in "iu":
            limits = np.iinfo(total.dtype)
            scaled = np.trunc(total.astype(np.float64) * FACTOR)  # |FACTOR| < 1: always inside the limits
            return np.asarray(np.clip(scaled, float(limits.min), float(limits.max))).astype(total.dtype)
        return np.asarray(total * total.dtype.type(FACTOR))
    return total


def accumulation(dtype: str) -> Any:
    return np.dtype("float32") if dtype in SMALL_FLOATS else np.dtype(dtype)


def fold(op: str, xs: list[Array]) -> Array:
    """The left fold in rank order, rounded once."""
    dtype = xs[0].dtype
    if len(xs) == 1 and op not in ("avg", "scaled_sum"):
        return xs[0]
    wide = accumulation(dtype.name)
    with np.errstate(all="ignore"):
        total = xs[0].astype(wide)
        for x in xs[1:]:
            total = _combine(op, total, x.astype(wide))
        return np.asarray(_finished(op, total, len(xs))).astype(dtype)


def same(a: Array, b: Array) -> bool:
    """Equal bits, but for the payload of NaNs."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.tobytes() == b.tobytes():
        return True
    if not is_float(a.dtype.name):
        return bool(np.array_equal(a, b)) and not is_complex(a.dtype.name)
    x, y = a.astype(np.float64), b.astype(np.float64)
    return bool(np.all((np.isnan(x) & np.isnan(y)) | ((x == y) & (np.signbit(x) == np.signbit(y)))))


def close(op: str, got: Array, xs: list[Array]) -> bool:
    """Is a float result one that some order of the reduction, accumulated wide and rounded once, can give?"""
    dtype = got.dtype.name
    if op not in ("sum", "avg", "scaled_sum", "prod"):
        return same(got, fold(op, xs))
    real = np.dtype("float64" if dtype in ("float64", "complex128") else "float32")
    high = np.clongdouble if is_complex(dtype) else np.longdouble
    exact = [x.astype(accumulation(dtype)).astype(high) for x in xs]
    if op == "prod":
        middle, size = np.prod(exact, axis=0), np.prod(np.abs(exact), axis=0)
    else:
        scale = {"sum": 1.0, "avg": 1.0 / len(xs), "scaled_sum": FACTOR}[op]
        middle, size = np.sum(exact, axis=0) * high(scale), np.sum(np.abs(exact), axis=0) * scale
    error = (2 * len(xs) + 2) * float(np.finfo(real).eps) * np.abs(size).astype(np.float64)
    middle = middle.astype(np.complex128 if is_complex(dtype) else np.float64)
    if is_complex(dtype):
        return bool(np.all(np.abs(got.astype(np.complex128) - middle) <= 2 * error))
    with np.errstate(all="ignore"):
        low, top = (middle - error).astype(real).astype(dtype), (middle + error).astype(real).astype(dtype)
    x = got.astype(np.float64)
    inside = (low.astype(np.float64) <= x) & (x <= top.astype(np.float64))
    return bool(
        np.all(inside | (np.isnan(x) & (np.isnan(low.astype(np.float64)) | np.isnan(top.astype(np.float64)))))
    )
