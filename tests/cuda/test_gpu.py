"""The kernels on a GPU: every algorithm, type and operator with 2, 4 and 8 ranks on one device, and on several."""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any

import calls
import catalogue
import numpy as np
import on_device
import on_gpu
import pytest
import reference
import user_ops
from calls import Call

import pycollectives as pc
from pycollectives.device import Options, emulated
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


@pytest.mark.parametrize("size", [2, 8])
def test_long_messages(size: int) -> None:
    """Many slices: each slot is used again and again."""
    counts = [1001] if on_gpu.EMULATED else [1_000_003]
    assert min(on_gpu.run(size, catalogue.every_algorithm, counts, ["float32"])) > 40


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


def elements(comm: Any, dtype: str) -> None:
    for f, op in ((user_ops.last_set, user_ops.LAST), (user_ops.joined, user_ops.JOINED)):
        xs = [user_ops.data(dtype, (comm.size * 37,), rank) for rank in range(comm.size)]
        user_ops.every_way(comm, op, xs, functools.partial(user_ops.fold, f))
    xs = [user_ops.data("float32", (513,), rank) for rank in range(comm.size)]
    got = comm.all_reduce(xs[comm.rank], user_ops.AFFINE, deterministic=True)
    assert got.tobytes() == user_ops.fold(user_ops.affine, xs).tobytes()


def matrices(comm: Any, op: Any, dtype: str) -> None:
    xs = [user_ops.data(dtype, (comm.size * 43, *op.shape), rank, 0) for rank in range(comm.size)]
    user_ops.every_way(comm, op, xs, functools.partial(functools.reduce, np.matmul))


needs_numba = pytest.mark.skipif(
    not on_gpu.EMULATED and importlib.util.find_spec("numba_cuda") is None,
    reason="optional: numba-cuda is not installed",
)


@needs_numba
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_user_operators(dtype: str, native: bool) -> None:
    on_gpu.run(3, elements, dtype, native=native)


@needs_numba
@pytest.mark.parametrize(("op", "dtype"), [("MATRIX", "int32"), ("MATRIX3", "float64")])
def test_user_operators_on_blocks(op: str, dtype: str) -> None:
    on_gpu.run(3, matrices, getattr(user_ops, op), dtype)


@pytest.mark.parametrize("piece_bytes", [4096, 4 << 20])
def test_staged_to_other_hosts(piece_bytes: int) -> None:
    """Pinned memory in pieces, and the copies' order; the host's ranks stand in for those of other hosts."""
    assert min(pc.run_threads(2, on_device.staged, on_gpu.EMULATED, piece_bytes)) > 100


def test_combined_from_other_hosts() -> None:
    options = emulated() if on_gpu.EMULATED else Options()
    assert pc.run_threads(1, on_device.combined, options) == [36]


@pytest.mark.skipif("on_gpu.devices() < 2", reason="optional: one device")
def test_symmetric_memory() -> None:
    """Native kernels of ranks on several devices find arrays in place."""

    def fn(comm: Any) -> bool:
        x = comm.empty(100_000, "float32", device="cuda")
        memory, rank = on_device.Held(native(on_gpu.EMULATED), x), comm._device._rank
        memory.put(np.full(100_000, comm.rank + 1, np.float32))
        on = on_device.Part(x, 0, (100_000,), memory.stream)
        assert rank.finds(memory.address, x.nbytes)
        for _ in range(2):
            comm.all_reduce(on, out=on, algorithm="two_shot")
        comm._device.drain()
        return bool((memory.get() == 3 * comm.size).all())

    assert on_gpu.run(2, fn, spread=True, native=True) == [True] * 2


@pytest.mark.skipif("on_gpu.EMULATED", reason="optional: the emulated device has no library of arrays")
def test_symmetric_memory_as_cupy_and_torch() -> None:
    """The array is the library's, over the same memory, and keeps it."""

    def fn(comm: Any) -> bool:
        x = comm.empty((4, 5), "float32", device="cuda")
        if (cupy := sys.modules.get("cupy")) is not None:
            assert isinstance(x, cupy.ndarray) and x.shape == (4, 5)
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                x.fill(comm.rank + 1)
                comm.all_reduce(x, out=x)
                stream.synchronize()
            return bool((x == 3).all())
        torch = sys.modules["torch"]
        assert isinstance(x, torch.Tensor) and tuple(x.shape) == (4, 5) and x.is_cuda
        return True

    if not {"cupy", "torch"} & set(sys.modules):
        pytest.importorskip("cupy", reason="optional: CuPy is not installed")
    assert on_gpu.run(2, fn) == [True] * 2


@pytest.mark.skipif("on_gpu.EMULATED", reason="optional: the emulated device has no library of arrays")
@pytest.mark.parametrize("native", [False, True])
def test_cupy_streams_and_graphs(native: bool) -> None:
    """CuPy's arrays on the current stream, asynchronous, and in a graph."""
    cupy = pytest.importorskip("cupy", reason="optional: CuPy is not installed")

    def fn(comm: Any) -> bool:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            x = cupy.arange(5000, dtype=cupy.float32) * (comm.rank + 1)
            total = comm.all_reduce(x)
            later = comm.all_reduce(x, async_op=True).wait()
            y = cupy.ones(300, cupy.float32)
            comm.all_reduce(y, out=y, algorithm="two_shot")  # 2
            stream.synchronize()
            stream.begin_capture()
            comm.all_reduce(y, out=y, algorithm="two_shot")
            graph = stream.end_capture()
            graph.launch(stream)
            graph.launch(stream)  # 8
            stream.synchronize()
            want = cupy.arange(5000, dtype=cupy.float32) * 3
            return bool((total == want).all() and (later == want).all() and (y == 8).all())

    assert on_gpu.run(2, fn, native=native) == [True] * 2


@pytest.mark.skipif("on_gpu.EMULATED", reason="optional: the emulated device has no library of arrays")
def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="optional: PyTorch is not installed")

    def fn(comm: Any) -> bool:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((1000,), comm.rank + 1, dtype=torch.bfloat16, device="cuda")
            total, everyone = comm.all_reduce(x), comm.all_gather(x)
            torch.cuda.current_stream().synchronize()
            return bool((total == 3).all()) and everyone.shape == (2, 1000) and bool((everyone[1] == 2).all())

    assert on_gpu.run(2, fn) == [True] * 2
