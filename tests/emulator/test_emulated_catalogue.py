"""Every algorithm of every verb by the CUDA kernels, under each protocol."""

from __future__ import annotations

import catalogue
import emulated
import pytest

from pycollectives import device


@pytest.mark.parametrize("protocol", ["simple", "ll", "ll128"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_every_algorithm(size: int, protocol: str) -> None:
    counts = [0, 1, 257] if size < 7 else [37]
    before = emulated.device().statistics()[1]
    made = emulated.run(
        size,
        catalogue.every_algorithm,
        counts,
        ["int64", "float32", "bfloat16"],
        options=device.emulated(protocol, threads=32 * (1 + size % 2)),
        seed=size,
    )
    assert min(made) > 40
    assert emulated.device().statistics()[1] == before, "a flag was released to the own device only"


@pytest.mark.parametrize("seed", [1, 2])
def test_long_messages(seed: int) -> None:
    """Many slices, each slot used again and again; blocks that run far apart."""
    made = emulated.run(
        3,
        catalogue.every_algorithm,
        [6007],
        ["float32"],
        options=device.emulated(blocks=3, depth=2),
        seed=seed,
    )
    assert min(made) > 40


def test_soak() -> None:
    """Random calls on sub-groups, many of them queued before the device runs."""
    assert emulated.run(4, catalogue.soak, 300, 7) == [300] * 4


@pytest.mark.parametrize("native", [False, True])
def test_host_arrays_through_device_memory(native: bool) -> None:
    made = emulated.run(
        3,
        catalogue.every_algorithm,
        [0, 129],
        ["int64", "float32"],
        options=device.emulated(native=native, stages_host=True),
    )
    assert min(made) > 40
