"""Arrays of other libraries in device memory: own parsing of `__cuda_array_interface__` and DLPack, no import of the library.

CuPy, Numba, ...          x.__cuda_array_interface__        address, shape, strides, type, the stream that fills it
PyTorch                   its own attributes                (the interface knows no bfloat16, and refuses what needs a gradient)
JAX, anything else        x.__dlpack__()                    the same in a C struct; kept until the call is over

An array becomes a `DeviceView`: a NumPy array that says all about its memory, of which nobody may read the contents here.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, UnsupportedError
from ..extended_dtypes import dtype_of

CUDA, CUDA_MANAGED = 2, 13  # kDLCUDA, kDLCUDAManaged
LEGACY_STREAM = 1  # the default stream, as a handle
JAX = ("jax", "jaxlib")
KNOWN = ("owner", "library", "number", "stream", "keep", "at")  # of a view

# DLPack's type codes, with the bits of one element, and the name of the dtype.
_DLPACK = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (4, 16): "bfloat16",
    (5, 64): "complex64",
    (5, 128): "complex128",
    (6, 8): "bool",
    (10, 8): "float8_e4m3fn",
    (12, 8): "float8_e5m2",
}


class DeviceView(np.ndarray[Any, Any]):
    """The shape, the strides, the type and the address of an array in device memory.

    `owner`: the caller's array; `library`: the package that it is from; `number`: the device's, -1 where it does not say;
    `stream`: the handle of the stream that its data are ready on; `at`: of that of a call that was issued earlier, or None.
    """

    owner: Any
    library: str
    number: int
    stream: int
    keep: Any
    at: int | None = None

    def __array_finalize__(self, parent: Any) -> None:
        if isinstance(parent, DeviceView):
            for name in KNOWN:
                setattr(self, name, getattr(parent, name, None))

    def __repr__(self) -> str:  # NumPy's would read the memory
        return f"<device array {self.dtype}{self.shape}>"

    __str__ = __repr__


def library_of(x: Any) -> str:
    """The package that an array's class is from: "cupy", "torch", ..."""
    return type(x).__module__.partition(".")[0]


def view_of(x: Any) -> DeviceView | None:
    """The view of an array in device memory, None for everything else. Raises InvalidArgumentError, UnsupportedError."""
    if isinstance(x, DeviceView):
        return x
    library = library_of(x)
    if library == "torch":
        return _from_torch(x)
    by_dlpack = library in JAX  # which is told the stream that has to wait for what fills the array
    if not by_dlpack and (interface := getattr(x, "__cuda_array_interface__", None)) is not None:
        return _from_interface(x, interface)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        kind, number = x.__dlpack_device__()
        if int(kind) in (CUDA, CUDA_MANAGED):
            return _from_dlpack(x, int(number))
    return None


def stream_of(x: DeviceView) -> int:
    """The stream to work on: the current one of this thread where the library has such, else the one that the array names.

    Of an array of `issued`: what it was then.
    """
    if x.at is not None:
        return x.at
    if x.library == "torch":
        stream = sys.modules["torch"].cuda.current_stream(x.number).cuda_stream
    elif x.library == "cupy":
        stream = sys.modules["cupy"].cuda.get_current_stream().ptr
    else:
        stream = x.stream
    return int(stream) or LEGACY_STREAM


def issued(x: Any, *, whole: bool = True) -> Any:
    """`x` for a call that another thread makes later: if it is in device memory, a view that keeps the stream to work on.

    `whole`: a strided one is copied now, on that stream. Raises as `view_of` and `contiguous`.
    """
    if (found := view_of(x)) is None:
        return x
    view = (contiguous(found) if whole else found).view()
    view.at = stream_of(view)
    return view


def absent(out: DeviceView) -> DeviceView:
    """No elements, on the device of `out`: the input of a rank that has none."""
    view = np.empty((0,) * max(1, out.ndim), out.dtype).view(DeviceView)
    for name in KNOWN:
        setattr(view, name, getattr(out, name))
    return view


def _made(
    x: Any,
    pointer: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...] | None,
    readonly: bool,
    number: int,
    stream: int,
    keep: Any = None,
) -> DeviceView:
    """`strides` in bytes; None: C order."""
    if strides is None:
        strides = _c_strides(shape, dtype.itemsize)
    if 0 in shape:
        view = np.empty(shape, dtype).view(DeviceView)  # no elements, no memory
    else:
        view = np.asarray(_Memory(pointer, shape, dtype, strides, readonly)).view(dtype).view(DeviceView)
    if readonly:
        view.flags.writeable = False
    view.owner, view.library, view.number, view.stream, view.keep = x, library_of(x), number, stream, keep
    return view


def _c_strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    strides, step = [], item
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


class _Memory:
    """Makes NumPy look at an address."""

    def __init__(
        self,
        pointer: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...],
        readonly: bool,
    ) -> None:
        raw = dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}"
        self.__array_interface__ = {
            "shape": shape,
            "typestr": raw,
            "data": (pointer, readonly),
            "strides": strides,
            "version": 3,
        }


def _from_interface(x: Any, interface: dict[str, Any]) -> DeviceView:
    try:
        shape = tuple(int(n) for n in interface["shape"])
        pointer, readonly = interface["data"]
        dtype = np.dtype(interface["typestr"])
        strides = interface.get("strides")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"the __cuda_array_interface__ of a {type(x).__name__} is damaged: {error!r}"
        ) from None
    if interface.get("mask") is not None:
        raise UnsupportedError("masked device arrays cannot be moved")
    named = getattr(x, "dtype", None)
    if dtype.kind == "V" and isinstance(named, np.dtype):
        dtype = named  # types that NumPy knows through ml_dtypes are opaque bytes in the interface
    told = interface.get("stream")
    if told == 0:
        raise InvalidArgumentError("the __cuda_array_interface__ names stream 0, which its standard forbids")
    device = getattr(getattr(x, "device", None), "id", -1)
    bytes_apart = None if strides is None else tuple(int(n) for n in strides)
    return _made(
        x,
        int(pointer or 0),
        shape,
        dtype,
        bytes_apart,
        bool(readonly),
        device if isinstance(device, int) else -1,
        int(told or LEGACY_STREAM),
    )


def _from_torch(x: Any) -> DeviceView | None:
    if not getattr(x, "is_cuda", False):
        return None
    name = str(x.dtype).removeprefix("torch.")
    try:
        dtype = dtype_of(name)
    except TypeError:
        raise UnsupportedError(f"tensors of {x.dtype} cannot be moved") from None
    if x.requires_grad and x.is_leaf:
        x = x.detach()
    device = int(x.device.index or 0)
    strides = tuple(int(n) * dtype.itemsize for n in x.stride())
    return _made(x, int(x.data_ptr()), tuple(x.shape), dtype, strides, False, device, LEGACY_STREAM)


# -- DLPack: struct DLManagedTensor of its header, version 0.x ------------------------------------------------------------------


class _DLDevice(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _from_dlpack(x: Any, device: int) -> DeviceView:
    # The capsule is not consumed: it stays the owner of the tensor, and the view keeps it.
    capsule = x.__dlpack__(stream=LEGACY_STREAM)
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    kind = (tensor.dtype.code, tensor.dtype.bits)
    if tensor.dtype.lanes != 1 or kind not in _DLPACK:
        raise UnsupportedError(f"DLPack type code {kind[0]} of {kind[1]} bits cannot be moved")
    dtype = dtype_of(_DLPACK[kind])
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    pointer = (tensor.data or 0) + tensor.offset
    return _made(x, pointer, shape, dtype, strides, False, device, LEGACY_STREAM, capsule)


# -- results -------------------------------------------------------------------------------------------------------------------


def empty_like(x: DeviceView, shape: tuple[int, ...]) -> Any:
    """A new array of the caller's kind, or what becomes one (jax_results.py). Raises UnsupportedError for other libraries."""
    owner = x.owner
    if x.library == "torch":
        return owner.new_empty(shape)
    if x.library == "cupy":
        return sys.modules["cupy"].empty(shape, owner.dtype)
    if x.library in JAX:
        from .jax_results import JaxResult

        return JaxResult(x, shape)
    if x.library in ("numba", "numba_cuda"):
        return importlib.import_module("numba.cuda").device_array(shape, x.dtype)
    raise UnsupportedError(
        f"no new array can be made for a {type(owner).__name__} of {x.library}: pass out=, which takes the result"
    )


def contiguous(x: DeviceView) -> DeviceView:
    """`x` itself, or a copy in C order made by its library."""
    if x.flags.c_contiguous:
        return x
    if x.library == "torch":
        copy = x.owner.contiguous()
    elif x.library == "cupy":
        copy = sys.modules["cupy"].ascontiguousarray(x.owner)
    else:
        raise UnsupportedError(f"strided device arrays of {x.library} cannot be moved: pass a contiguous one")
    view = view_of(copy)
    assert view is not None
    return view
