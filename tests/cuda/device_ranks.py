"""What ranks that are processes do on devices. Without pytest: a rank imports it when it begins."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "communicator"))
sys.path.insert(0, str(Path(__file__).parents[1] / "device"))

import catalogue
import numpy as np
import on_device

import pycollectives as pc
from pycollectives.device import Options, emulated
from pycollectives.device.device import Device
from pycollectives.device.extension import native

TIMEOUT = 25.0  # seconds of a call
FEW = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
EMULATED = os.environ.get("PYCOLLECTIVES_GPU") == "emulated"
REFUSED = ("exporting device memory", "opening a peer's device memory")  # where the driver has no CUDA IPC


def module(*, shared: bool = True) -> Any:
    """The extension. `shared`: emulated memory can be opened by other processes from now on, as that of a GPU."""
    extension = native(EMULATED)
    if EMULATED:
        extension.configure(seed=7, shared=shared)
    return extension


def options(**changes: Any) -> Options:
    return replace(emulated(native=True) if EMULATED else Options(), stages_host=True, **changes)


def meet(comm: Any, number: int, **changes: Any) -> None:
    """Arrays in host memory go by a device from now on."""
    module()
    if comm._device is not None:
        comm._device.close()
    comm._device = Device(comm, options(**changes), number)
    comm.timeout = TIMEOUT


def obstacle(comm: Any, shared: bool = True) -> str:
    """Why processes cannot share device memory here, "" if they can."""
    module(shared=shared)
    try:
        Device(comm, options(), -1).close()
    except pc.DeviceError as error:
        if any(refused in str(error) for refused in REFUSED):
            return str(error)
        raise
    return ""


def few(comm: Any, counts: list[int], changes: dict[str, Any]) -> int:
    """A verb of each kind by two algorithms, all ranks on the current device."""
    meet(comm, -1, **changes)
    made = 0
    for verb in FEW:
        for algorithm in catalogue.able(verb, comm.size)[:2]:
            for count in counts:
                way = catalogue.WAYS[made % len(catalogue.WAYS)]
                catalogue.check(comm, verb, algorithm, count, "float32", 0, way, made)
                made += 1
    return made


def own_device(comm: Any) -> int:
    """Its number."""
    return int(comm.rank % module().device_count())


def every_algorithm(comm: Any, counts: list[int], changes: dict[str, Any]) -> int:
    """On a device of its own."""
    meet(comm, own_device(comm), **changes)
    return catalogue.every_algorithm(comm, counts, ["int64", "float32", "bfloat16"])


def in_place(comm: Any, each: bool) -> bool:
    """Arrays in symmetric memory, which native kernels of other processes find. `each`: on a device of its own."""
    meet(comm, own_device(comm) if each else -1, native=True, multicast=False)
    for turn in range(3):
        x = comm.empty(5003, "float32", device="cuda")
        held = on_device.Held(module(), x)
        assert comm._device._rank.finds(held.address, 5003 * 4), "it would be copied"
        held.put(np.arange(5003, dtype=np.float32) * (comm.rank + turn))
        on = on_device.Part(x, 0, (5003,), held.stream)
        comm.all_reduce(on, out=on, algorithm="two_shot")
        comm._device.drain()
        total = sum(rank + turn for rank in range(comm.size))
        assert np.array_equal(held.get(), np.arange(5003) * total)
        del x, held, on
    return True


def segment_of(device: Device) -> int:
    """Where its memory is: in the handle for others, behind CUDA's own (csrc/cuda/host/peer_memory.cpp)."""
    return int.from_bytes(bytes(device._rank.handle())[64:72], sys.byteorder)


def used_again(comm: Any) -> list[bool]:
    """Is the memory of a rank that is gone taken by the next one: while a peer in another process may still reach it, and then?

    And that of its arrays. They are larger than what other tests leave.
    """
    extension, roomy = module(), options(staging_bytes=96 << 20)
    first, count, kept, again = Device(comm, roomy, -1), 5 << 18, [], []
    array = first.empty((count,), np.dtype(np.float32))
    known = {segment_of(first), on_device.Held(extension, array).address}
    del array
    for leaving in range(comm.size):
        if comm.rank == leaving:
            first.close()
            del first
            gc.collect()
        comm._exchange(f"{leaving} is gone", b"")
        if comm.rank == 0:
            kept += pc.run_threads(1, lambda single: Device(single, roomy, -1))
            piece = extension.SymmetricMemory(extension.current_device(), 4 * count)
            again += [segment_of(kept[-1]) in known, piece.address in known]
            kept.append(piece)
    for one in kept[::2]:
        one.close()
    return again


def switched(comm: Any) -> list[str]:
    """The kernels of calls that the switch can make, which are right."""
    meet(comm, own_device(comm))
    x = np.arange(5000, dtype=np.float32) * (comm.rank + 1)
    for _ in range(3):
        total = comm.all_reduce(x, algorithm="two_shot")
        assert np.array_equal(total, np.arange(5000) * sum(range(1, comm.size + 1)))
        everyone = comm.all_gather(x, algorithm="direct")
        assert np.array_equal(everyone[-1], np.arange(5000) * comm.size)
    return [call.kernel for call in comm._device._kept.values()]


def switched_in_place(comm: Any) -> list[str]:
    """The same on an array that the switch takes where it is: its memory comes to the other processes by descriptors."""
    meet(comm, own_device(comm))
    x = comm.empty(5003, "float32", device="cuda")
    held = on_device.Held(module(), x)
    assert comm._device._rank.on_switch(held.address, 5003 * 4), "it would be copied"
    held.put(np.arange(5003, dtype=np.float32) * (comm.rank + 1))
    on = on_device.Part(x, 0, (5003,), held.stream)
    for _ in range(2):
        comm.all_reduce(on, out=on, algorithm="two_shot")
    comm._device.drain()
    assert np.array_equal(held.get(), np.arange(5003) * sum(range(1, comm.size + 1)) * comm.size)
    return [call.kernel for call in comm._device._kept.values()]
