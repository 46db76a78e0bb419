"""Array libraries of a GPU without a GPU: what their arrays say of themselves, over any memory."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

PROTECTED = 1 << 16
kept: list[Any] = []  # memory that work on a stream may still use: as the pools of libraries keep it


def untouchable() -> int:
    """The address of memory that ends the process when somebody looks at it, as a device's does."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    address = libc.mmap(None, PROTECTED, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert address not in (None, ctypes.c_void_p(-1).value)
    return int(address)


class Interface:
    """An array with `__cuda_array_interface__`, as Numba's."""

    def __init__(
        self,
        pointer: int,
        shape: tuple[int, ...],
        typestr: str = "<f4",
        *,
        strides: tuple[int, ...] | None = None,
        stream: int | None = None,
        readonly: bool = False,
        **more: Any,
    ) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (pointer, readonly),
            "strides": strides,
            "stream": stream,
            "version": 3,
            **more,
        }


def over(memory: np.ndarray[Any, Any], stream: int) -> Interface:
    """Host memory that says that it is a device's, ready on a stream."""
    typestr = memory.dtype.str if memory.dtype.isbuiltin == 1 else f"|V{memory.dtype.itemsize}"
    one = Interface(memory.ctypes.data, memory.shape, typestr, strides=memory.strides, stream=stream)
    one.dtype = memory.dtype  # type: ignore[attr-defined]
    kept.append(memory)
    return one


# -- DLPack --------------------------------------------------------------------------------------------------------------------


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Dlpack:
    """An array that speaks DLPack only. `strides` in elements."""

    def __init__(
        self,
        pointer: int,
        shape: tuple[int, ...],
        code: tuple[int, int] = (2, 32),
        *,
        strides: tuple[int, ...] | None = None,
        device: tuple[int, int] = (2, 0),
        offset: int = 0,
        lanes: int = 1,
    ) -> None:
        self.device, self.asked = device, []  # type: tuple[int, int], list[Any]
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides) if strides is not None else None
        tensor = _Tensor(
            pointer, _Device(*device), len(shape), _Type(*code, lanes), self._shape, self._strides, offset
        )
        self._managed = _Managed(tensor, None, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        self.asked.append(stream)
        return _new(ctypes.addressof(self._managed), b"dltensor", None)


# -- libraries with a current stream ---------------------------------------------------------------------------------------------


class CupyArray:
    """A CuPy array, as far as it is looked at. Its memory is the host's."""

    __module__ = "cupy"

    def __init__(self, memory: np.ndarray[Any, Any], device: int = 0) -> None:
        self.memory, self.dtype, self.device = memory, memory.dtype, SimpleNamespace(id=device)
        self.__cuda_array_interface__ = over(memory, 1).__cuda_array_interface__


class TorchTensor:
    """A CUDA tensor of PyTorch, as far as it is looked at. Its memory is the host's."""

    __module__ = "torch"

    def __init__(self, memory: np.ndarray[Any, Any], *, index: int = 0, cuda: bool = True) -> None:
        kept.append(memory)
        self.memory, self.is_cuda, self.requires_grad, self.is_leaf = memory, cuda, False, True
        self.dtype = f"torch.{memory.dtype.name}"
        self.shape, self.device = memory.shape, SimpleNamespace(index=index)

    def data_ptr(self) -> int:
        return int(self.memory.ctypes.data)

    def stride(self) -> tuple[int, ...]:
        return tuple(n // self.memory.itemsize for n in self.memory.strides)

    def new_empty(self, shape: tuple[int, ...]) -> TorchTensor:
        return TorchTensor(np.empty(shape, self.memory.dtype))

    def contiguous(self) -> TorchTensor:
        return TorchTensor(np.ascontiguousarray(self.memory))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        assert not self.is_cuda, "a CUDA tensor is no NumPy array"
        return self.memory


@contextmanager
def libraries() -> Iterator[threading.local]:
    """CuPy and PyTorch are loaded; `stream` of what is yielded is the current stream of the thread."""
    current = threading.local()
    cupy, torch = ModuleType("cupy"), ModuleType("torch")
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=current.stream))  # type: ignore[attr-defined]
    cupy.empty = lambda shape, dtype: CupyArray(np.empty(shape, dtype))  # type: ignore[attr-defined]
    cupy.ascontiguousarray = lambda x: CupyArray(np.ascontiguousarray(x.memory))  # type: ignore[attr-defined]
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        current_stream=lambda device: SimpleNamespace(cuda_stream=current.stream)
    )
    before = {name: sys.modules.get(name) for name in ("cupy", "torch")}
    sys.modules |= {"cupy": cupy, "torch": torch}
    try:
        yield current
    finally:
        kept.clear()
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
