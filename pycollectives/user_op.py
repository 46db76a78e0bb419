"""Operators that the caller writes in Python, compiled by Numba into a loop over whole arrays.

f(a, b) -> value      on two elements of a dtype (or two records of a structured one)
f(a, b, out)          on two small blocks of elements (`shape=`), or two records: fills `out`
"""

from __future__ import annotations

import dis
import hashlib
import importlib
import inspect
import threading
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from . import _core
from .arrays import Array, dtype_name
from .errors import InvalidArgumentError, UnsupportedError

NAME_BYTES = 47  # that the flight recorder has room for
_DTYPES = frozenset(_core.DTYPES)


@dataclass(frozen=True)
class Code:
    """The machine code of an operator for one dtype, as the native core takes it (csrc/core/user_op.hpp)."""

    address: int
    alignment: int
    elements: int  # of the dtype that the core knows, in one item
    count: int  # elements of the caller's dtype in one item
    name: str
    owner: Any  # keeps the machine code


def op(
    f: Callable[..., Any], *, commutative: bool = False, shape: int | Sequence[int] | None = None
) -> UserOp:
    """An operator from a Python function, for every place that takes one: `comm.all_reduce(x, pc.op(f))`.

    `f(a, b)` returns the combination of two elements; `a` is from the lower ranks. It must be associative.
    Unless it is declared `commutative=True`, values are combined in rank order, by the algorithms that can.
    Make an operator once: each one is compiled by itself.

    `shape=(2, 2)`: the operator works on blocks of elements, here 2x2 matrices, and has the form
    `f(a, b, out)`; it fills `out`, which is neither `a` nor `b`. The last axes of `x` must have that shape; a
    block is never cut. On arrays of a structured dtype, `f` combines records: `f(a, b)` returns one of the
    two, `f(a, b, out)` fills the fields of `out`.

    Numba compiles `f` at the first use with a dtype (about half a second); functions that it calls must be
    Numba's, too (`numba.njit`). What it computes is converted to the dtype of `x`; 16- and 8-bit floats are
    computed in float32 and rounded once. A constant like 0.5 is a float64, np.float32(0.5) is not. Division
    by zero gives what NumPy gives. If `f` raises, the call raises InvalidArgumentError on that rank, and
    PeerError on the others.

    For arrays in device memory `f` is compiled for the device as well and linked into the kernels
    (docs/gpu.md), at the first use of the operator with a dtype: all ranks meet there, when their earlier
    calls on the communicator have ended, so that use must not be the first one in a graph. A function that
    raises cannot be used there, nor blocks and records whose smallest common multiple with 16 bytes is above
    256 bytes, nor blocks of 16- and 8-bit floats that have not 2, 4, 8 or 16 bytes.

    Raises InvalidArgumentError if `f` is no Python function of two or three arguments. Calls with the
    operator raise UnsupportedError if Numba is not installed (the extra `pycollectives[numba]`) or cannot
    compile `f` for the dtype, InvalidArgumentError if `x` does not consist of blocks, DeviceError if what
    links it for a device is missing (the extra `pycollectives[cuda13]`).
    """
    function = getattr(f, "py_func", f)  # a function that Numba has compiled
    if not isinstance(function, types.FunctionType):
        raise InvalidArgumentError(f"op() takes a Python function, not {f!r}")
    lengths = () if shape is None else (shape,) if isinstance(shape, int) else shape
    try:
        sides = tuple(int(n.__index__()) for n in lengths)
    except (TypeError, AttributeError):
        raise InvalidArgumentError(f"shape is {shape!r}; it must be the lengths of a block") from None
    if any(n < 1 for n in sides):
        raise InvalidArgumentError(f"shape is {shape!r}; no side of a block may be shorter than 1")
    fills = _parameters(function) == 3
    if not fills and (sides or _parameters(function) != 2):
        form = "f(a, b, out)" if sides else "f(a, b), or f(a, b, out) for blocks and records"
        raise InvalidArgumentError(
            f"{function.__name__}{inspect.signature(function)} must have the form {form}"
        )
    return UserOp(f, function, sides, fills, bool(commutative))


def _parameters(function: Callable[..., Any]) -> int:
    """The arguments that a function needs; -1 if it cannot be called with these alone and by position."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty]
    plain = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in needed)
    return len(needed) if plain else -1


class UserOp:
    """What `pc.op` returns. Calling it calls the function."""

    def __init__(
        self, f: Any, function: types.FunctionType, shape: tuple[int, ...], fills: bool, commutative: bool
    ) -> None:
        self.f, self.function = f, function
        self.shape, self.fills, self.commutative = shape, fills, commutative
        self.name = f"op({function.__name__.encode()[: NAME_BYTES - 4].decode(errors='ignore')})"
        self.count = int(np.prod(shape, dtype=np.int64))
        self._codes: dict[np.dtype[Any], Code] = {}
        self._loops: dict[np.dtype[Any], Any] = {}  # by the dtype that is computed with
        self.images: dict[Any, bytes] = {}  # machine code for devices: device/operators.py
        self.lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        return self.f(*args)

    @cached_property
    def digest(self) -> str:
        """Of all that decides what the operator computes, as far as it can be seen."""
        text = f"{describe(self.function)} {self.shape} {self.commutative}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def __repr__(self) -> str:
        return f"<{self.name} {self.digest}>"

    def check(self, x: Array, parts: int, *, uneven: bool) -> None:
        """InvalidArgumentError unless `x` and its `parts` (`uneven`: its rows) consist of whole blocks."""
        n = len(self.shape)
        if n and x.shape[x.ndim - n :] != self.shape:
            raise InvalidArgumentError(
                f"{self.name} combines blocks of shape {self.shape}; the last axes of x, {x.shape}, differ"
            )
        if n and (x.ndim == n if uneven else x.size // self.count % parts):
            text = f"{self.name} combines blocks of shape {self.shape}, which cannot be cut"
            raise InvalidArgumentError(f"{text}; x has shape {x.shape}, for {parts} parts")

    def compile(self, dtype: np.dtype[Any]) -> Code:
        """The machine code for a dtype, compiled once. Raises UnsupportedError."""
        with self.lock:
            code = self._codes.get(dtype)
            if code is None:
                code = self._codes[dtype] = self._compile(dtype)
            return code

    def _compile(self, dtype: np.dtype[Any]) -> Code:
        name, known = dtype_name(dtype), dtype_name(dtype) in _DTYPES
        if not known and dtype.names is None and dtype.kind not in "mM":
            raise UnsupportedError(
                f"{self.name} is not defined for {dtype}; {', '.join(_core.DTYPES)} and records are possible"
            )
        if self.fills and not self.shape and dtype.names is None:
            raise UnsupportedError(
                f"{self.name} has the form f(a, b, out), which on {dtype} needs shape=, that of a block"
            )
        wide = known and bool(_core.is_wide(_core.DTYPES.index(name)))
        computed = np.dtype(np.float32) if wide else dtype
        owner = self._loops.get(computed)
        if owner is None:
            owner = self._loops[computed] = _loop(self, computed)
        elements = self.count * (1 if known else dtype.itemsize)
        return Code(owner.address, computed.alignment, elements, self.count, self.name, owner)


def _loop(operator: UserOp, dtype: np.dtype[Any]) -> Any:
    """The Numba callback `int64 loop(a, b, out, n)`: 0, or 1 if the function raised."""
    try:
        numba: Any = importlib.import_module("numba")
    except ImportError as error:
        text = f"{operator.name} needs Numba, which cannot be imported ({error})"
        raise UnsupportedError(f"{text}: pip install 'pycollectives[numba]'") from error

    shape, carray = operator.shape, numba.carray
    compiled = numba.njit(error_model="numpy")
    f = operator.f if operator.f is not operator.function else compiled(operator.function)

    def return_values(a: Any, b: Any, out: Any, n: int) -> None:
        left, right, result = carray(a, n), carray(b, n), carray(out, n)
        for i in range(n):
            result[i] = f(left[i], right[i])

    def fill_blocks(a: Any, b: Any, out: Any, n: int) -> None:
        left, right, result = carray(a, (n, *shape)), carray(b, (n, *shape)), carray(out, (n, *shape))
        for i in range(n):
            f(left[i], right[i], result[i])

    combine = compiled(fill_blocks if operator.fills else return_values)

    def guarded(a: Any, b: Any, out: Any, n: int) -> int:
        try:
            combine(a, b, out, n)
        except Exception:
            return 1
        return 0

    try:
        pointer = numba.types.CPointer(numba.from_dtype(dtype))
        signature = numba.types.int64(pointer, pointer, pointer, numba.types.int64)
        return numba.cfunc(signature, error_model="numpy")(guarded)
    except Exception as error:  # Numba's errors have no common class
        raise UnsupportedError(
            f"Numba cannot compile {operator.name} for {dtype}: {reason(error)}"
        ) from error


def reason(error: Exception) -> str:
    """What Numba has to say, in short."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("Failed in nopython mode pipeline")]
    said.append(type(error).__name__)
    return f"{said[0]} {said[1]}" if said[0].endswith(":") else said[0]


def describe(value: Any, seen: tuple[Any, ...] = ()) -> str:
    """A text of a function's code and of what it uses, the same in every process."""
    if any(value is one for one in seen):
        return "itself"
    seen = (*seen, value)
    value = getattr(value, "py_func", value)
    if isinstance(value, types.FunctionType):
        cells = [describe(content(cell), seen) for cell in value.__closure__ or ()]
        used = [f"{n}={describe(value.__globals__.get(n), seen)}" for n in names_in(value.__code__)]
        used += [describe(one, seen) for one in _reached(value)]
        return f"def {describe(value.__code__, seen)} {describe(value.__defaults__, seen)} {cells} {used}"
    if isinstance(value, types.CodeType):
        return f"{value.co_code.hex()} {value.co_names} {describe(value.co_consts, seen)}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(describe(one, seen) for one in value)})"
    if isinstance(value, frozenset):
        return f"{sorted(describe(one, seen) for one in value)}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}{hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()}"
    if isinstance(value, (types.NoneType, bool, int, float, complex, str, bytes, np.generic)):
        return f"{type(value).__name__} {value!r}"
    return f"{type(value).__name__} {getattr(value, '__name__', '')}"


def can_raise(value: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Is there a `raise` or an `assert` in a function, or in one that it uses?"""
    function = getattr(value, "py_func", value)
    if not isinstance(function, types.FunctionType) or any(function is one for one in seen):
        return False
    seen = (*seen, function)
    used = [content(cell) for cell in function.__closure__ or ()]
    used += [function.__globals__.get(name) for name in names_in(function.__code__)]
    used += _reached(function)
    return _raises(function.__code__) or any(can_raise(one, seen) for one in used)


def _raises(code: types.CodeType) -> bool:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    here = any(step.opname == "RAISE_VARARGS" for step in dis.get_instructions(code))
    return here or any(_raises(one) for one in inner)


def names_in(code: types.CodeType) -> list[str]:
    """The names that a code uses, with those of the functions in it."""
    inner = [names_in(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return sorted({*code.co_names, *(name for names in inner for name in names)})


def _reached(function: types.FunctionType) -> list[Any]:
    """Numba's functions that a function reaches through modules."""
    names = names_in(function.__code__)
    starts = [function.__globals__.get(name) for name in names]
    starts += [content(cell) for cell in function.__closure__ or ()]
    return [one for start in starts for one in from_modules(start, names)]


def from_modules(value: Any, names: list[str], seen: tuple[Any, ...] = ()) -> list[Any]:
    """Numba's functions that are reached by these names from a module, or from one that is reached: `package.module.helper`."""
    if not isinstance(value, types.ModuleType) or any(value is one for one in seen):
        return []
    reached = []
    for one in (vars(value)[name] for name in names if name in vars(value)):
        if isinstance(getattr(one, "py_func", None), types.FunctionType):
            reached.append(one)
        reached += from_modules(one, names, (*seen, value))
    return reached


def content(cell: types.CellType) -> Any:
    """What a function has closed over."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
