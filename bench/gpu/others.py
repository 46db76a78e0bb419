"""What a user would write without us: sums by CuPy and PyTorch on one device, NCCL between several."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from pycollectives.device.extension import native

ITEM = 4


def missing(emulated: bool) -> dict[str, str]:
    """What is not compared, and why."""
    if emulated:
        return dict.fromkeys(("cupy", "torch", "nccl"), "the emulated device")
    found = (
        {} if switched(emulated) > 1 else {"multicast": "no switch with multicast between several devices"}
    )
    found |= {name: "not installed" for name in ("cupy", "torch") if not importlib.util.find_spec(name)}
    if "cupy" in found:
        return found | {"nccl": "CuPy, whose binding is used, is not installed"}
    if not getattr(nccl_module(), "available", False):
        found["nccl"] = "not installed, or not found by CuPy"
    elif native(emulated=False).device_count() < 2:
        found["nccl"] = "one device, and NCCL refuses several ranks on it"
    return found


def nccl_module() -> Any:
    """CuPy's binding, which is no attribute of `cupy.cuda` before it is imported; None where it cannot be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the library was not found
        try:
            return importlib.import_module("cupy.cuda.nccl")
        except ImportError:
            return None


def switched(emulated: bool) -> int:
    """The devices that can be reached by multicast; of the emulated ones, a few."""
    module = native(emulated)
    count = min(module.device_count(), 3 if emulated else 8)
    return count if all(module.has_multicast(number) for number in range(count)) else 0


def on_one_device(emulated: bool, ranks: int, nbytes: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """An all-reduce of `ranks` vectors in one device's memory: the sum, then a copy for each."""
    absent, count = missing(emulated), max(1, nbytes // ITEM)
    if "cupy" not in absent:
        import cupy

        yield "CuPy: adds and copies", _sums(cupy, [cupy.ones(count, cupy.float32) for _ in range(ranks)])
    if "torch" not in absent:
        import cupy
        import torch

        vectors = [torch.ones(count, dtype=torch.float32, device="cuda") for _ in range(ranks)]
        call = _sums(torch, vectors)

        def on_that_stream() -> None:
            stream = torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)
            with torch.cuda.stream(stream):
                call()

        yield "PyTorch: adds and copies", on_that_stream


def _sums(library: Any, vectors: list[Any]) -> Callable[[], None]:
    total = library.empty_like(vectors[0])
    outputs = [library.empty_like(v) for v in vectors]

    def call() -> None:
        library.add(vectors[0], vectors[1], out=total)
        for v in vectors[2:]:
            library.add(total, v, out=total)
        for out in outputs:
            out[...] = total

    return call


def nccl(emulated: bool, nbytes: int) -> Iterator[tuple[str, int, Callable[[], float]]]:
    """NCCL's all-reduce with a rank on each device: its name, the ranks, and what measures it, in microseconds."""
    if "nccl" in missing(emulated):
        return
    import cupy

    n = cupy.cuda.runtime.getDeviceCount()

    def measure() -> float:
        nccl = nccl_module()
        comms = nccl.NcclCommunicator.initAll(n)
        count, streams, x = max(1, nbytes // ITEM), [], []
        for number in range(n):
            with cupy.cuda.Device(number):
                streams.append(cupy.cuda.Stream(non_blocking=True))
                x.append(cupy.ones(count, cupy.float32))

        def call() -> None:
            nccl.groupStart()
            for comm, one, stream in zip(comms, x, streams, strict=True):
                comm.allReduce(
                    one.data.ptr, one.data.ptr, count, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr
                )
            nccl.groupEnd()

        def wait() -> None:
            for stream in streams:
                stream.synchronize()

        call()
        wait()
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            for _ in range(20):
                call()
            wait()
            times.append((time.perf_counter() - begin) / 20)
        return 1e6 * statistics.median(times)

    yield f"NCCL, {n} devices", n, measure
