"""LL128 is for links that are known to keep a line of 128 bytes whole."""

from __future__ import annotations

import os
import struct
import types
from typing import Any

import emulated
import numpy as np
import pytest

import pycollectives as pc
from pycollectives.device import Options
from pycollectives.device import device as device_module
from pycollectives.device.device import Device


@pytest.mark.parametrize("capability", [70, 80, 90, 100, 103])
def test_nvlink_of_data_center_devices(capability: int) -> None:
    assert emulated.device().keeps_lines_whole(capability, "nvlink")


@pytest.mark.parametrize("capability", [60, 75, 86, 89, 110, 120])
def test_nothing_else(capability: int) -> None:
    assert not emulated.device().keeps_lines_whole(capability, "nvlink")


def test_no_other_link() -> None:
    for capability in range(60, 130):
        for link in ("same device", "pcie"):
            assert not emulated.device().keeps_lines_whole(capability, link)
    with pytest.raises(pc.InvalidArgumentError):
        emulated.device().keeps_lines_whole(90, "string")


def test_the_link_between_two_devices() -> None:
    link = emulated.device().link_between
    assert (link(2, 2), link(0, 3), link(3, 4)) == ("same device", "nvlink", "pcie")


@pytest.mark.parametrize(
    ("numbers", "whole"), [((0, 0), False), ((0, 1, 2), True), ((0, 1, 4), False), ((5,), True)]
)
def test_all_ranks_agree(numbers: tuple[int, ...], whole: bool) -> None:
    """One link that tears lines is enough, wherever it is."""

    def fn(comm: Any) -> tuple[bool, list[str]]:
        found = Device(comm, Options(emulated=True, staging_bytes=4096), numbers[comm.rank])
        found.options = Options(staging_bytes=4096)  # chooses as on a real device
        sizes = (1 << 10, 1 << 17, 1 << 22)
        kinds = [
            comm._resolve("all_reduce", np.ones(n // 8), "sum", None, None, None, None, False).kind
            for n in sizes
        ]
        protocols = [found._protocol(kind, 0) for kind in kinds]
        found.close()
        return found.ll128, protocols

    expected = whole, ["ll", "ll128" if whole else "simple", "simple"]
    assert pc.run_threads(len(numbers), fn) == [expected] * len(numbers)


def test_a_device_is_known_by_its_bus() -> None:
    """Its number may be another one in another process, or it may be hidden from that (CUDA_VISIBLE_DEVICES)."""
    module = emulated.device()

    def made(rank: int, number: int) -> Any:
        sizes = {"blocks": 1, "depth": 2, "slot_bytes": (4096,) * 3, "number_bits": 4, "staging_bytes": 4096}
        return module.Rank(
            name="bus", rank=rank, size=2, device=number, fused=False, stages_host=False, **sizes
        )

    try:
        module.configure(seed=1)
        handle = made(0, 1).handle()
        module.configure(seed=1, hidden=1)
        for number, whole in ((0, False), (1, True)):  # the same device, and one by NVLink
            other = made(1, number)
            other.attach(0, handle)
            assert other.keeps_lines_whole is whole
        elsewhere = handle[:80] + struct.pack("i", os.getpid() + 1) + handle[84:]
        with pytest.raises(pc.DeviceError, match="to another process: operation not supported"):
            other.attach(0, elsewhere)  # there is no CUDA IPC, which the ranks of a process do without
        module.configure(seed=1, hidden=2)
        with pytest.raises(pc.DeviceError, match=r"device of rank 0 \(emulated:1\) is hidden"):
            made(1, 0).attach(0, handle)
    finally:
        module.configure(seed=1)


@pytest.mark.parametrize("step", ["handle", "attach", "open"])
def test_a_device_that_one_rank_cannot_reach(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks are told, at once."""
    real = emulated.device()

    class Unable:
        def __init__(self, **options: Any) -> None:
            self._rank, self._fails = real.Rank(**options), options["rank"] == 1

        def __getattr__(self, name: str) -> Any:
            return self._fail if self._fails and name == step else getattr(self._rank, name)

        def _fail(self, *_: Any) -> None:
            raise pc.DeviceError("the device of rank 0 is hidden")

    module = types.SimpleNamespace(**(vars(real) | {"Rank": Unable}))
    monkeypatch.setattr(device_module, "native", lambda emulated: module)

    def fn(comm: Any) -> bool:
        with pytest.raises(pc.DeviceError, match="rank 1: the device of rank 0 is hidden"):
            Device(comm, Options(emulated=True, staging_bytes=4096), comm.rank)
        return bool((comm.all_reduce(np.ones(3)) == comm.size).all())

    assert pc.run_threads(3, fn) == [True] * 3
