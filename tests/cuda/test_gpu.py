"""The kernels on a GPU: every algorithm, type and operator with 2, 4 and 8 ranks on one device, and on several."""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

import calls
import catalogue
import numpy as np
import on_device
import on_gpu
import pytest
import reference
import special_values
import user_ops
from calls import Call
from ranks import raised_by

import pycollectives as pc
from pycollectives.device import Options, emulated, guard
from pycollectives.device.extension import native

pytestmark = on_gpu.needs_gpu
ALGORITHMS = ("two_shot", "ring", "recursive_doubling", "double_binary_tree")


@pytest.mark.parametrize("protocol", ["simple", "ll"])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_every_algorithm(size: int, protocol: str) -> None:
    """LL128 is not for ranks on one device."""
    counts = [1, 257] if size < 8 else [37]
    made = on_gpu.run(
        size, catalogue.every_algorithm, counts, ["int64", "float32", "bfloat16"], protocol=protocol
    )
    assert min(made) > 40


@pytest.mark.parametrize(("size", "count"), [(2, 1_000_003), (8, 50_003)])
def test_long_messages(size: int, count: int) -> None:
    """Many slices: each slot is used again and again. Many ranks draw fewer inputs, and have small slots."""
    slots = {"slot_bytes": (4096, 32768, 4096), "depth": 2, "least_slice": 4096} if size > 2 else {}
    counts = [1001] if on_gpu.EMULATED else [count]
    assert min(on_gpu.run(size, catalogue.every_algorithm, counts, ["float32"], **slots)) > 40


@pytest.mark.skipif("on_gpu.devices() < 2", reason="optional: one device")
def test_several_devices() -> None:
    size = min(on_gpu.devices(), 4)
    made = on_gpu.run(size, catalogue.every_algorithm, [0, 257], ["int64", "float32"], spread=True)
    assert min(made) > 40


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_every_operator(dtype: str, native: bool) -> None:
    """Every rank gets the same bits."""
    made = []
    for i, op in enumerate(reference.operators(dtype)):
        for k, algorithm in enumerate(ALGORITHMS):
            exact = (i + k) % 2 == 0 or op == "prod"
            into = ("new", "in place", "offset", "strided")[k]
            made.append(
                Call("all_reduce", algorithm, op, dtype, (29 + 516 * k,), into=into, exact=exact, seed=i)
            )
    calls.agree(made, on_gpu.run(4, calls.check_all, made, native=native))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_deterministic(dtype: str) -> None:
    """The left fold in rank order, to the bit, as on the CPU."""
    made = [
        Call("all_reduce", None, "sum", dtype, (n,), exact=False, deterministic=True, seed=n)
        for n in (1, 67, 501)
    ]
    on_gpu.run(4, calls.check_all, made)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("any_kernel", [False, True])
def test_special_values(native: bool, any_kernel: bool) -> None:
    """NaN, infinities, zeros of both signs, subnormals, overflow: to the bit, as on the CPU."""
    algorithms = ("one_shot", "ring")

    def fn(comm: Any) -> None:
        for dtype in special_values.INTEGERS + special_values.FLOATS:
            special_values.all_pairs(comm, dtype, algorithms)
        for dtype in special_values.INTEGERS:
            special_values.averages_truncate(comm, dtype, algorithms)
            special_values.scaled_sums_saturate(comm, dtype, algorithms)
        special_values.small_floats_overflow(comm, algorithms)
        special_values.subnormals_stay(comm, algorithms)
        special_values.large_integers_are_exact(comm, algorithms)

    on_gpu.run(2, fn, native=native, any_kernel=any_kernel)


def test_soak() -> None:
    """Random calls on sub-groups."""
    assert on_gpu.run(4, catalogue.soak, 300, 7) == [300] * 4


def test_a_disagreement_ends_the_kernels() -> None:
    def fn(comm: Any) -> str:
        try:
            for _ in range(2):
                comm.all_reduce(np.ones(64 + 8 * comm.rank, np.float32), algorithm="one_shot")
        except (pc.MismatchError, pc.AbortedError) as error:
            return type(error).__name__
        return "nothing"

    found = on_gpu.run(3, fn)
    assert "MismatchError" in found and "nothing" not in found


def works(comm: Any) -> bool:
    return bool((comm.all_reduce(np.full(700, 2.0, np.float32), algorithm="two_shot") == 2 * comm.size).all())


@pytest.mark.parametrize("native", [False, True])
def test_a_timeout_ends_the_kernels(native: bool) -> None:
    """Those that wait for a rank that does not call; communicators that are made afterwards work."""

    def fn(comm: Any) -> str:
        assert works(comm)
        return raised_by(lambda: comm.all_reduce(np.ones(700), timeout=0.5)) if comm.rank == 0 else ""

    assert on_gpu.run(2, fn, native=native) == ["CollectiveTimeoutError", ""]
    assert on_gpu.run(2, works, native=native) == [True] * 2


@pytest.mark.parametrize("native", [False, True])
def test_an_abort_ends_the_kernels(native: bool) -> None:
    over = threading.Event()

    def fn(comm: Any) -> str:
        assert works(comm)
        if comm.rank:
            over.wait(on_gpu.TIMEOUT)
            return ""
        threading.Timer(0.3, comm.abort).start()
        try:
            return raised_by(lambda: comm.all_reduce(np.ones(700)))
        finally:
            over.set()

    assert on_gpu.run(2, fn, native=native, meets=False) == ["AbortedError", ""]
    assert on_gpu.run(2, works, native=native) == [True] * 2


@pytest.mark.parametrize("native", [False, True])
def test_a_peer_that_leaves_ends_the_kernels(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    monkeypatch.setattr(guard, "GRACE", 0.3)

    def fn(comm: Any) -> str:
        assert works(comm)
        return "" if comm.rank else raised_by(lambda: comm.all_reduce(np.ones(700)))

    # The emulated device knows that nobody will come.
    expected = "DeviceError" if on_gpu.EMULATED else "PeerError"
    assert on_gpu.run(2, fn, native=native, meets=False) == [expected, ""]
    assert on_gpu.run(2, works, native=native) == [True] * 2


needs_numba = pytest.mark.skipif(
    not on_gpu.EMULATED and importlib.util.find_spec("numba_cuda") is None,
    reason="optional: numba-cuda is not installed",
)


@needs_numba
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("dtype", "native"), [("float32", True), ("bfloat16", False)])
def test_user_operators(dtype: str, native: bool, fused: bool) -> None:
    def fn(comm: Any) -> None:
        user_ops.elements(comm, dtype, (37,))
        user_ops.left_fold(comm, dtype, 513, 77)

    on_gpu.run(3, fn, native=native, fused=fused)


@needs_numba
@pytest.mark.parametrize(("op", "dtype"), [("MATRIX", "int32"), ("MATRIX3", "float64")])
def test_user_operators_on_blocks(op: str, dtype: str) -> None:
    on_gpu.run(3, user_ops.matrices, getattr(user_ops, op), dtype, (43,))


@pytest.mark.parametrize("piece_bytes", [4096, 4 << 20])
def test_staged_to_other_hosts(piece_bytes: int) -> None:
    """Pinned memory in pieces, and the copies' order; the host's ranks stand in for those of other hosts."""
    assert min(pc.run_threads(2, on_device.staged, on_gpu.EMULATED, piece_bytes)) > 100


def test_combined_from_other_hosts() -> None:
    options = emulated() if on_gpu.EMULATED else Options()
    assert pc.run_threads(1, on_device.combined, options) == [36]


@pytest.mark.parametrize("apart", [False, True])
def test_symmetric_memory(apart: bool) -> None:
    """Native kernels find arrays in place: of ranks on one device, or `apart` on several."""
    if apart and on_gpu.devices() < 2:
        pytest.skip("optional: one device")

    def fn(comm: Any) -> bool:
        x = comm.empty(100_000, "float32", device="cuda")
        memory, rank = on_device.Held(native(on_gpu.EMULATED), x), comm._device._rank
        memory.put(np.full(100_000, comm.rank + 1, np.float32))
        stream = native(on_gpu.EMULATED).make_stream()
        on = on_device.Part(x, 0, (100_000,), stream)
        assert rank.finds(memory.address, x.nbytes)
        for _ in range(2):
            comm.all_reduce(on, out=on, algorithm="two_shot")
        comm._device.drain()
        native(on_gpu.EMULATED).destroy_stream(stream)
        return bool((memory.get() == 3 * comm.size).all())

    assert on_gpu.run(2, fn, spread=apart, native=True) == [True] * 2
