"""From the caller's arrays to contiguous buffers and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from .device.arrays import DeviceView, absent, contiguous, empty_like, view_of
from .errors import InvalidArgumentError, UnsupportedError
from .extended_dtypes import dtype_of

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass
class Buffers:
    """The contiguous arrays that a call works on. `result` is what the caller gets; where it is strided, `out` is a
    contiguous stand-in that is copied into it at the end."""

    x: Array
    out: Array | None
    result: Array | None

    @property
    def addresses(self) -> tuple[int, int]:
        """Where the input and the output begin; 0 where there is no output."""
        return address(self.x), 0 if self.out is None else address(self.out)

    def finish(self) -> Array | None:
        """Copies the result to where the caller wants it; returns that."""
        if self.result is not None and self.out is not self.result:
            assert self.out is not None
            self.result[...] = self.out.reshape(self.result.shape)
        return self.result


def widened(x: Array, accumulate: Any) -> Array:
    """A copy of `x` in the dtype in which it is to be combined. Raises InvalidArgumentError where that cannot hold its values."""
    try:
        dtype = dtype_of(accumulate)
    except (TypeError, ValueError, SyntaxError):
        raise InvalidArgumentError(f"accumulate is {accumulate!r}; it must be a dtype") from None
    if not hasattr(x, "astype"):
        raise UnsupportedError("accumulate= is for arrays in host memory: convert x on the device")
    if not np.can_cast(x.dtype, dtype):
        raise InvalidArgumentError(f"accumulate={dtype.name!r} cannot hold what x has: {x.dtype}")
    return x.astype(dtype)


def as_input(x: Any, what: str = "x") -> Array:
    """`x` as a NumPy array in native byte order; InvalidArgumentError for what cannot be one."""
    if isinstance(x, np.ndarray):
        array = x
    elif (found := view_of(x)) is not None:
        return found
    else:
        try:
            array = np.asarray(x)
        except Exception as error:
            raise InvalidArgumentError(f"{what} is not an array: {error}") from error
    dtype = array.dtype
    if dtype.hasobject:
        raise InvalidArgumentError(
            f"{what} has dtype {dtype}, which holds Python objects; only plain data can be moved"
        )
    if not dtype.isnative:
        raise InvalidArgumentError(
            f"{what} has dtype {dtype.str}, which is not in this machine's byte order; "
            f"use {what}.astype({dtype.newbyteorder('=').name!r})"
        )
    return array


def no_input(out: Any) -> Array | None:
    """An input of no elements, where the output is; None where there is no output."""
    if isinstance(out, np.ndarray) and not isinstance(out, DeviceView):
        return np.empty((0,) * max(1, out.ndim), out.dtype)
    view = view_of(out)
    return None if view is None else absent(view)


def shape_of(out: Any) -> tuple[tuple[int, ...], int]:
    """The shape and the elements of an output."""
    array = out if isinstance(out, np.ndarray) else view_of(out)
    assert array is not None
    return array.shape, array.size


def address(array: Array) -> int:
    """Where the data of an array begins."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def check_output(out: Any, dtype: np.dtype[Any], shape: tuple[int, ...], *, any_shape: bool = False) -> Array:
    """`out` if the result fits there, else InvalidArgumentError with the offending values."""
    if not isinstance(out, np.ndarray):
        raise InvalidArgumentError(f"out is a {type(out).__name__}, not a NumPy array")
    if out.dtype != dtype:
        hint = f": pass x.astype({out.dtype.name!r})" if np.can_cast(dtype, out.dtype) else ""
        raise InvalidArgumentError(f"out has dtype {out.dtype}, the result has {dtype}, as x has{hint}")
    count = math.prod(shape)
    if out.size != count:
        raise InvalidArgumentError(
            f"out has {out.size} elements (shape {out.shape}), the result has {count} (shape {shape})"
        )
    if not any_shape and out.shape != shape:
        raise InvalidArgumentError(f"out has shape {out.shape}, the result has {shape}")
    if not out.flags.writeable:
        raise InvalidArgumentError("out is read-only")
    if out.size > 1 and any(stride == 0 and n > 1 for stride, n in zip(out.strides, out.shape, strict=True)):
        raise InvalidArgumentError(
            "out repeats elements (a stride is 0); every element needs memory of its own"
        )
    return out


def share_memory(a: Array, b: Array) -> bool:
    """Do two arrays share an element? True as well where that is too hard to tell and their ranges meet."""
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]
    except Exception:  # numpy.exceptions.TooHardError
        return True


def check_overlap(x: Array, out: Array, shift: int) -> None:
    """Refuses partial overlap. The same memory is in place; so is a block that lies where it belongs: `shift` bytes into
    the output (or, negative, into the input)."""
    if x.size == 0 or out.size == 0 or not np.may_share_memory(x, out):
        return
    same_layout = (x.flags.c_contiguous and out.flags.c_contiguous) or x.strides == out.strides
    if same_layout and address(x) == address(out) + shift:
        return
    if share_memory(x, out):
        raise InvalidArgumentError(
            "x and out overlap but are not the same memory: pass the same array for an in-place call, or arrays that do not overlap"
        )


def prepare(
    x: Array, out: Any, shape: tuple[int, ...] | None, *, any_shape: bool = False, shift: int = 0
) -> Buffers:
    """Contiguous buffers for a call. `shape` is the result's, None where this rank has none."""
    if isinstance(x, DeviceView):
        return _prepare_on_device(x, out, shape, any_shape=any_shape, shift=shift)
    source = x if x.flags.c_contiguous else np.ascontiguousarray(x).reshape(x.shape)
    if shape is None:
        return Buffers(source, None, None)
    if out is None:
        made = np.empty(shape, x.dtype)
        return Buffers(source, made, made)
    result = check_output(out, x.dtype, shape, any_shape=any_shape)
    check_overlap(x, result, shift)
    if result.flags.c_contiguous:
        return Buffers(source, result, result)
    return Buffers(source, np.empty(shape, x.dtype), result)


@dataclass
class DeviceBuffers(Buffers):
    """Buffers in device memory; the caller gets `made`."""

    made: Any = None

    def finish(self) -> Any:
        """The result is there when the stream has reached it; a strided one is written on that stream, too."""
        finished = getattr(self.made, "finished", None)  # device/jax_results.py
        return self.made if finished is None else finished()


def _prepare_on_device(
    x: DeviceView, out: Any, shape: tuple[int, ...] | None, *, any_shape: bool, shift: int
) -> DeviceBuffers:
    source = contiguous(x)
    if shape is None:
        return DeviceBuffers(source, None, None)
    target = empty_like(x, shape) if out is None else out
    view = view_of(target)
    if view is None:
        raise InvalidArgumentError(f"x is in device memory, but out, a {type(out).__name__}, is not")
    check_output(view, x.dtype, shape, any_shape=any_shape)
    if out is not None:
        check_overlap(x, view, shift)
        if not view.flags.c_contiguous:
            raise UnsupportedError("out in device memory must be contiguous")
    return DeviceBuffers(source, view, view, target.owner if isinstance(target, DeviceView) else target)


@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """`dtype.name`, which NumPy takes microseconds to put together."""
    return dtype.name


def reducible(dtype: np.dtype[Any]) -> str:
    """The name of a dtype that can be reduced; UnsupportedError names those that can."""
    from . import _core

    if (name := dtype_name(dtype)) not in _core.DTYPES:
        raise UnsupportedError(f"dtype {dtype} cannot be reduced; these can: {', '.join(_core.DTYPES)}")
    return name
