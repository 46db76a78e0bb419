"""Arrays of CuPy, PyTorch and Numba on a GPU: their streams, graphs, and results of their kind.

Whatever a library loads or allocates at a first use may wait for kernels that run, and these wait for a rank that is about to call.
So a library's part of a test is done once before the ranks begin.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import weakref
from typing import Any

import numpy as np
import on_gpu
import pytest

import pycollectives as pc
from pycollectives.device.extension import native
from pycollectives.device.symmetric import SymmetricArray

pytestmark = [
    *on_gpu.needs_gpu,
    pytest.mark.skipif("on_gpu.EMULATED", reason="optional: the emulated device has no library of arrays"),
]


def cupy_warm() -> Any:
    """CuPy, with the kernels of these tests loaded."""
    cupy = pytest.importorskip("cupy", reason="optional: CuPy is not installed")
    x = cupy.arange(5000, dtype=cupy.float32) * 2
    y = cupy.ones(300, cupy.float32)
    y.fill(2)
    assert bool((x == x).all()) and bool((y == 2).all()) and bool((3 * x == x + x + x).all())
    cupy.cuda.Device().synchronize()
    return cupy


def torch_warm() -> Any:
    """PyTorch, the same."""
    torch = pytest.importorskip("torch", reason="optional: PyTorch is not installed")
    x = torch.full((1000,), 2, dtype=torch.bfloat16, device="cuda")
    y = torch.empty_like(x).copy_(x)
    assert bool((x == y).all()) and bool((torch.ones(20, device="cuda") + 1 == 2).all())
    torch.cuda.synchronize()
    return torch


def together(comm: Any, what: str) -> None:
    """All ranks have come here."""
    comm._exchange(what, b"")


def test_cupy_arrays() -> None:
    cupy = cupy_warm()

    def fn(comm: Any) -> bool:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            x = cupy.arange(5000, dtype=cupy.float32) * (comm.rank + 1)
            spare = [cupy.empty_like(x) for _ in range(3)]  # CuPy's pool has memory for each stream
            del spare  # of which the results are made
            together(comm, "made")
            total = comm.all_reduce(x)
            later = comm.all_reduce(x, async_op=True).wait()
            stream.synchronize()
            together(comm, "done")
            want = cupy.arange(5000, dtype=cupy.float32) * 3
            assert isinstance(total, cupy.ndarray) and total.dtype == cupy.float32
            return bool((total == want).all()) and bool((later == want).all())

    assert on_gpu.run(2, fn) == [True] * 2


@pytest.mark.parametrize("native", [False, True])
def test_cupy_graphs(native: bool) -> None:
    """A captured call can be replayed; an asynchronous one is refused, and the capture goes on."""
    cupy = cupy_warm()

    def fn(comm: Any) -> float:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            y = cupy.ones(300, cupy.float32)
            together(comm, "made")
            comm.all_reduce(y, out=y, algorithm="two_shot")  # 2
            stream.synchronize()
            stream.begin_capture()
            comm.all_reduce(y, out=y, algorithm="two_shot")
            with pytest.raises(pc.UnsupportedError, match="async_op"):
                comm.all_reduce(y, out=y, async_op=True)
            graph = stream.end_capture()
            graph.upload(stream)
            stream.synchronize()
            together(comm, "captured")  # what is loaded for a graph may wait for kernels, too
            graph.launch(stream)
            graph.launch(stream)  # 8
            stream.synchronize()
            together(comm, "done")
            assert bool((y == y[0]).all())
            return float(y[0])

    assert on_gpu.run(2, fn, native=native) == [8.0] * 2


def test_torch_tensors() -> None:
    torch = torch_warm()

    def fn(comm: Any) -> bool:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((1000,), comm.rank + 1, dtype=torch.bfloat16, device="cuda")
            together(comm, "made")
            total, everyone = comm.all_reduce(x), comm.all_gather(x)
            torch.cuda.current_stream().synchronize()
            together(comm, "done")
            assert isinstance(total, torch.Tensor) and total.dtype == torch.bfloat16
            return bool((total == 3).all()) and everyone.shape == (2, 1000) and bool((everyone[1] == 2).all())

    assert on_gpu.run(2, fn) == [True] * 2


def test_torch_graphs() -> None:
    """By PyTorch's own capture, in whose mode most calls of the runtime are refused."""
    torch = torch_warm()

    def fn(comm: Any) -> float:
        stream = torch.cuda.Stream()
        y = torch.ones(300, device="cuda")
        torch.cuda.synchronize()
        together(comm, "made")
        with torch.cuda.stream(stream):
            comm.all_reduce(y, out=y)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with on_gpu.one_at_a_time, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            comm.all_reduce(y, out=y)
        together(comm, "captured")
        with torch.cuda.stream(stream):
            graph.replay()
            graph.replay()
        stream.synchronize()
        together(comm, "done")
        return float(y[0])

    assert on_gpu.run(2, fn) == [8.0] * 2


@pytest.mark.parametrize("fused", [False, True])
def test_numba_arrays(fused: bool) -> None:
    """Numba has no pool: a result is allocated in the call, beside kernels that wait only where ranks have a launch each."""
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("optional: numba-cuda is not installed")
    from numba import cuda

    cuda.to_device(np.ones(3, np.float32)).copy_to_host()

    def fn(comm: Any) -> bool:
        stream = cuda.stream()
        x = cuda.to_device(np.full(700, comm.rank + 1, np.float32), stream=stream)
        out = None if fused else cuda.to_device(np.zeros(700, np.float32), stream=stream)
        stream.synchronize()
        together(comm, "made")
        total = comm.all_reduce(x, out=out)
        comm._device.drain()
        together(comm, "done")
        return bool((total.copy_to_host() == 3).all())

    assert on_gpu.run(2, fn, fused=fused) == [True] * 2


def test_jax_arrays() -> None:
    """By DLPack, to us and back."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of the memory
    jax = pytest.importorskip("jax", reason="optional: JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("optional: JAX has no GPU")
    xs = [(jax.numpy.arange(700, dtype="float32") * (rank + 1)).block_until_ready() for rank in range(2)]

    def fn(comm: Any) -> Any:
        total = comm.all_reduce(xs[comm.rank])
        comm._device.drain()
        return total

    for total in on_gpu.run(2, fn, fused=True):  # both on the default stream
        assert isinstance(total, jax.Array)
        assert np.array_equal(np.asarray(total), 3 * np.arange(700, dtype=np.float32))


def test_symmetric_memory_as_cupy() -> None:
    """The array is CuPy's, over the same memory, and keeps it."""
    cupy = cupy_warm()

    def fn(comm: Any) -> bool:
        x = comm.empty((4, 5), "float32", device="cuda")
        assert isinstance(x, cupy.ndarray) and x.shape == (4, 5)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            x.fill(comm.rank + 1)
            together(comm, "made")
            comm.all_reduce(x, out=x)
            stream.synchronize()
            together(comm, "done")
            return bool((x == 3).all())

    assert on_gpu.run(2, fn) == [True] * 2


def test_symmetric_memory_as_torch() -> None:
    """By DLPack: the tensor keeps the memory, and gives it back."""
    torch, module = torch_warm(), native(emulated=False)
    array = SymmetricArray(module.SymmetricMemory(0, 512), (4, 5), np.dtype(np.float32), 0)
    kept = weakref.ref(array)
    tensor = torch.from_dlpack(array)
    address = array.__cuda_array_interface__["data"][0]
    del array
    assert tensor.is_cuda and tuple(tensor.shape) == (4, 5) and tensor.data_ptr() == address
    tensor.fill_(3)
    assert bool((tensor == 3).all()) and kept() is not None
    del tensor
    gc.collect()
    assert kept() is None


def test_one_launch_on_streams_of_cupy() -> None:
    cupy = cupy_warm()

    def fn(comm: Any) -> bool:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            x = cupy.arange(5000, dtype=cupy.float32) * (comm.rank + 1)
            together(comm, "made")
            for _ in range(20):
                total = comm.all_reduce(x)
                later = comm.all_reduce(total, async_op=True).wait()
            stream.synchronize()
            together(comm, "done")
            return bool((total == cupy.arange(5000) * 6).all() and (later == 3 * total).all())

    assert on_gpu.run(3, fn, fused=True) == [True] * 3
