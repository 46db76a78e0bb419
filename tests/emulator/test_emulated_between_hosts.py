"""What goes to other hosts: staged through pinned memory, combined on the device. On real hosts: tests/cluster/test_devices.py."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import on_device
import pytest
from ranks import threads

import pycollectives as pc
from pycollectives import device
from pycollectives.device.combining import Combiner
from pycollectives.device.inside import Inside
from pycollectives.device.spanning import SpanningDevice, together
from pycollectives.device.staging import Staging
from pycollectives.work import TaskWork


@pytest.mark.parametrize("piece_bytes", [4096, 1 << 20])
def test_every_verb_staged(piece_bytes: int) -> None:
    emulated.device().configure(seed=3)
    assert min(threads(3, on_device.staged, True, piece_bytes)) > 100


def test_combined_in_rank_order() -> None:
    emulated.device().configure(seed=5)
    assert threads(1, on_device.combined, device.emulated()) == [36]


def test_default_streams_are_the_device_s() -> None:
    """Of the rank's device, not of the one that is the thread's current one."""
    module = emulated.device()
    module.configure(seed=7)
    copies = module.Copies(3)
    source, target = np.arange(100, dtype=np.int32), np.zeros(100, np.int32)
    for stream in (1, 2):  # of all threads, and of each
        target[:] = 0
        module.use_device(3)
        module.copy_on(stream, [(target.ctypes.data, source.ctypes.data, target.nbytes)])
        module.use_device(0)
        here, there = module.record(0, stream), module.record(3, stream)
        assert here.done and not there.done
        assert there.wait_for(5.0) and np.array_equal(target, source)
        copies.copy(module.Way.TO_HOST, [(target.ctypes.data, source.ctypes.data, target.nbytes)]).hold(
            stream
        )
        here, there = module.record(0, stream), module.record(3, stream)
        assert here.done and not there.done, "the stream of that device waits"
        assert there.wait_for(5.0) and module.current_device() == 0


def hierarchical(fn: Callable[[Any, Inside, Callable[[], Any]], Any]) -> list[Any]:
    """`fn(comm, inside, call)` on four ranks of one process, as if they were on two hosts; those of a host share launches."""
    module, options = emulated.device(), device.emulated(fused=True)
    module.configure(seed=9)
    over = threading.Barrier(4)

    def rank(comm: Any) -> Any:
        combiner = Combiner(comm, options, 0)
        inside = Inside(comm, options, 0, Staging(module, 0, 1 << 16), combiner, False, [[0, 1], [2, 3]])
        x, out = np.arange(1000.0) * (comm.rank + 1), np.zeros(1000)
        kind = comm._resolve("all_reduce", x, "sum", None, None, None, "hierarchical", False).kind

        def call() -> Any:
            end = inside.call(kind, x.ctypes.data, out.ctypes.data, [], time.monotonic() + 60)
            assert end.wait_for(5.0)
            return out

        try:
            return fn(comm, inside, call)
        finally:
            over.wait(60)
            inside.close()
            combiner.close()

    return threads(4, rank)


def test_hierarchical() -> None:
    def fn(comm: Any, inside: Inside, call: Callable[[], Any]) -> bool:
        return all(np.array_equal(call(), np.arange(1000.0) * 10) for _ in range(3))

    assert hierarchical(fn) == [True] * 4


def test_errors_of_the_whole_communicator_keep_their_ranks() -> None:
    """Also while a rank waits for those of its host."""

    def fn(comm: Any, inside: Inside, call: Callable[[], Any]) -> bool:
        if comm.rank == 0:
            with pytest.raises(pc.AbortedError) as found:
                call()
            return found.value.peer == 3
        if comm.rank == 3:
            time.sleep(0.2)
            comm.abort()
        return True

    assert hierarchical(fn) == [True] * 4


def test_a_shared_launch_that_is_given_up() -> None:
    """The rank that waits for it does not take its output for written."""

    def fn(comm: Any, inside: Inside, call: Callable[[], Any]) -> bool:
        if comm.rank == 3:
            time.sleep(0.2)
            inside.device.abort()
        elif comm.rank == 2:
            with pytest.raises(pc.AbortedError, match="given up") as found:
                call()
            return found.value.peer == 3
        return True

    assert hierarchical(fn) == [True] * 4


@pytest.mark.parametrize("error", [pc.DeviceError, pc.PeerError, pc.UnsupportedError])
def test_all_raise_what_one_has_found(error: Any) -> None:
    """When they open their devices, or make an array; nobody waits for the others' next step."""

    def fn(comm: Any) -> tuple[int | None, str, bool]:
        with pytest.raises(pc.DeviceError) as found, together(comm, "a step"):
            if comm.rank > 0:
                raise error("no memory is left" * (comm.rank - 1))
        with together(comm, "another one"):
            pass
        return found.value.peer, str(found.value), isinstance(found.value.__cause__, error)

    assert threads(3, fn) == [(1, f"rank 1: {error.__name__}", rank > 0) for rank in range(3)]


def test_an_array_is_made_in_the_order_of_the_calls() -> None:
    """Those that are still on their way use the same kernels and the same ranks."""

    def fn(comm: Any, inside: Inside, call: Callable[[], Any]) -> tuple[bool, ...]:
        spanning = SpanningDevice.__new__(
            SpanningDevice
        )  # without MPI, which it would ask for device pointers
        spanning.comm, spanning._inside, spanning._arrays = comm, inside, 0

        def slowly() -> Any:
            time.sleep(0.1 * comm.rank)
            return call().copy()

        work = TaskWork(comm, slowly, 60.0, "a call")
        x = spanning.empty((3, 5), np.dtype(np.float32))
        over = work.done()
        on_device.seen(x)[:] = comm.rank
        return over, np.array_equal(work.wait(), np.arange(1000.0) * 10), x.shape == (3, 5)

    assert hierarchical(fn) == [(True, True, True)] * 4


def test_memory_between_steps_is_for_other_processes_too() -> None:
    """MPI exports it, or registers it with the network adapter. What is outgrown stays for those that still use it."""
    module = emulated.device()
    module.configure(seed=3, shared=True)  # plain memory is a file then
    try:
        copies = module.Copies(7)  # a device of whose memory no other test has left anything
        first = copies.scratch(0, 4096)
        assert copies.scratch(0, 100) == first != copies.scratch(1, 4096)
        values = (ctypes.c_char * 4096).from_address(first)
        values[:] = b"x" * 4096
        second = copies.scratch(0, 5000)
        assert second != first and values[:] == b"x" * 4096
        assert copies.scratch(0, 6000) == second, "half as much again, for what comes next"
        assert {first, second} <= exported(), "of plain allocation"
        with pytest.raises(pc.DeviceError, match="out of memory"):
            copies.scratch(0, 1 << 50)
        assert copies.scratch(0, 4096) in exported()
    finally:
        module.configure(seed=3)


def exported() -> set[int]:
    """Where this process has mapped emulated device memory that others can map."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {int(line.partition("-")[0], 16) for line in lines if "emulated device memory" in line}
