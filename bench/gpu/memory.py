"""A rank's arrays, stream and graphs: by CuPy on a GPU, or on the emulated device, whose memory is the host's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pycollectives.device.extension import native


class Memory(Protocol):
    """Of the calling thread; everything runs on its own stream."""

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


class CupyMemory:
    def __init__(self, number: int = 0) -> None:
        import cupy

        self.cupy = cupy
        cupy.cuda.Device(number).use()
        native(emulated=False).use_device(number)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()

    def full(self, count: int, value: float, dtype: str = "float32") -> Any:
        return self.cupy.full(count, value, dtype)

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
        return float(array[-1])


class _HostArray:
    """Host memory that says that it is a device's."""

    def __init__(self, memory: np.ndarray[Any, Any], stream: int, keep: Any = None) -> None:
        self.memory, self.keep = memory, keep
        self.__cuda_array_interface__ = memory.__array_interface__ | {"stream": stream, "version": 3}


class EmulatedMemory:
    def __init__(self, number: int = 0) -> None:
        self.module = native(emulated=True)
        self.module.use_device(number)
        self.stream = self.module.make_stream()

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
