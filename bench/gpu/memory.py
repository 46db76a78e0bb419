"""A rank's arrays, stream and graphs: by CuPy on a GPU, or on the emulated device, whose memory is the host's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

import ml_dtypes  # noqa: F401 - names of dtypes
import numpy as np

from pycollectives.device.extension import native


class Memory(Protocol):
    """Of the calling thread; everything runs on its own stream."""

    @property
    def stream_handle(self) -> int:
        """That stream."""

    def full(self, count: int, value: float, dtype: str = "float32") -> Any:
        """An array."""

    def adopt(self, array: Any, value: float) -> Any:
        """An array of `comm.empty(device="cuda")`, filled."""

    def copy(self, to: Any, source: Any) -> None:
        """As fast as the device can."""

    def synchronize(self) -> None:
        """Wait for the stream."""

    def capture(self, calls: Callable[[], None]) -> Callable[[], None]:
        """What replays the calls."""

    def value(self, array: Any) -> float:
        """Its last element."""


class Typed:
    """An array of another type over the memory of one of integers, so that no library has to know the type."""

    def __init__(self, bits: Any, dtype: np.dtype[Any], stream: int) -> None:
        self.bits, self.dtype = bits, dtype
        kind = {"typestr": f"|V{dtype.itemsize}", "stream": stream}
        self.__cuda_array_interface__ = bits.__cuda_array_interface__ | kind


class CupyMemory:
    def __init__(self, number: int = 0) -> None:
        import cupy

        self.cupy = cupy
        cupy.cuda.Device(number).use()
        native(emulated=False).use_device(number)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()

    @property
    def stream_handle(self) -> int:
        return int(self.stream.ptr)

    def full(self, count: int, value: float, dtype: str = "float32") -> Any:
        kind = np.dtype(dtype)
        if kind.isbuiltin == 1:
            return self.cupy.full(count, value, dtype)
        bits = np.array(value, kind).view(f"u{kind.itemsize}")
        return Typed(self.cupy.full(count, int(bits), bits.dtype), kind, self.stream_handle)

    def adopt(self, array: Any, value: float) -> Any:
        array.fill(value)  # CuPy's, as it is imported
        return array

    def copy(self, to: Any, source: Any) -> None:
        self.cupy.cuda.runtime.memcpyAsync(to.data.ptr, source.data.ptr, to.nbytes, 3, self.stream.ptr)

    def synchronize(self) -> None:
        self.stream.synchronize()

    def capture(self, calls: Callable[[], None]) -> Callable[[], None]:
        self.stream.begin_capture()
        calls()
        graph = self.stream.end_capture()
        graph.upload(self.stream)  # what the first launch would do, which may wait for kernels that run
        self.stream.synchronize()
        return lambda: graph.launch(self.stream)

    def value(self, array: Any) -> float:
        if not isinstance(array, Typed):
            return float(array[-1])
        bits = np.array(int(array.bits[-1]), f"u{array.dtype.itemsize}")
        return float(bits.view(array.dtype))

    @staticmethod
    def give_back() -> None:
        """What nobody has any more: CuPy keeps memory for each stream, and those of the next row are others."""
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()


class _HostArray:
    """Host memory that says that it is a device's."""

    def __init__(self, memory: np.ndarray[Any, Any], stream: int, keep: Any = None) -> None:
        self.memory, self.keep, self.dtype = memory, keep, memory.dtype
        self.__cuda_array_interface__ = memory.__array_interface__ | {"stream": stream, "version": 3}


class EmulatedMemory:
    def __init__(self, number: int = 0) -> None:
        self.module = native(emulated=True)
        self.module.use_device(number)
        self.stream = self.module.make_stream()

    @property
    def stream_handle(self) -> int:
        return int(self.stream)

    def full(self, count: int, value: float, dtype: str = "float32") -> _HostArray:
        return _HostArray(np.full(count, value, dtype), self.stream)

    def adopt(self, array: Any, value: float) -> _HostArray:
        address, _ = array.__cuda_array_interface__["data"]
        raw = (ctypes.c_char * array.nbytes).from_address(address)
        memory = np.frombuffer(raw, array.dtype)
        memory[...] = value
        return _HostArray(memory, self.stream, array)

    def copy(self, to: _HostArray, source: _HostArray) -> None:
        self.module.copy(self.stream, to.memory.ctypes.data, source.memory.ctypes.data, to.memory.nbytes)

    def synchronize(self) -> None:
        self.module.synchronize(self.stream)

    def capture(self, calls: Callable[[], None]) -> Callable[[], None]:
        self.module.begin_capture(self.stream)
        calls()
        replay = self.module.end_capture(self.stream)
        return lambda: replay(self.stream)

    def value(self, array: _HostArray) -> float:
        return float(array.memory[-1])

    @staticmethod
    def give_back() -> None:
        """Nothing is kept."""
