"""As much of CuPy, with its binding of NCCL, and of PyTorch, as the measurements use: over the emulated device."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class ndarray:
    """An array."""

    __module__ = "cupy"

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory, self.dtype, self.nbytes = memory, memory.dtype, memory.nbytes
        self.data, self.device = SimpleNamespace(ptr=memory.ctypes.data), SimpleNamespace(id=-1)
        self.__cuda_array_interface__ = memory.__array_interface__ | {"stream": None, "version": 3}

    def __getitem__(self, at: Any) -> Any:
        return self.memory[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self.memory[at] = getattr(value, "memory", value)


class Communicator:
    """Of NCCL: its calls in the order of their issue, on streams that are ready at once. Two arrays must not overlap."""

    def __init__(self, size: int, name: Any, rank: int) -> None:
        self.name, self.rank = name, rank
        assert len(name.given) == size
        name.barrier.wait()

    def _call(
        self, send: int, give: int, receive: int, take: int, stream: int, kind: int, combine: Any
    ) -> None:
        assert kind == 7 and stream > 2, "float32, on a stream of its own"
        name = self.name
        name.given[self.rank] = _at(send, give)
        name.barrier.wait()
        result = combine(name.given)
        name.barrier.wait()
        _at(receive, take)[:] = result

    def allReduce(self, send: int, to: int, count: int, kind: int, op: int, stream: int) -> None:
        self._call(send, count, to, count, stream, kind, lambda given: np.sum(given, axis=0) + op)

    def reduceScatter(self, send: int, to: int, count: int, kind: int, op: int, stream: int) -> None:
        mine = slice(self.rank * count, (self.rank + 1) * count)
        whole = count * len(self.name.given)
        self._call(send, whole, to, count, stream, kind, lambda given: np.sum(given, axis=0)[mine] + op)

    def allGather(self, send: int, to: int, count: int, kind: int, stream: int) -> None:
        whole = count * len(self.name.given)
        self._call(send, count, to, whole, stream, kind, np.concatenate)

    def broadcast(self, send: int, to: int, count: int, kind: int, root: int, stream: int) -> None:
        self._call(send, count, to, count, stream, kind, lambda given: given[root].copy())


def _at(address: int, count: int) -> np.ndarray[Any, Any]:
    return np.frombuffer((ctypes.c_char * (4 * count)).from_address(address), np.float32)


def modules(device: Any, ranks: int) -> dict[str, ModuleType]:
    """The modules of CuPy, by their names; `ranks`: of a communicator of NCCL's."""
    here = threading.local()

    class Stream:
        def __init__(self, non_blocking: bool = False) -> None:
            assert non_blocking
            self.ptr = device.make_stream()

        def use(self) -> None:
            here.stream = self

        def synchronize(self) -> None:
            device.synchronize(self.ptr)

        def begin_capture(self) -> None:
            device.begin_capture(self.ptr)

        def end_capture(self) -> Any:
            replay = device.end_capture(self.ptr)
            return SimpleNamespace(upload=lambda stream: None, launch=lambda stream: replay(stream.ptr))

    def add(a: ndarray, b: ndarray, out: ndarray) -> None:
        np.add(a.memory, b.memory, out=out.memory)

    def copy(to: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        assert kind == 3, "inside the device"
        device.copy(stream, to, source, nbytes)

    cupy, cuda, nccl = (ModuleType(name) for name in ("cupy", "cupy.cuda", "cupy.cuda.nccl"))
    cupy.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
    vars(cupy).update(
        cuda=cuda,
        float32=np.float32,
        ndarray=ndarray,
        full=lambda count, value, dtype: ndarray(np.full(count, value, dtype)),
        ones=lambda count, dtype: ndarray(np.ones(count, dtype)),
        empty_like=lambda x: ndarray(np.empty_like(x.memory)),
        add=add,
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
    )
    vars(cuda).update(
        Device=lambda number: SimpleNamespace(use=lambda: device.use_device(number)),
        Stream=Stream,
        get_current_stream=lambda: here.stream,
        runtime=SimpleNamespace(memcpyAsync=copy, deviceSynchronize=lambda: None),
    )
    vars(nccl).update(
        available=True,
        NCCL_FLOAT32=7,
        NCCL_SUM=0,
        NcclCommunicator=Communicator,
        get_unique_id=lambda: SimpleNamespace(
            barrier=threading.Barrier(ranks, timeout=20), given=[None] * ranks
        ),
    )
    return {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.nccl": nccl}


def torch() -> ModuleType:
    """As much of PyTorch as its sums use; `used`: the streams that were current."""
    made, used = ModuleType("torch"), []
    made.__spec__ = importlib.machinery.ModuleSpec("torch", None)

    def ones(count: int, dtype: Any, device: str) -> ndarray:
        assert device == "cuda"
        return ndarray(np.ones(count, dtype))

    vars(made).update(
        used=used,
        float32=np.float32,
        ones=ones,
        empty_like=lambda x: ndarray(np.empty_like(x.memory)),
        add=lambda a, b, out: np.add(a.memory, b.memory, out=out.memory),
        cuda=SimpleNamespace(
            ExternalStream=lambda pointer: pointer,
            stream=lambda stream: contextlib.nullcontext(used.append(stream)),
        ),
    )
    return made
