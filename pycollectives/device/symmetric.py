"""Symmetric memory on devices: `comm.empty(shape, dtype, device="cuda")`.

Collective. Every rank has a piece of its own and has mapped those of the others, so native kernels find inputs and outputs where
they are, and nothing is copied through staging memory. A piece is given back in the next such call after all ranks have dropped
their arrays, when no kernel of theirs is on its way.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DeviceError, UnsupportedError
from .arrays import _DLPACK, CUDA, _c_strides, _DLDataType, _DLDevice, _DLTensor
from .extension import native
from .switch import bound_to_switch, close

if TYPE_CHECKING:
    from .device import Device

LEAST_BYTES = 512  # of a piece: an empty array has an address, too


class Symmetric:
    """The symmetric arrays of one rank of a device communicator."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._dropped: dict[int, bool] = {}  # by region
        self._made = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new array on every rank. Raises DeviceError on every rank if one of them has not the memory."""
        device = self._device
        device.check()
        device.drain()  # all that was called before has ended; so on all ranks after the exchange
        nbytes = _bytes(shape, dtype)
        self._made += 1
        held = [number for number, dropped in self._dropped.items() if not dropped]
        offers = self._exchange("quiet", {"held": held, "nbytes": nbytes})
        for number in set(self._dropped) - {n for one in offers for n in one["held"]}:
            device._rank.remove_region(number)
            del self._dropped[number]
        number, own, problem = self._map(nbytes)
        offers = self._exchange("mapped", {"error": problem})
        if any(one["error"] for one in offers) and number >= 0:
            device._rank.remove_region(number)
        self._raise_first(offers)
        self._dropped[number] = False
        array = SymmetricArray(own, shape, dtype, device.number)
        weakref.finalize(array, self._dropped.__setitem__, number, True)
        return of_the_library(array)

    def _map(self, nbytes: int) -> tuple[int, Any, str]:
        """The number of a new region, this rank's piece of it, and what went wrong when it was mapped."""
        device, module = self._device, native(self._device.options.emulated)
        own, offer = None, {"error": "", "memory": ""}
        fds: list[int] = []
        theirs: list[int] = []
        try:
            bound = None
            if device.multicast:  # the switch takes the array where it is
                bound = bound_to_switch(device.comm, device._rank, f"device array {self._made} bound", nbytes)
            try:
                if bound is None:
                    own = module.SymmetricMemory(device.number, nbytes)
                else:
                    own = module.SymmetricMemory(device.number, bound)
                    fds.append(bound.descriptor())
                offer["memory"] = own.exported().hex()
            except DeviceError as error:
                offer["error"] = str(error)
            offers = self._exchange("memory", offer, fds, theirs)
            self._raise_first(offers)
            exported = [bytes.fromhex(one["memory"]) for one in offers]
            try:
                return device._rank.add_region(own, exported, theirs), own, ""
            except (DeviceError, UnsupportedError) as error:
                return -1, own, str(error)
        finally:
            close(fds)
            close(theirs)

    def _exchange(
        self, what: str, offer: dict[str, Any], fds: Sequence[int] = (), into: list[int] | None = None
    ) -> list[dict[str, Any]]:
        """What all ranks offer; their descriptors come into `into`, and belong to the caller then."""
        comm = self._device.comm
        told = comm._exchange(f"device array {self._made} {what}", json.dumps(offer).encode(), list(fds))
        if into is not None:
            into += [fd for _, theirs in told for fd in theirs]
        return [json.loads(text) for text, _ in told]

    def _raise_first(self, offers: list[dict[str, Any]]) -> None:
        for rank, one in enumerate(offers):
            if one["error"]:
                raise DeviceError(f"rank {rank}: {one['error']}", rank=self._device.comm.rank, peer=rank)


def alone(module: Any, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The array of a rank that shares its device memory with nobody. Raises DeviceError."""
    memory = module.SymmetricMemory(number, _bytes(shape, dtype))
    return of_the_library(SymmetricArray(memory, shape, dtype, number))


def _bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return max(LEAST_BYTES, math.prod(shape) * dtype.itemsize)


def of_the_library(array: SymmetricArray) -> Any:
    """The same memory as an array of CuPy, or of PyTorch, where that is imported."""
    if (cupy := sys.modules.get("cupy")) is not None and array.dtype.isbuiltin == 1:
        return cupy.asarray(array)
    if (torch := sys.modules.get("torch")) is not None:
        return torch.from_dlpack(array)
    return array


class SymmetricArray:
    """An array in symmetric device memory, with `__cuda_array_interface__` and DLPack; C order. Keeps its memory alive."""

    def __init__(self, memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any], number: int) -> None:
        self._memory, self.shape, self.dtype = memory, shape, dtype
        self.device = SimpleNamespace(id=number)
        self.nbytes = math.prod(shape) * dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        typestr = self.dtype.str if self.dtype.isbuiltin == 1 else f"|V{self.dtype.itemsize}"
        return {
            "shape": self.shape,
            "typestr": typestr,
            "data": (self._memory.address, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device.id

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """The memory belongs to no stream: whatever was queued on it has to be waited for by whoever queued it."""
        return _capsule(self)

    def __repr__(self) -> str:
        return f"<symmetric device array {self.dtype}{self.shape}>"


# -- DLPack, as a producer: the capsule's consumer calls the deleter, or its destructor does ------------------------------------

_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


_exported: dict[int, Any] = {}  # by the address of what a consumer has: it, and the array

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_valid = ctypes.pythonapi.PyCapsule_IsValid
_valid.restype, _valid.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _let_go(address: int) -> None:
    _exported.pop(address, None)


def _forget(capsule: int) -> None:
    if _valid(capsule, b"dltensor"):  # nobody has taken it
        _let_go(_pointer(capsule, b"dltensor"))


_delete = _Deleter(_let_go)
_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget)


def _capsule(array: SymmetricArray) -> Any:
    kinds = {name: kind for kind, name in _DLPACK.items()}
    if array.dtype.name not in kinds or not array.dtype.isnative:  # `name` does not tell the order of bytes
        raise UnsupportedError(f"DLPack has no type for {array.dtype}")
    code, bits = kinds[array.dtype.name]
    n = len(array.shape)
    strides = [step // array.dtype.itemsize for step in _c_strides(array.shape, array.dtype.itemsize)]
    dims, steps = (ctypes.c_int64 * n)(*array.shape), (ctypes.c_int64 * n)(*strides)
    tensor = _DLTensor(
        array._memory.address,
        _DLDevice(CUDA, array.device.id),
        n,
        _DLDataType(code, bits, 1),
        ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)),
        0,
    )
    managed = _Managed(tensor, None, _delete)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, dims, steps, array)
    return _new(address, b"dltensor", ctypes.cast(_destructor, ctypes.c_void_p))
