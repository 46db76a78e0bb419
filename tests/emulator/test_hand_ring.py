"""The ring that is written by hand, which the interpreted one is compared with: the same results, to the bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import emulated
import ml_dtypes
import numpy as np
import pytest

import pycollectives as pc
from pycollectives import device


def sums(comm: Any) -> list[bytes]:
    """Of vectors that are empty, shorter than the ranks, odd, and longer than a slot; in place and not; several on their way."""
    made = []
    for i, count in enumerate((0, 1, 2, 67, 500, 3001, 9000)):
        rng = np.random.default_rng(100 * count + comm.rank)
        x = rng.standard_normal(count).astype(np.float32)
        work = comm.all_reduce(x, out=x if i % 2 else None, algorithm="ring", async_op=True)
        made.append((work, count))
    return [work.wait().tobytes() for work, _ in made]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_it_is_the_same_ring(size: int) -> None:
    for seed in range(1, 4):
        options = device.emulated("simple", threads=32 * (1 + seed % 2), blocks=1 + seed)
        by_hand = dataclasses.replace(options, hand_ring=True)
        before = emulated.device().statistics()[1]
        found = emulated.run(size, sums, options=by_hand, seed=seed)
        assert found == emulated.run(size, sums, options=options, seed=seed)
        assert all(one == found[0] for one in found)
        assert emulated.device().statistics()[1] == before, "a flag was released to the own device only"


def test_it_is_the_other_kernel() -> None:
    def fn(comm: Any) -> list[str]:
        comm.all_reduce(np.ones(9, np.float32), algorithm="ring")
        comm.all_reduce(np.ones(9, ml_dtypes.bfloat16), algorithm="ring")
        return [call.kernel for call in comm._device._kept.values()]

    options = dataclasses.replace(device.emulated(), hand_ring=True)
    assert emulated.run(2, fn, options=options) == [["hand-written ring", "bfloat16 sum"]] * 2


def test_what_it_cannot_do() -> None:
    def fn(comm: Any) -> bool:
        with pytest.raises(pc.UnsupportedError):
            comm.all_reduce(np.ones(9, np.float32), "max", algorithm="ring")
        return True

    assert emulated.run(2, fn, options=dataclasses.replace(device.emulated(), hand_ring=True)) == [True] * 2
