"""Operators written in Python by the CUDA kernels on the emulated device: what they give on the CPU, on every verb that reduces."""

from __future__ import annotations

import types
from typing import Any

import emulated
import ml_dtypes  # noqa: F401 - registers bfloat16 and float8 as NumPy dtypes
import numpy as np
import pytest
import user_ops
from user_ops import (
    FLOATS,
    LAST,
    MATRIX,
    MATRIX3,
    PAIR,
    data,
    elements,
    fold,
    joined,
    last_set,
    left_fold,
    matrices,
    records,
    uneven,
)

import pycollectives as pc
from pycollectives import device
from pycollectives.bootstrap.threads import run_threads
from pycollectives.communicator import Communicator

pytest.importorskip("numba")

TYPES = ("bool", "int8", "uint16", "int32", "uint64", *FLOATS, "complex128")  # all sizes, all ways to combine


@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype: str) -> None:
    """The protocols take turns by the fingerprint of the call, the native kernels by the type."""
    options = device.emulated(native=TYPES.index(dtype) % 2 == 1)
    ran = emulated.run(3, elements, dtype, (37,), options=options)[0]
    assert {("all_reduce", "one_shot"), ("reduce_scatter", "direct"), ("exscan", "linear")} <= ran
    assert (("all_reduce", "ring") in ran) == (dtype != "bool"), "one of two operators commutes"


@pytest.mark.parametrize(
    ("size", "protocol", "dtype"),
    [
        (1, "simple", "int32"),
        (2, "simple", "bfloat16"),
        (2, "ll", "float8_e5m2"),
        (2, "ll128", "bfloat16"),
        (4, "simple", "int32"),
        (4, "ll", "bfloat16"),
        (5, "ll128", "int32"),
    ],
)
def test_protocols_and_sizes(size: int, protocol: str, dtype: str) -> None:
    emulated.run(size, elements, dtype, (0, 1, 129), options=device.emulated(protocol), seed=size)


@pytest.mark.parametrize("dtype", FLOATS)
def test_deterministic_is_the_left_fold_rounded_once(dtype: str) -> None:
    for native in (False, True):
        emulated.run(4, left_fold, dtype, 501, 77, options=device.emulated(native=native))


@pytest.mark.parametrize(
    ("protocol", "native", "dtype"),
    [
        ("simple", False, "int32"),
        ("ll", False, "bfloat16"),
        ("ll128", False, "float8_e4m3fn"),
        ("", True, "float32"),
        ("", True, "float16"),
    ],
)
def test_ranks_that_share_a_launch(protocol: str, native: bool, dtype: str) -> None:
    """Their blocks do not fit on the device together; one grid has them all."""
    options = device.emulated(protocol, native=native, threads=128)

    def fn(comm: Any) -> set[tuple[str, str]]:
        assert comm._device.share.fused
        left_fold(comm, dtype if dtype in FLOATS else "float64", 101, 33)
        return elements(comm, dtype, (0, 1, 129))

    limits = {"processors": 4, "resident_threads": 128}
    ran = emulated.run(5, fn, options=options, **limits)[0]
    assert {("all_reduce", "one_shot"), ("all_reduce", "ring"), ("exscan", "linear")} <= ran


def test_ranks_that_share_a_launch_with_operators_of_their_own() -> None:
    """Each has made its own object of the same function; a call with another function is no part of the launch."""

    def fn(comm: Any) -> str:
        op = pc.op(last_set)
        xs = [data("int32", (70,), rank) for rank in range(comm.size)]
        for algorithm in ("one_shot", "two_shot"):
            got = comm.all_reduce(xs[comm.rank], op, algorithm=algorithm)
            assert got.tobytes() == fold(last_set, xs).tobytes()
        comm.all_reduce(xs[comm.rank], pc.op(joined))
        with pytest.raises(pc.MismatchError) as found:
            comm.all_reduce(xs[comm.rank], op if comm.rank == 1 else "sum", algorithm="one_shot")
        return str(found.value)

    for native in (False, True):
        texts = emulated.run(3, fn, options=device.emulated(native=native, fused=True))
        assert all("called another collective" in text for text in texts)


# -- blocks and records -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "dtype", "protocol"),
    [
        (MATRIX, "int32", "ll"),  # one vector
        (MATRIX, "int64", "simple"),  # two vectors
        (MATRIX, "float16", "ll128"),  # two in a vector
        (MATRIX3, "int16", "simple"),  # eight in nine vectors
        (MATRIX3, "int16", "ll"),
        (MATRIX3, "float64", "ll128"),  # two in nine vectors
    ],
)
@pytest.mark.parametrize("fused", [False, True])
def test_matrices_in_rank_order(op: Any, dtype: str, protocol: str, fused: bool) -> None:
    options = device.emulated(protocol, native=True, fused=fused)
    emulated.run(3, matrices, op, dtype, (0, 1, 43), options=options)


@pytest.mark.parametrize("dtype", [PAIR, np.dtype(PAIR.descr, align=True)], ids=["12 bytes", "16 bytes"])
@pytest.mark.parametrize("fused", [False, True])
def test_records(dtype: Any, fused: bool) -> None:
    emulated.run(4, records, dtype, options=device.emulated(native=True, fused=fused))


def test_uneven_blocks() -> None:
    emulated.run(3, uneven)


def test_the_switch_between_devices_does_not_combine() -> None:
    """It knows sums, which these are not."""
    options = device.emulated(native=True, multicast=True)
    assert emulated.run(3, elements, "float32", (37,), options=options, spread=True)[0]


# -- what an operator may rely on -----------------------------------------------------------------------------------------------


def test_onlyelements_that_there_are() -> None:
    """What is behind an array's end, or in a thread that has nothing to do, is not given to the operator: it could not end."""

    def halvings(a: Any, b: Any) -> Any:
        total = a
        while b != 1:  # never for 0
            b, total = b // 2, total + 1
        return total

    op = pc.op(halvings)

    def fn(comm: Any) -> None:
        for count in (1, 3, 5, 67):
            x = np.full(count, 1 << comm.rank, np.int32)
            for algorithm in ("one_shot", "two_shot"):
                got = comm.all_reduce(x, op, algorithm=algorithm)
                assert (got == 1 + sum(range(1, comm.size))).all()

    for protocol in ("simple", "ll", "ll128"):
        for native in (False, True):
            emulated.run(3, fn, options=device.emulated(protocol, native=native))


@pytest.mark.parametrize("fused", [False, True])
def test_calls_under_way_end_before_an_operator_is_loaded(fused: bool) -> None:
    def fn(comm: Any) -> None:
        xs = [np.arange(300, dtype=np.float32) + rank for rank in range(comm.size)]
        works = [comm.all_reduce(xs[comm.rank], async_op=True) for _ in range(3)]
        got = comm.all_reduce(xs[comm.rank], pc.op(last_set))
        assert all(work.done() for work in works), "they have ended"
        assert got.tobytes() == fold(last_set, xs).tobytes()
        assert all(np.array_equal(work.wait(), sum(xs)) for work in works)

    emulated.run(3, fn, options=device.emulated(fused=fused))


@pytest.mark.parametrize("step", ["drain", "load"])
@pytest.mark.parametrize("fused", [False, True])
def test_one_that_cannot_load_is_enough(step: str, fused: bool) -> None:
    """All raise, none waits; and all can try again."""

    class Failing:
        def __init__(self, real: Any) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return self._fail if name == step else getattr(self._real, name)

        def _fail(self, *_: Any) -> None:
            raise pc.DeviceError("out of memory")

    def fn(comm: Any) -> str:
        operators = comm._device._operators
        part = "_device" if step == "drain" else "_native"
        real = getattr(operators, part)
        if comm.rank == 1:
            setattr(operators, part, Failing(real))
        with pytest.raises(pc.DeviceError, match="out of memory") as found:
            comm.all_reduce(np.ones(3), LAST)
        setattr(operators, part, real)
        assert (comm.all_reduce(np.full(3, comm.rank + 1.0), LAST) == comm.size).all()
        return str(found.value)

    found = emulated.run(3, fn, options=device.emulated(fused=fused))
    assert found == ["rank 1: out of memory", "out of memory", "rank 1: out of memory"]


def test_one_that_has_no_room_is_enough() -> None:
    """How many blocks of a kernel fit is known when it is loaded."""

    def make(rendezvous: Any) -> Communicator:
        emulated.device().use_device(rendezvous.rank // 2)  # two ranks on one device, one on another
        return Communicator(rendezvous, device=device.emulated(blocks=4))

    def fn(comm: Any) -> str:
        comm._exchange("before", b"")
        if comm.rank == 0:
            emulated.device().configure(seed=1, processors=4, resident_threads=32)
        comm._exchange("after", b"")
        with pytest.raises(pc.DeviceError, match="cannot hold all blocks") as found:
            comm.all_reduce(np.ones(3), LAST)
        return str(found.value)

    emulated.device().configure(seed=1)
    assert run_threads(3, fn, make=make)[2].startswith("rank 0: ")


# -- refusals --------------------------------------------------------------------------------------------------------------------


def raised(n: int, call: Any) -> list[str]:
    """The texts of the errors that `call(comm)` raises on the ranks."""
    return user_ops.raised(emulated.run, n, call)


def careful(a: Any, b: Any) -> Any:
    if a < 0:
        raise ValueError
    return a + b


def test_exceptions() -> None:
    def indirect(a: Any, b: Any) -> Any:
        return helper(a, b)

    import numba

    def by_a_module(a: Any, b: Any) -> Any:
        return package.module.helper(a, b)

    helper = numba.njit(careful)
    package = types.ModuleType("package")
    package.module = types.ModuleType("package.module")  # type: ignore[attr-defined]
    package.module.helper = helper
    for f in (careful, indirect, by_a_module):
        texts = raised(2, lambda comm, f=f: comm.all_reduce(np.ones(3), pc.op(f)))
        assert all(text.startswith(f"UnsupportedError: op({f.__name__}) raises exceptions") for text in texts)


def test_what_does_not_fit_into_vectors() -> None:
    def first(a: Any, b: Any, out: Any) -> None:
        out[0, 0] = a[0, 0]

    big = pc.op(first, shape=(5, 5))
    assert (
        "blocks and records of 200 bytes"
        in raised(1, lambda comm: comm.all_reduce(np.ones((2, 5, 5)), big))[0]
    )
    text = raised(1, lambda comm: comm.all_reduce(np.ones((2, 3, 3), np.float16), MATRIX3))[0]
    assert text.startswith("UnsupportedError: ") and "2, 4, 8 or 16 bytes, not 18 bytes" in text


def test_operators_that_differ() -> None:
    ops = [pc.op(joined), pc.op(last_set)]
    texts = raised(2, lambda comm: comm.all_reduce(np.ones(3), ops[comm.rank]))
    assert all(text.startswith("MismatchError") and "op(joined)" in text for text in texts)
