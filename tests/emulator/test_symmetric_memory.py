"""Symmetric device memory: native kernels find arrays of peers on other devices; pieces come and go."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import emulated
import numpy as np
import on_device
import pytest

import pycollectives as pc
from pycollectives import device
from pycollectives.bootstrap.threads import run_threads
from pycollectives.communicator import Communicator
from pycollectives.device.arrays import view_of
from pycollectives.device.symmetric import SymmetricArray


def run(n: int, fn: Callable[[Any], Any]) -> list[Any]:
    """`fn(comm)` on ranks with a device each, so that peers reach nothing but symmetric memory."""
    module = emulated.device()
    module.configure(seed=11)

    def make(rendezvous: Any) -> Communicator:
        module.use_device(rendezvous.rank)
        # By default not by the switch, which copies.
        return Communicator(rendezvous, device=device.emulated(native=True))

    return run_threads(n, fn, make=make)


def fill(x: Any, values: Any) -> None:
    on_device.seen(x)[...] = values


def test_native_kernels_find_them() -> None:
    """Inputs and outputs are in place, whatever their offset; ordinary arrays go through staging memory as ever."""

    def fn(comm: Any) -> bool:
        rank, n = comm._device._rank, comm.size
        x, y = comm.empty((3, 5000), device="cuda"), comm.empty(15_001, "float32", device="cuda")
        assert isinstance(x, SymmetricArray) and x.shape == (3, 5000) and x.nbytes == 60_000
        view = view_of(x)
        assert view is not None and view.number == comm.rank and view.dtype == np.float32
        assert rank.finds(view.ctypes.data + 64, 1000) and not rank.finds(view.ctypes.data, 3 << 20)
        assert not rank.finds(np.ones(4).ctypes.data, 32)
        values = np.arange(15_000, dtype=np.float32).reshape(3, 5000)
        fill(x, values * (comm.rank + 1))
        stream = emulated.device().make_stream()
        part, whole = on_device.Part(y, 1, (3, 5000), stream), on_device.Part(x, 0, (3, 5000), stream)
        comm.all_reduce(whole, out=part, algorithm="two_shot")
        comm.all_reduce(whole, out=whole, algorithm="one_shot")
        comm._device.drain()
        total = values * sum(range(1, n + 1))
        assert np.array_equal(on_device.seen(x), total)
        return np.array_equal(on_device.seen(y)[1:].reshape(3, 5000), total)

    assert run(3, fn) == [True] * 3


def test_pieces_are_used_again() -> None:
    """A piece lives as long as its array anywhere; its number and its memory come again after the next call."""

    def fn(comm: Any) -> list[int]:
        known = comm._device._symmetric._dropped
        counts, kept = [], []
        for turn in range(6):
            x = comm.empty(1000 + turn, "int32", device="cuda")
            fill(x, comm.rank)
            if comm.rank == 0 and turn == 2:
                kept.append(x)  # one rank holds it: nobody gives it back
            del x
            gc.collect()
            counts.append(len(known))
        kept.clear()
        gc.collect()
        comm.empty(1, device="cuda")
        counts.append(len(known))
        return counts

    assert run(2, fn) == [[1, 1, 1, 2, 2, 2, 1]] * 2


def test_an_array_outlives_its_communicator() -> None:
    def fn(comm: Any) -> Any:
        x = comm.empty(100, "float64", device="cuda")
        fill(x, comm.rank)
        comm.close()
        return x

    for rank, x in enumerate(run(2, fn)):
        assert (on_device.seen(x) == rank).all()


def test_dlpack_and_no_elements() -> None:
    def fn(comm: Any) -> bool:
        x = comm.empty((2, 3), "bfloat16", device="cuda")
        assert x.__dlpack_device__() == (2, comm.rank)
        only = on_device.DlpackOnly(x)
        view = view_of(only)
        assert view is not None and view.shape == (2, 3) and view.dtype.name == "bfloat16"
        assert view.ctypes.data == x.__cuda_array_interface__["data"][0]
        none = comm.empty((0, 4), device="cuda")
        assert none.nbytes == 0 and none.shape == (0, 4)
        for dtype in (">f4", "S3"):  # what DLPack cannot say
            with pytest.raises(pc.UnsupportedError, match="DLPack has no type"):
                comm.empty(4, dtype, device="cuda").__dlpack__()
        return True

    assert run(2, fn) == [True] * 2


def test_what_is_refused() -> None:
    def fn(comm: Any) -> bool:
        with pytest.raises(pc.InvalidArgumentError, match="'cuda'"):
            comm.empty(3, device="gpu")
        with pytest.raises(pc.InvalidArgumentError, match="whole numbers"):
            comm.empty(2.5, device="cuda")
        with pytest.raises(pc.DeviceError, match="rank 1"):
            comm.empty(1 << (58 if comm.rank == 1 else 3), "uint8", device="cuda")
        x = comm.empty(3, device="cuda")  # it goes on
        fill(x, 1)
        on = on_device.Part(x, 0, (3,), emulated.device().make_stream())
        comm.all_reduce(on, out=on)
        comm._device.drain()
        return bool((on_device.seen(x) == comm.size).all())

    assert run(2, fn) == [True] * 2
