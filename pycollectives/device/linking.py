"""From an operator that the caller wrote (`pc.op`) to the machine code of kernels.

f ── Numba ──► LTO-IR ─────────────────────────────┐
                                                   ├─ nvJitLink ──► machine code, kept in memory and on disk
csrc/cuda/kernels/user.cu ── nvcc ──► LTO-IR ──────┘                with f inlined into it
    (all kernels, without an operator; in the extension)

On disk: $XDG_CACHE_HOME/pycollectives/operators/, the `KEPT` that were used last, each behind its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import tempfile
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..dispatch.tuning_file import cache_folder
from ..errors import DeviceError, UnsupportedError
from ..user_op import UserOp, can_raise, content, from_modules, names_in, reason

SYMBOL = "pc_user_operator"  # csrc/cuda/kernels/ptx.cuh
INSTALL = "pip install 'pycollectives[cuda13]'"
KEPT = 64
DIGEST = 32  # bytes, before the machine code in a file

# What Numba and cuda-bindings raise where a library of the CUDA toolkit, or the driver, is missing.
_MISSING = {
    "CudaSupportError",
    "NvvmSupportError",
    "DynamicLibNotFoundError",
    "FunctionNotFoundError",
    "NotSupportedError",
}


def image(
    operator: UserOp,
    dtype: np.dtype[Any],
    group: int,
    form: str,
    capability: int,
    kernels: bytes,
    *,
    fused: bool = False,
) -> bytes:
    """The machine code of the kernels for one operator, for devices of a compute capability (90: sm_90).

    `dtype`: that is computed with; `group`: the items that kernels combine at a time; `form`: which of the `kernels`, the
    fatbin of csrc/cuda/kernels/user.cu; `fused`: those for several ranks in one grid.
    Raises UnsupportedError where Numba cannot compile the operator for a device, DeviceError where a library is missing.
    """
    key = (dtype, form, capability, fused)
    with operator.lock:
        made = operator.images.get(key)
        if made is None:
            ltoir = compile_operator(operator, dtype, group, capability)
            made = operator.images[key] = link(ltoir, form, capability, kernels, fused)
        return made


def refuse_exceptions(operator: UserOp) -> None:
    """UnsupportedError for an operator that may raise: no kernel can."""
    if can_raise(operator.function):
        raise UnsupportedError(
            f"{operator.name} raises exceptions, which kernels on a device cannot do: pass host arrays"
        )


# -- Numba --------------------------------------------------------------------------------------------------------------------


def compile_operator(operator: UserOp, dtype: np.dtype[Any], group: int, capability: int) -> bytes:
    """LTO-IR of the function `pc_user_operator(accumulators, operands, items)`, which combines up to `group` items."""
    refuse_exceptions(operator)
    numba, cuda = _numba_cuda(operator)
    try:
        element = numba.from_dtype(dtype)
        pointer = numba.types.CPointer(element)
        signature = numba.types.void(pointer, pointer, numba.types.uint32)
        code, _ = cuda.compile(
            _combiner(operator, cuda, element, group),
            signature,
            cc=divmod(capability, 10),
            output="ltoir",
            abi="c",
            abi_info={"abi_name": SYMBOL},
        )
    except DeviceError:
        raise
    except Exception as error:  # Numba's errors have no common class
        if type(error).__name__ in _MISSING:
            raise DeviceError(
                f"{operator.name}: a part of CUDA is missing: {reason(error)}: {INSTALL}"
            ) from error
        raise UnsupportedError(
            f"Numba cannot compile {operator.name} for {dtype} on a device: {reason(error)}"
        ) from error
    return bytes(code)


_importing = threading.Lock()


def _numba_cuda(operator: UserOp) -> tuple[Any, Any]:
    try:
        importlib.import_module("numba_cuda")  # Numba itself has none of it any more
        with _importing, _names_that_numpy_had():
            with contextlib.suppress(ImportError):
                importlib.import_module("numba.cuda.np.arrayobj")
            return importlib.import_module("numba"), importlib.import_module("numba.cuda")
    except ImportError as error:
        raise DeviceError(
            f"{operator.name} on a device needs the package numba-cuda, which cannot be imported ({error}): {INSTALL}"
        ) from error


@contextlib.contextmanager
def _names_that_numpy_had() -> Iterator[None]:
    """numba-cuda up to 0.30 looks for names when it is imported that NumPy 2.5 has no more."""
    missing = {"row_stack": np.vstack}
    added = {name: value for name, value in missing.items() if not hasattr(np, name)}
    for name, value in added.items():
        setattr(np, name, value)
    try:
        yield
    finally:
        for name in added:
            delattr(np, name)


def _combiner(operator: UserOp, cuda: Any, element: Any, group: int) -> Any:
    """The function to compile. Its loop has a constant length, so it is unrolled, and items stay in registers.

    All is inlined as Python code: to compile the functions that a function calls, Numba asks the driver for a device.
    """
    function, array_at = _inlined(operator.function, cuda), _array_at()
    shape = operator.shape

    def return_values(acc: Any, operands: Any, items: Any) -> None:
        left, right = array_at(acc, (group,)), array_at(operands, (group,))
        for i in range(group):
            if i < items:
                left[i] = function(left[i], right[i])

    def fill_records(acc: Any, operands: Any, items: Any) -> None:
        left, right = array_at(acc, (group,)), array_at(operands, (group,))
        out = cuda.local.array(1, element)
        for i in range(group):
            if i < items:
                function(left[i], right[i], out[0])
                left[i] = out[0]

    def fill_blocks(acc: Any, operands: Any, items: Any) -> None:
        left, right = array_at(acc, (group, *shape)), array_at(operands, (group, *shape))
        out = cuda.local.array(shape, element)
        for i in range(group):
            if i < items:
                function(left[i], right[i], out)
                for at in np.ndindex(shape):
                    left[(i, *at)] = out[at]

    return return_values if not operator.fills else fill_blocks if shape else fill_records


def _inlined(function: types.FunctionType, cuda: Any, made: tuple[Any, ...] = ()) -> Any:
    """A function, and those of Numba's that it uses, for a device."""
    names = names_in(function.__code__)
    copies: dict[str, types.ModuleType] = {}

    def own(value: Any) -> Any:
        if isinstance(value, types.ModuleType) and from_modules(value, names):
            copy = copies.get(value.__name__)
            if copy is None:  # else it is reached from itself
                copy = copies[value.__name__] = types.ModuleType(value.__name__)
                vars(copy).update(vars(value))
                vars(copy).update({n: own(vars(value)[n]) for n in names if n in vars(value)})
            return copy
        inner = getattr(value, "py_func", None)
        if isinstance(inner, types.FunctionType) and inner not in made:  # it may call itself
            return _inlined(inner, cuda, (*made, inner))
        return value

    used = {n: own(function.__globals__[n]) for n in names if n in function.__globals__}
    cells = tuple(types.CellType(own(content(cell))) for cell in function.__closure__ or ())
    copy = types.FunctionType(
        function.__code__, function.__globals__ | used, function.__name__, function.__defaults__, cells
    )
    return cuda.jit(device=True, inline="always")(copy)


def _array_at() -> Any:
    """Numba's own: the array of a shape at a pointer, in compiled code."""
    for module in ("numba.cuda.np.arrayobj", "numba.np.arrayobj"):  # numba-cuda used Numba's until 2025
        with contextlib.suppress(ImportError, AttributeError):
            return importlib.import_module(module).get_cfarray_intrinsic("C", None)
    raise DeviceError("this version of numba-cuda is not known: it has no arrays at pointers")


# -- nvJitLink ----------------------------------------------------------------------------------------------------------------


def link(ltoir: bytes, form: str, capability: int, kernels: bytes, fused: bool = False) -> bytes:
    """The machine code of the kernels of one form with an operator in them; from the disk if it is there."""
    try:
        linker: Any = importlib.import_module("cuda.bindings.nvjitlink")
        version = linker.version()
    except Exception as error:
        raise DeviceError(
            f"an operator on a device is linked by nvJitLink, which cannot be used ({reason(error)}); "
            f"the packages cuda-bindings and nvidia-nvjitlink bring it: {INSTALL}"
        ) from error
    ways = ("ll", "ll128", "simple", "direct")
    names = [f"pc_user_{'fused_' if fused else ''}{way}_{form}" for way in ways]
    if form == "blocks":
        names.pop()
    options = [
        f"-arch=sm_{capability}",
        "-lto",
        "-O3",
        "-fma=0",
        *(f"-kernels-used={name}" for name in names),
    ]
    key = hashlib.blake2b(digest_size=16)
    for part in (kernels, ltoir, repr((version, options)).encode()):
        key.update(hashlib.blake2b(part).digest())
    path = _kept(key.hexdigest())
    if path is not None:
        found = _read(path)
        if found is not None:
            return found
    made = _linked(linker, [(linker.InputType.FATBIN, kernels), (linker.InputType.LTOIR, ltoir)], options)
    if path is not None:
        _keep(path, made)
    return made


def _linked(linker: Any, parts: list[tuple[Any, bytes]], options: list[str]) -> bytes:
    handle = linker.create(len(options), options)
    try:
        try:
            for kind, data in parts:
                linker.add_data(handle, kind, data, len(data), "operator")
            linker.complete(handle)
        except Exception as error:
            log = bytearray(linker.get_error_log_size(handle))
            linker.get_error_log(handle, log)
            text = " ".join(log.decode(errors="replace").strip("\0\n ").split())
            raise DeviceError(f"nvJitLink cannot link an operator: {text or error}") from error
        made = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, made)
        return bytes(made)
    finally:
        linker.destroy(handle)


# -- on disk ------------------------------------------------------------------------------------------------------------------


def _kept(key: str) -> Path | None:
    try:
        return cache_folder() / "operators" / f"{key}.code"
    except RuntimeError:  # there is no home directory
        return None


def _digest(code: bytes) -> bytes:
    return hashlib.blake2b(code, digest_size=DIGEST).digest()


def _read(path: Path) -> bytes | None:
    """What `_keep` has kept; None if it is not there, or is damaged."""
    try:
        text = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    return text[DIGEST:] if text[:DIGEST] == _digest(text[DIGEST:]) else None


def _keep(path: Path, made: bytes) -> None:
    """Never raises: what cannot be kept is made again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with open(handle, "wb") as file:
                file.write(_digest(made) + made)
            os.replace(name, path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        for old in sorted(path.parent.iterdir(), key=lambda one: -one.stat().st_mtime)[KEPT:]:
            old.unlink(missing_ok=True)
