"""What ranks that are processes do on devices. Without pytest: a rank imports it when it begins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "communicator"))
sys.path.insert(0, str(Path(__file__).parents[1] / "device"))

import catalogue
import numpy as np
import on_device

from pycollectives.device import Options
from pycollectives.device.device import Device
from pycollectives.device.extension import native

TIMEOUT = 25.0  # seconds of a call
FEW = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")


def meet(comm: Any, number: int, **options: Any) -> None:
    """Arrays in host memory go by a device from now on."""
    if comm._device is not None:
        comm._device.close()
    comm._device = Device(comm, Options(stages_host=True, **options), number)
    comm.timeout = TIMEOUT


def few(comm: Any, counts: list[int], options: dict[str, Any]) -> int:
    """A verb of each kind by two algorithms, all ranks on the current device."""
    meet(comm, -1, **options)
    made = 0
    for verb in FEW:
        for algorithm in catalogue.able(verb, comm.size)[:2]:
            for count in counts:
                way = catalogue.WAYS[made % len(catalogue.WAYS)]
                catalogue.check(comm, verb, algorithm, count, "float32", 0, way, made)
                made += 1
    return made


def every_algorithm(comm: Any, counts: list[int], options: dict[str, Any]) -> int:
    """On a device of its own."""
    meet(comm, comm.rank % native(emulated=False).device_count(), **options)
    return catalogue.every_algorithm(comm, counts, ["int64", "float32", "bfloat16"])


def switched(comm: Any) -> list[str]:
    """The kernels of calls that the switch can make, which are right."""
    meet(comm, comm.rank % native(emulated=False).device_count())
    x = np.arange(5000, dtype=np.float32) * (comm.rank + 1)
    for _ in range(3):
        total = comm.all_reduce(x, algorithm="two_shot")
        assert np.array_equal(total, np.arange(5000) * sum(range(1, comm.size + 1)))
        everyone = comm.all_gather(x, algorithm="direct")
        assert np.array_equal(everyone[-1], np.arange(5000) * comm.size)
    return [call.kernel for call in comm._device._kept.values()]


def switched_in_place(comm: Any) -> list[str]:
    """The same on an array that the switch takes where it is: its memory comes to the other processes by descriptors."""
    meet(comm, comm.rank % native(emulated=False).device_count())
    x = comm.empty(5003, "float32", device="cuda")
    held = on_device.Held(native(emulated=False), x)
    assert comm._device._rank.on_switch(held.address, 5003 * 4), "it would be copied"
    held.put(np.arange(5003, dtype=np.float32) * (comm.rank + 1))
    on = on_device.Part(x, 0, (5003,), held.stream)
    for _ in range(2):
        comm.all_reduce(on, out=on, algorithm="two_shot")
    comm._device.drain()
    assert np.array_equal(held.get(), np.arange(5003) * sum(range(1, comm.size + 1)) * comm.size)
    return [call.kernel for call in comm._device._kept.values()]
