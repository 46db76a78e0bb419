"""Arrays of the tests in device memory, emulated or real, without a library of arrays."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import ml_dtypes  # noqa: F401 - names of dtypes
import numpy as np

from pycollectives.device.combining import Combiner
from pycollectives.device.extension import native
from pycollectives.device.staging import Staging, wait_for
from pycollectives.device.symmetric import SymmetricArray


class Held:
    """What an array in device memory holds; `stream`: on which it is copied."""

    stream = 2  # the default stream of the thread, as a handle

    def __init__(self, module: Any, x: Any) -> None:
        self._module, self._like, self._keep = module, np.empty(x.shape, x.dtype), x
        self.address: int = x.__cuda_array_interface__["data"][0]

    def put(self, x: np.ndarray[Any, Any]) -> None:
        """Copy `x` there."""
        self._copy(self.address, x.ctypes.data)

    def get(self) -> np.ndarray[Any, Any]:
        """What it holds now."""
        found = np.empty_like(self._like)
        self._copy(found.ctypes.data, self.address)
        return found

    def _copy(self, to: int, source: int) -> None:
        self._module.copy_on(self.stream, [(to, source, self._like.nbytes)])
        self._module.synchronize(self.stream)


class Memory(Held):
    """A piece of device memory that holds an array."""

    def __init__(self, module: Any, x: np.ndarray[Any, Any]) -> None:
        memory = module.SymmetricMemory(module.current_device(), max(1, x.nbytes))
        super().__init__(module, SymmetricArray(memory, x.shape, x.dtype, module.current_device()))
        self.put(np.ascontiguousarray(x))


def seen(x: Any) -> np.ndarray[Any, Any]:
    """The memory of an emulated device's array, which is the host's."""
    address, _ = x.__cuda_array_interface__["data"]
    raw = (ctypes.c_char * x.nbytes).from_address(address)
    return np.frombuffer(raw, x.dtype).reshape(x.shape)


class Part:
    """A piece of another array, from an element on, ready on a stream."""

    def __init__(self, x: Any, first: int, shape: tuple[int, ...], stream: int) -> None:
        self._whole, self.dtype, self.device = x, x.dtype, x.device
        interface = x.__cuda_array_interface__
        pointer, readonly = interface["data"]
        place = pointer + first * x.dtype.itemsize, readonly
        self.__cuda_array_interface__ = interface | {"shape": shape, "data": place, "stream": stream}


class DlpackOnly:
    """An array that says nothing of itself but by DLPack."""

    def __init__(self, x: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = x.__dlpack__, x.__dlpack_device__


def cases(comm: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    """Calls of every verb, of lengths that make one piece and several."""
    n, r, made = comm.size, comm.rank, []
    rng = np.random.default_rng(r)
    for count in (0, 1, 7, 3000, 20_001):
        for dtype in ("float32", "int16", "bfloat16"):
            x = rng.integers(-4, 5, count).astype(dtype)
            wide = rng.integers(-4, 5, count * n).astype(dtype)
            made += [(verb, x, {"op": "sum"}) for verb in ("all_reduce", "scan", "exscan")]
            made += [("reduce", x, {"op": "max", "root": n - 1}), ("broadcast", x, {"root": n - 1})]
            made += [("all_gather", x, {}), ("gather", x, {"root": 0})]
            made += [("reduce_scatter", wide, {"op": "avg"}), ("all_to_all", wide, {})]
            made += [("scatter", wide, {"root": n - 1})]
    counts = [5000 * (i % 2) + 3 * i for i in range(n)]
    mine = np.arange(counts[r], dtype=np.int64) + 100 * r
    made += [("all_gatherv", mine, {"counts": counts}), ("gatherv", mine, {"counts": counts, "root": 1})]
    vector = np.arange(sum(counts), dtype=np.float64) * (r + 1)
    made += [("reduce_scatterv", vector, {"counts": counts, "op": "sum"})]
    made += [("scatterv", vector, {"counts": counts, "root": 0})]
    sent = [1000 * ((r + i) % 3) for i in range(n)]
    made += [("all_to_allv", np.arange(sum(sent), dtype=np.int32) + r, {"counts": (sent, None)})]
    return made


def staged(comm: Any, emulated: bool, piece_bytes: int) -> int:
    """Every verb by staging gives what host arrays give; how many calls were made."""
    module = native(emulated)
    staging = Staging(module, module.current_device(), piece_bytes)
    for verb, x, options in cases(comm):
        given = [options.get(name) for name in ("op", "root", "counts")]
        arguments = comm._resolve(verb, x, *given, None, None, False)
        expected = comm._now(verb, x, **options)
        source = Memory(module, arguments.buffers.x)
        out = arguments.buffers.out
        target = None if out is None else Memory(module, np.full_like(out, 7))
        deadline = time.monotonic() + 60
        address = 0 if target is None else target.address
        end = staging.call(
            comm,
            arguments.kind,
            source.address,
            address,
            [module.record(module.current_device(), Held.stream)],
            deadline,
        )
        wait_for(end, comm, deadline)
        assert (expected is None) == (target is None)
        assert target is None or np.array_equal(target.get(), expected), (verb, x.shape, x.dtype)
        assert np.array_equal(source.get(), arguments.buffers.x), "the input stays as it is"
    return len(cases(comm))


def combined(comm: Any, options: Any) -> int:
    """Blocks in device memory, combined in their order and rounded once."""
    module, made = native(options.emulated), 0
    combiner = Combiner(comm, options, module.current_device())
    for n in (2, 3, 8):
        for count in (1, 300, 10_007):
            for dtype, op in (("float32", "sum"), ("bfloat16", "avg"), ("int32", "max"), ("float16", "sum")):
                kind = comm._resolve("all_reduce", np.empty(1, dtype), op, None, None, None, None, False).kind
                rng = np.random.default_rng(count)
                xs = [(rng.standard_normal(count) * 100).astype(dtype) for _ in range(n)]
                wide = np.float32 if np.dtype(dtype).itemsize == 2 else xs[0].dtype
                total = xs[0].astype(wide)
                for x in xs[1:]:
                    total = np.maximum(total, x) if op == "max" else total + x.astype(wide)
                total = (total / comm.size if op == "avg" else total).astype(dtype)
                source, target = Memory(module, np.concatenate(xs)), Memory(module, np.zeros(count, dtype))
                end = combiner.combine(kind, n, count, source.address, target.address, [])
                wait_for(end, comm, time.monotonic() + 60)
                assert target.get().tobytes() == total.tobytes(), (n, count, dtype, op)
                made += 1
    combiner.close()
    return made
