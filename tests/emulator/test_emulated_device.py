"""The emulated device itself: what makes one seed differ from another, and the shapes of grids."""

from __future__ import annotations

from typing import Any

import calls
import emulated
import numpy as np
import pytest
from calls import Call

from pycollectives import device


def moved(**settings: Any) -> tuple[int, int]:
    """How often others ran between the halves of a line, and instead of a block that was starved."""
    before = emulated.device().statistics()
    emulated.run(
        2, lambda comm: comm.all_reduce(np.ones(3000)), options=device.emulated("ll", blocks=2), **settings
    )
    after = emulated.device().statistics()
    return after[2] - before[2], after[3] - before[3]


def test_lines_are_torn_and_blocks_starve() -> None:
    torn, starved = moved()
    assert torn > 100 and starved > 100, (torn, starved)
    assert moved(starve=False)[1] == 0


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("threads", [128, 256])
def test_blocks_of_many_warps(threads: int, native: bool) -> None:
    """As on a GPU: several warps in all that they do together, and threads without data."""
    made = [
        Call("all_reduce", algorithm, "sum", dtype, (count,), into=into, exact=False, seed=count)
        for algorithm, into in (("two_shot", "new"), ("ring", "in place"), ("one_shot", "offset"))
        for dtype, count in (("float32", 3001), ("bfloat16", 5), ("int64", 700))
    ]
    for protocol in ("",) if native else ("simple", "ll", "ll128"):
        options = device.emulated(protocol, native=native, threads=threads, blocks=2)
        calls.agree(made, emulated.run(3, calls.check_all, made, options=options))


@pytest.mark.parametrize("native", [False, True])
def test_more_peers_than_threads(native: bool) -> None:
    """A thread looks after several ends of connections, and several gates."""
    made = [
        Call("all_reduce", "one_shot", "sum", "int32", (9,)),
        Call("broadcast", "flat", dtype="int32", shape=(40,), root=33),
    ]
    options = device.emulated("" if native else "simple", native=native, blocks=1)
    calls.agree(made, emulated.run(34, calls.check_all, made, options=options, patience=4_000_000))
