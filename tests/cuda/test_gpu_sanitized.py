"""What compute-sanitizer looks at: each kind of kernel, in one launch, since it may put launches one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import on_gpu
import pytest

pytestmark = on_gpu.needs_gpu


def check(comm: Any) -> bool:
    """Few calls: odd tails, misaligned pieces, several verbs."""
    n, right = comm.size, []
    for count in (1, 37, 1031):
        x = np.arange(count, dtype=np.float32) + comm.rank
        total = n * np.arange(count) + sum(range(n))
        for algorithm in ("ring", "two_shot"):
            right.append(np.array_equal(comm.all_reduce(x, algorithm=algorithm), total))
        right.append(np.array_equal(comm.all_reduce(x.astype(np.int16), op="max"), (x + n - 1 - comm.rank)))
        right.append(np.array_equal(comm.all_gather(x, algorithm="direct")[-1], x + n - 1 - comm.rank))
        right.append(np.array_equal(comm.broadcast(x[::-1].copy(), root=1), np.arange(count)[::-1] + 1))
    return all(right)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("protocol", ["simple", "ll"])
def test_one_launch(protocol: str, native: bool) -> None:
    assert on_gpu.run(3, check, fused=True, native=native, protocol=protocol) == [True] * 3


@pytest.mark.parametrize("protocol", ["simple", "ll"])
def test_one_rank(protocol: str) -> None:
    """The kernels that are launched by each rank for itself."""

    def alone(comm: Any) -> bool:
        x = np.arange(1031, dtype=np.float32)
        return all(
            np.array_equal(comm.all_reduce(x, algorithm=algorithm), x) for algorithm in ("ring", "two_shot")
        )

    assert on_gpu.run(1, alone, native=protocol == "simple", protocol=protocol) == [True]
