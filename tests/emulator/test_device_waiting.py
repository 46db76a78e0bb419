"""What waits for kernels that run, while these wait for whoever would do it: memory, loading, the stack. A GPU would wait for ever;
the emulated device says so, and ends the ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import emulated
import numpy as np
import pytest
import user_ops

import pycollectives as pc
from pycollectives import device

MEMORY = 3 << 22  # of a piece that no other test has left


def allocate(copies: Any, plain: int) -> None:
    emulated.device().malloc(100)


def free(copies: Any, plain: int) -> None:
    emulated.device().free(plain)


def allocate_symmetric(copies: Any, plain: int) -> None:
    emulated.device().SymmetricMemory(0, MEMORY)


def allocate_pinned(copies: Any, plain: int) -> None:
    copies.buffer(0, MEMORY)


def allocate_scratch(copies: Any, plain: int) -> None:
    copies.scratch(1, MEMORY)


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (allocate, "device memory is allocated"),
        (free, "device memory is freed"),
        (allocate_symmetric, "device memory is allocated"),
        (allocate_pinned, "pinned memory is allocated"),
        (allocate_scratch, "device memory is allocated"),
    ],
)
def test_a_kernel_waits_for_the_thread_that_waits_for_it(act: Callable[[Any, int], None], what: str) -> None:
    copies, plain = emulated.device().Copies(0), emulated.device().malloc(100)
    launched = threading.Event()

    def fn(comm: Any) -> str:
        if comm.rank == 0:
            work = comm.all_reduce(np.ones(9), async_op=True)
            launched.set()
            with pytest.raises(pc.DeviceError) as found:
                work.wait()
        else:
            launched.wait()
            with suppress(pc.DeviceError):  # a GPU would not come back
                act(copies, plain)
            with pytest.raises(pc.DeviceError) as found:
                comm.all_reduce(np.ones(9))
        return str(found.value)

    found = emulated.run(2, fn)
    assert f"{what}: that waits for the kernel of rank 0, which waits for the one that rank 1" in found[0]


def test_whoever_has_launched_may_wait() -> None:
    """Its kernels end when the others have launched theirs, which Python's lock does not keep them from."""
    copies, plain = emulated.device().Copies(0), emulated.device().malloc(100)
    waited = threading.Event()

    def fn(comm: Any) -> bool:
        if comm.rank:
            waited.wait()
        work = comm.all_reduce(np.ones(9), async_op=True)
        if comm.rank == 0:
            for act in (allocate, free, allocate_symmetric, allocate_pinned, allocate_scratch):
                act(copies, plain)
            waited.set()
        return bool((work.wait() == comm.size).all())

    assert emulated.run(3, fn) == [True] * 3


def test_what_is_gone_leaves_its_memory() -> None:
    """To whoever comes next: the collector may find it at any time, on any thread."""
    copies, launched = emulated.device().Copies(0), threading.Event()
    copies.buffer(0, MEMORY)
    copies.scratch(0, MEMORY)

    def fn(comm: Any) -> bool:
        nonlocal copies
        comm.barrier()
        if comm.rank:
            launched.wait()
            del copies
            again = emulated.device().Copies(0)
            again.buffer(1, MEMORY)  # to allocate, or to free, would be an error now
            again.scratch(1, MEMORY)
        work = comm.all_reduce(np.ones(9), async_op=True)
        launched.set()
        return bool((work.wait() == 2).all())

    assert emulated.run(2, fn) == [True] * 2


def test_kernels_are_loaded_before() -> None:
    """When the communicator is created, and not at the launch."""

    def fn(comm: Any) -> None:
        comm.all_reduce(np.ones(9))
        comm._exchange("all have called", b"")
        if comm.rank == 0:
            emulated.device().unload()
        comm._exchange("there are no kernels", b"")
        with pytest.raises(pc.DeviceError, match="the kernel was not loaded before"):
            comm.all_reduce(np.ones(9))

    for fused in (False, True):
        emulated.run(2, fn, options=device.emulated(fused=fused))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("native", [False, True])
def test_operators_are_loaded_before(native: bool, fused: bool) -> None:
    """Every kernel that an operator has is loaded at its first use, on all ranks; that is no launch."""
    emulated.device().unload()
    joined = pc.op(user_ops.joined)

    def fn(comm: Any) -> bool:
        return all((comm.all_reduce(np.full(count, 2, np.int32), joined) == 8).all() for count in (1, 3000))

    assert emulated.run(2, fn, options=device.emulated(native=native, fused=fused)) == [True] * 2
