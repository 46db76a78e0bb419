"""One launch for several ranks, some of which give up."""

from __future__ import annotations

import time
from typing import Any

import emulated
import fake_arrays as fake
import numpy as np
import pytest

import pycollectives as pc
from pycollectives import device

FUSED = device.emulated(fused=True)
LONG = 60.0  # seconds


def give_up(comm: Any, how: str, call: Any) -> None:
    """A call that its rank does not wait for to the end."""
    if how == "timeout":
        with pytest.raises(pc.CollectiveTimeoutError):
            call(0.3)
        return
    guard = comm._device._guard
    look, looks = guard.check, []

    def interrupted() -> None:
        looks.append(1)
        if len(looks) == 2:  # the first is before the call
            raise KeyboardInterrupt
        look()

    guard.check = interrupted
    with pytest.raises(KeyboardInterrupt):
        call(LONG)
    guard.check = look


@pytest.mark.parametrize("how", ["timeout", "interrupt"])
def test_a_call_that_was_given_up_is_not_made(how: str) -> None:
    """Its arrays may be gone when the other ranks come."""
    module = emulated.device()

    def fn(comm: Any) -> bool:
        stream = module.make_stream()
        x, out = np.ones(5), np.zeros(5)

        def call(timeout: float) -> None:
            comm.all_reduce(fake.over(x, stream), out=fake.over(out, stream), timeout=timeout)

        if comm.rank == 0:
            give_up(comm, how, call)
        comm._exchange("over", b"")
        if comm.rank == 1:
            for _ in range(2):
                with pytest.raises(pc.AbortedError, match="rank 0 has given up") as found:
                    call(LONG)
                assert found.value.peer == 0 and found.value.rank == 1
            module.synchronize(stream)
        comm._exchange("seen", b"")
        return not out.any()

    assert emulated.run(2, fn, options=FUSED) == [True] * 2


@pytest.mark.parametrize("how", ["timeout", "interrupt"])
def test_those_that_wait_are_told(how: str) -> None:
    """That one of them has given up: they do not wait for their own timeouts."""

    def fn(comm: Any) -> bool:
        begin = time.monotonic()
        if comm.rank == 0:
            comm._exchange("here", b"")
            give_up(comm, how, lambda timeout: comm.all_reduce(np.ones(5), timeout=timeout))
        elif comm.rank == 1:
            work = comm.all_reduce(np.ones(5), timeout=LONG, async_op=True)
            comm._exchange("here", b"")
            with pytest.raises(pc.AbortedError, match="rank 0 has given up"):
                work.wait()
            assert work.done(), "there is nothing to wait for"
        else:
            comm._exchange("here", b"")
        comm._exchange("over", b"")
        return time.monotonic() - begin < LONG / 2

    assert emulated.run(3, fn, options=FUSED) == [True] * 3


def test_a_stream_of_each_thread() -> None:
    """Its handle means another stream on the thread that launches for all."""
    module, handle = emulated.device(), 2

    def fn(comm: Any) -> bool:
        right = []
        for i in range(4):
            later = np.arange(70.0) + comm.rank + i
            x, out, seen = np.full(70, np.nan), np.full(70, np.nan), np.zeros(70)
            fake.kept.extend([later, seen])
            module.copy(handle, x.ctypes.data, later.ctypes.data, x.nbytes)
            comm.all_reduce(fake.over(x, handle), out=fake.over(out, handle))
            module.copy(handle, seen.ctypes.data, out.ctypes.data, out.nbytes)
            module.synchronize(handle)
            right.append(np.array_equal(seen, 3 * (np.arange(70) + i) + 3))
        return all(right)

    assert emulated.run(3, fn, options=FUSED) == [True] * 3
