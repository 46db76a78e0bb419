"""What a user would write without us: sums by CuPy and PyTorch on one device, NCCL between several."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from pycollectives.device.extension import native

from .memory import Memory
from .timing import BYTES, Wish, blocks, expected, theirs

ITEM = BYTES["float32"]
BY_NCCL = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")


def missing(emulated: bool) -> dict[str, str]:
    """What is not compared, and why."""
    if emulated:
        return dict.fromkeys(("cupy", "torch", "nccl"), "the emulated device")
    found = {} if switched(emulated) else {"multicast": "no switch with multicast between several devices"}
    found |= {name: "not installed" for name in ("cupy", "torch") if not importlib.util.find_spec(name)}
    if "cupy" in found:
        return found | {"nccl": "CuPy, whose binding is used, is not installed"}
    if not getattr(nccl_module(), "available", False):
        found["nccl"] = "not installed, or not found by CuPy"
    elif devices(emulated) < 2:
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


def devices(emulated: bool) -> int:
    """How many ranks have a device each; of the emulated ones, a few."""
    return min(int(native(emulated).device_count()), 3 if emulated else 8)


def switched(emulated: bool) -> bool:
    """Is there a switch that reaches all of them?"""
    module, count = native(emulated), devices(emulated)
    return count > 1 and all(module.has_multicast(number) for number in range(count))


Made = tuple[Callable[[], Any], Callable[[], bool]]  # a call, and what says whether its result is right


def on_one_device(emulated: bool, ranks: int, nbytes: int) -> Iterator[tuple[str, Made]]:
    """An all-reduce of `ranks` vectors in one device's memory: the sum, then a copy for each."""
    absent, count = missing(emulated), max(1, nbytes // ITEM)
    if "cupy" not in absent:
        import cupy

        vectors = [cupy.ones(count, cupy.float32) for _ in range(ranks)]
        made = _sums(cupy, vectors)
        cupy.cuda.runtime.deviceSynchronize()  # the row has a stream of its own
        yield "CuPy: adds and copies", made
    if "torch" not in absent:
        import cupy
        import torch

        vectors = [torch.ones(count, dtype=torch.float32, device="cuda") for _ in range(ranks)]
        call, is_right = _sums(torch, vectors)
        cupy.cuda.runtime.deviceSynchronize()

        def on_that_stream() -> None:
            stream = torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)
            with torch.cuda.stream(stream):
                call()

        yield "PyTorch: adds and copies", (on_that_stream, is_right)


def _sums(library: Any, vectors: list[Any]) -> Made:
    total = library.empty_like(vectors[0])
    outputs = [library.empty_like(v) for v in vectors]

    def call() -> None:
        library.add(vectors[0], vectors[1], out=total)
        for v in vectors[2:]:
            library.add(total, v, out=total)
        for out in outputs:
            out[...] = total

    return call, lambda: all(float(out[-1]) == len(vectors) for out in outputs)


def by_nccl(wish: Wish, verb: str, ranks: int, nbytes: int) -> float:
    """Microseconds of a collective of NCCL's with a rank on each device; timed and checked as ours are."""
    nccl = nccl_module()
    name = nccl.get_unique_id()

    def make(rank: int, memory: Memory) -> Made:
        comm = nccl.NcclCommunicator(ranks, name, rank)  # meets the others
        given, taken = blocks(verb, max(1, nbytes // ITEM), ranks)
        x, out = memory.full(given, rank + 1), memory.full(taken, 0)
        stream, kind, op = memory.stream_handle, nccl.NCCL_FLOAT32, nccl.NCCL_SUM
        memory.synchronize()

        def call() -> None:
            at = x.data.ptr, out.data.ptr
            if verb == "all_reduce":
                comm.allReduce(*at, given, kind, op, stream)
            elif verb == "reduce_scatter":
                comm.reduceScatter(*at, taken, kind, op, stream)
            elif verb == "all_gather":
                comm.allGather(*at, given, kind, stream)
            else:
                comm.broadcast(*at, given, kind, 0, stream)

        return call, lambda: memory.value(out) == expected(verb, rank, ranks)

    return theirs(wish, ranks, make)
