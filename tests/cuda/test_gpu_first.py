"""One call by each kind of kernel on a GPU: what all other tests need. Two ranks, a second each."""

from __future__ import annotations

from typing import Any

import numpy as np
import on_gpu
import pytest

from pycollectives.device.extension import native

pytestmark = on_gpu.needs_gpu


def sums(comm: Any, algorithm: str, count: int = 1000) -> tuple[str, bool]:
    """The kernel of an all-reduce, and whether it was right three times."""
    x = np.arange(count, dtype=np.float32) * (comm.rank + 1)
    want = np.arange(count) * sum(range(1, comm.size + 1))
    right = [np.array_equal(comm.all_reduce(x, algorithm=algorithm), want) for _ in range(3)]
    return str(next(iter(comm._device._kept.values())).kernel), all(right)


def test_there_is_a_device() -> None:
    module = native(on_gpu.EMULATED)
    assert on_gpu.devices() > 0 and module.capability(0) >= 70
    for threads in (512, 32):
        assert module.capacity(0, threads, 8) >= 16


def test_one_rank_alone() -> None:
    """No peer: nothing waits."""
    assert on_gpu.run(1, sums, "two_shot")[0][1]


@pytest.mark.parametrize("native", [False, True])
def test_one_launch_of_two_ranks(native: bool) -> None:
    """A single grid: what works where grids of different streams do not run side by side."""
    assert all(right for _, right in on_gpu.run(2, sums, "two_shot", native=native, fused=True))


@pytest.mark.parametrize("protocol", ["simple", "ll"])
def test_a_launch_of_each_rank(protocol: str) -> None:
    """Two grids that wait for each other."""
    assert all(right for _, right in on_gpu.run(2, sums, "ring", native=False, protocol=protocol))


def test_native_kernels() -> None:
    for algorithm in ("one_shot", "two_shot"):
        assert on_gpu.run(2, sums, algorithm, native=True) == [("float32 sum", True)] * 2


def test_many_slices() -> None:
    count = 3001 if on_gpu.EMULATED else 3_000_001
    assert all(right for _, right in on_gpu.run(2, sums, "ring", count, native=False))


def test_eight_ranks() -> None:
    """All blocks of all ranks are there at once."""
    assert all(right for _, right in on_gpu.run(8, sums, "two_shot", native=True))
