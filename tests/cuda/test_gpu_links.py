"""How ranks reach each other on GPUs: memory of another process, of another device, one launch for all, and the switch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import catalogue
import device_ranks
import numpy as np
import on_gpu
import pytest
from ranks import Processes

import pycollectives as pc
from pycollectives.device.extension import native

pytestmark = on_gpu.needs_gpu
switch_between_processes = pytest.mark.skipif(
    "on_gpu.EMULATED", reason="optional: the emulated driver's memory is opened in its own process only"
)
on_two_devices = pytest.mark.skipif("on_gpu.devices() < 2", reason="optional: one device")


@pytest.fixture(scope="module")
def pair() -> Iterator[Processes]:
    with Processes(2, {"PYCOLLECTIVES_GPU": os.environ.get("PYCOLLECTIVES_GPU", "")}) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def sharing(pair: Processes) -> Processes:
    """The same where the driver lets processes share memory, which containers may be denied."""
    if why := pair.run(device_ranks.obstacle)[0]:
        pytest.skip(f"optional: no CUDA IPC here ({why})")
    return pair


# -- memory of another process: CUDA IPC ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"native": False}, {"native": False, "protocol": "ll"}])
def test_processes_on_one_device(sharing: Processes, options: dict[str, Any]) -> None:
    """The device takes turns between them, so this is slow: a few calls."""
    assert min(sharing.run(device_ranks.few, [0, 257], options, timeout=35)) == 20


def test_symmetric_memory_of_processes_on_one_device(sharing: Processes) -> None:
    assert sharing.run(device_ranks.in_place, False, timeout=35) == [True] * 2


def test_memory_that_other_processes_have_open(sharing: Processes) -> None:
    """Is not freed, and not used again before all of them are gone."""
    assert sharing.run(device_ranks.used_again, timeout=35)[0] == [False, False, True, True]


@pytest.mark.skipif("not on_gpu.EMULATED", reason="optional: a GPU's memory is not refused at will")
def test_processes_that_cannot_share_memory() -> None:
    """They are told why, and it is that which skips the tests above."""
    with Processes(2, {"PYCOLLECTIVES_GPU": "emulated"}) as ranks:
        for why in ranks.run(device_ranks.obstacle, False):
            assert "exporting device memory to another process" in why


@on_two_devices
@pytest.mark.parametrize("options", [{}, {"native": False}, {"multicast": False}])
def test_processes_with_devices_of_their_own(sharing: Processes, options: dict[str, Any]) -> None:
    counts = [0, 257] if on_gpu.EMULATED else [0, 257, 100_003]
    assert min(sharing.run(device_ranks.every_algorithm, counts, options, timeout=35)) > 40


@on_two_devices
def test_symmetric_memory_of_processes(sharing: Processes) -> None:
    """On devices of their own."""
    assert sharing.run(device_ranks.in_place, True, timeout=35) == [True] * 2


# -- memory of another device: peer access -------------------------------------------------------------------------------------


@on_two_devices
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("protocol", ["", "simple", "ll"])
def test_peer_access_inside_one_process(native: bool, protocol: str) -> None:
    size = min(on_gpu.devices(), 4)
    made = on_gpu.run(
        size,
        catalogue.every_algorithm,
        [1, 5001],
        ["int64", "float32", "bfloat16"],
        spread=True,
        native=native,
        protocol=protocol,
        multicast=False,
    )
    assert min(made) > 40


@on_two_devices
def test_two_ranks_on_each_device() -> None:
    made = on_gpu.run(4, catalogue.every_algorithm, [257], ["float32"], spread=2)
    assert min(made) > 40


# -- one launch for all ranks on a device ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [False, True])
def test_one_launch(native: bool) -> None:
    made = on_gpu.run(
        4, catalogue.every_algorithm, [0, 257, 5001], ["int64", "float32"], fused=True, native=native
    )
    assert min(made) > 40


def test_more_ranks_than_queues() -> None:
    """Eleven times three streams are more than the driver has queues for."""
    size = 4 if on_gpu.EMULATED else 11

    def fn(comm: Any) -> tuple[bool, bool]:
        total = comm.all_reduce(np.full(1000, comm.rank, np.int64))
        return comm._device.share.fused, bool((total == sum(range(size))).all())

    assert on_gpu.run(size, fn, fused=on_gpu.EMULATED) == [(True, True)] * size


def test_one_launch_with_several_devices() -> None:
    """A grid on each, which wait for each other."""
    if on_gpu.devices() < 2:
        pytest.skip("optional: one device")
    made = on_gpu.run(4, catalogue.every_algorithm, [257], ["float32"], spread=2, fused=True)
    assert min(made) > 40


def test_one_launch_and_a_disagreement() -> None:
    def fn(comm: Any) -> bool:
        with pytest.raises(pc.MismatchError):
            comm.all_reduce(np.ones(64 + 8 * comm.rank, np.float32), algorithm="one_shot")
        return True

    assert on_gpu.run(3, fn, fused=True) == [True] * 3


# -- the switch ------------------------------------------------------------------------------------------------------------------


def switches() -> bool:
    """Is there one that reaches all devices?"""
    module = native(on_gpu.EMULATED)
    return on_gpu.devices() > 1 and all(module.has_multicast(number) for number in range(on_gpu.devices()))


on_a_switch = pytest.mark.skipif(
    "not switches()", reason="optional: no switch with multicast between devices"
)


@on_a_switch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "int32", "uint64", "uint8"])
def test_multicast(dtype: str) -> None:
    """What the switch gives is right, and it is the switch that gives it."""
    size = min(on_gpu.devices(), 8)

    def fn(comm: Any) -> list[str]:
        for count in (1, 67, 4096, 1_000_003 // (1000 if on_gpu.EMULATED else 1)):
            x = (np.arange(count) % 7 + comm.rank).astype(dtype)
            ranks = sum(range(size))
            total = comm.all_reduce(x, algorithm="two_shot")
            assert np.array_equal(total, (np.arange(count) % 7 * size + ranks).astype(dtype))
            mine = comm.reduce_scatter(np.tile(x, size), algorithm="direct")
            assert np.array_equal(mine, total)
            everyone = comm.all_gather(x, algorithm="direct")
            assert np.array_equal(
                everyone.reshape(size, -1)[-1], (np.arange(count) % 7 + size - 1).astype(dtype)
            )
            assert np.array_equal(
                comm.broadcast(x, root=1, algorithm="flat"), (np.arange(count) % 7 + 1).astype(dtype)
            )
        return [call.kernel for call in comm._device._kept.values()]

    for kernels in on_gpu.run(size, fn, spread=True, multicast=True, native=True):
        assert sum(name.startswith("multicast") for name in kernels) == len(kernels) // (
            2 if dtype == "uint8" else 1
        )


@on_a_switch
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_switch_keeps_subnormal_numbers(dtype: str) -> None:
    """As the other kernels do."""
    size = min(on_gpu.devices(), 8)
    least = np.finfo(dtype).smallest_subnormal

    def fn(comm: Any) -> tuple[bool, list[str]]:
        total = comm.all_reduce(np.full(99, 3 * least, dtype), algorithm="two_shot")
        kernels = [call.kernel.split()[0] for call in comm._device._kept.values()]
        return bool((total == np.dtype(dtype).type(3 * size) * least).all()), kernels

    found = on_gpu.run(size, fn, spread=True, multicast=True, native=True)
    assert found == [(True, ["multicast"])] * size


@on_a_switch
@switch_between_processes
def test_multicast_between_processes(pair: Processes) -> None:
    """The object's descriptor goes by a socket."""
    assert pair.run(device_ranks.switched, timeout=35) == [["multicast add_f32", "multicast none"]] * 2


@on_a_switch
@switch_between_processes
def test_multicast_in_place_between_processes(pair: Processes) -> None:
    assert pair.run(device_ranks.switched_in_place, timeout=35) == [["multicast add_f32"]] * 2
