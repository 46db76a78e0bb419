"""The direct algorithms by the switch. The emulated device reads, writes and adds to the replicas one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import calls
import emulated
import ml_dtypes
import numpy as np
import pytest
import reference
from calls import Call
from test_native_kernels import jobs

import pycollectives as pc
from pycollectives import device
from pycollectives.device import Options
from pycollectives.device.sharing import share_devices

OPTIONS = device.emulated(native=True, multicast=True)
# What the switch combines as this library does (csrc/cuda/kernels/multimem.hpp).
SUMS = ("int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64")
EXTREMES = ("int32", "uint32", "int64", "uint64")
BITWISE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def run(n: int, fn: Any, *args: Any, options: Options = OPTIONS, **settings: Any) -> list[Any]:
    """On ranks with a device each."""

    return emulated.run(n, fn, *args, options=options, spread=True, **settings)


@pytest.fixture(autouse=True)
def any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch adds in an order of its own, where the algorithms' other kernels fold from the left."""
    left = set(reference.LEFT_FOLD) - {("all_reduce", "two_shot"), ("reduce_scatter", "direct")}
    monkeypatch.setattr(reference, "LEFT_FOLD", left)


def kernel(comm: Any, verb: str, x: Any, **options: Any) -> str:
    """The kernel that makes a call."""
    before = set(comm._device._kept)
    getattr(comm, verb)(x, **options)
    (kind,) = set(comm._device._kept) - before
    return str(comm._device._kept[kind].kernel)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_verb(size: int) -> None:
    made = jobs(size, ("float32", "int64", "bfloat16", "float16", "float64", "uint8"))
    for seed in (1, 2):
        options = replace(OPTIONS, threads=32 * (1 + size % 2))
        before = emulated.device().statistics()[1]
        calls.agree(made, run(size, calls.check_all, made, options=options, seed=seed))
        assert emulated.device().statistics()[1] == before


@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_every_operator(dtype: str) -> None:
    """By the switch or by another kernel."""
    made = [
        Call("all_reduce", ("one_shot", "two_shot")[i % 2], op, dtype, (41 + i,), exact=op == "prod", seed=i)
        for i, op in enumerate(reference.operators(dtype))
    ]
    calls.agree(made, run(4, calls.check_all, made))


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int32", "uint64", "int8", "bool"]
)
def test_what_goes_by_the_switch(dtype: str) -> None:
    def fn(comm: Any) -> dict[str, bool]:
        x = np.ones(comm.size * 3, dtype)
        ways = {
            "sum": kernel(comm, "all_reduce", x, algorithm="two_shot"),
            "own sum": kernel(comm, "all_reduce", x, algorithm="one_shot"),
            "block": kernel(comm, "reduce_scatter", x, algorithm="direct"),
            "max": kernel(comm, "all_reduce", x, op="max", algorithm="two_shot"),
            "gather": kernel(comm, "all_gather", x, algorithm="direct"),
            "broadcast": kernel(comm, "broadcast", x, algorithm="flat"),
        }
        if np.dtype(dtype).kind in "iu":
            ways["bits"] = kernel(comm, "all_reduce", x, op="bxor", algorithm="two_shot")
        if np.dtype(dtype).kind != "b":
            ways["mean"] = kernel(comm, "all_reduce", x, op="avg", algorithm="two_shot")
        return {way: name.startswith("multicast") for way, name in ways.items()}

    floats, integers = dtype in SUMS[4:], dtype in EXTREMES
    want = {
        "sum": dtype in SUMS,
        "own sum": integers,  # a float's might differ between ranks
        "block": dtype in SUMS,
        "max": integers,
        "gather": True,
        "broadcast": True,
    }
    if dtype in BITWISE:
        want["bits"] = True
    if dtype != "bool":
        want["mean"] = floats and dtype in ("float32", "float64")  # others would be rounded twice
    assert run(3, fn) == [want] * 3


def test_deterministic_is_not_for_the_switch() -> None:
    def fn(comm: Any) -> list[str]:
        x = np.ones(50, np.float32)
        names = ("two_shot", "one_shot")
        return [kernel(comm, "all_reduce", x, algorithm=name, deterministic=True) for name in names]

    assert not any("multicast" in name for names in run(2, fn) for name in names)


def test_a_sum_of_sixteen_bits_is_rounded_once() -> None:
    def fn(comm: Any) -> bool:
        one = np.full(24, [1.0, 2.0**-8, 2.0**-9][comm.rank], ml_dtypes.bfloat16)
        return bool((comm.all_reduce(one, algorithm="two_shot") == np.float32(1.0 + 2.0**-7)).all())

    assert run(3, fn, seed=3) == [True] * 3


def test_every_rank_has_the_same_bits() -> None:
    """In whatever order the switch adds."""

    def fn(comm: Any) -> bytes:
        x = np.random.default_rng(comm.rank).standard_normal(999).astype(np.float32)
        return (
            comm.all_reduce(x, algorithm="two_shot").tobytes()
            + comm.all_reduce(x, algorithm="one_shot").tobytes()
        )

    found = set()
    for seed in range(1, 5):
        bits = run(4, fn, seed=seed)
        assert len(set(bits)) == 1
        found.add(bits[0])
    assert len(found) > 1, "the emulated switch has orders of its own"


def test_other_kernels_in_between() -> None:
    """Gates are counted by all native kernels; the interpreter has counters of its own."""

    def fn(comm: Any) -> bool:
        right = []
        for i in range(12):
            dtype = (np.float32, np.int16, np.int64)[i % 3]  # int16 does not go by the switch
            algorithm = ("two_shot", "two_shot", "ring", "one_shot")[i % 4]
            x = np.arange(100 + 300 * (i % 2)).astype(dtype) * (comm.rank + 1)
            total = comm.all_reduce(x, algorithm=algorithm)
            right.append(np.array_equal(total, (np.arange(x.size) * 6).astype(dtype)))
        return all(right)

    assert run(3, fn) == [True] * 3


def test_ranks_on_one_device_have_none() -> None:
    def fn(comm: Any) -> bool:
        return bool(comm._device.multicast)

    assert emulated.run(2, fn, options=OPTIONS) == [False] * 2
    assert run(2, fn) == [True] * 2
    assert run(1, fn) == [False]
    assert run(2, fn, options=replace(OPTIONS, multicast=False)) == [False] * 2


def test_all_devices_have_to_have_it() -> None:
    offers = [
        {"bus": bus, "pid": "1", "queues": 8, "capacity": {"512": 132}, "multicast": True, "crowd": 0}
        for bus in "abc"
    ]
    assert share_devices(offers, Options()).multicast
    assert not share_devices(offers, Options(native=False)).multicast, "no kernel would use it"
    offers[1]["multicast"] = False
    assert not share_devices(offers, Options()).multicast


@pytest.mark.parametrize("step", ["make_multicast", "join_multicast", "bind_multicast"])
def test_one_that_cannot_is_enough(step: str) -> None:
    """No rank uses the switch if it does not work for one, and calls go another way."""
    from pycollectives.device.device import Device

    def fn(comm: Any) -> tuple[bool, float]:
        class Failing:
            def __init__(self, real: Any) -> None:
                self._real = real

            def __getattr__(self, name: str) -> Any:
                if name == step and comm.rank == (0 if step == "make_multicast" else 1):
                    return self._fail
                return getattr(self._real, name)

            def _fail(self, *_: int) -> None:
                raise pc.DeviceError("no fabric manager")

        made: Device = comm._device
        made._rank.use_multicast(None)
        real, made._rank = made._rank, Failing(made._rank)
        works = made._bind_multicast()
        made._rank = real
        return works, float(comm.all_reduce(np.ones(3), algorithm="two_shot")[0])

    assert run(2, fn) == [(False, 2.0)] * 2


def test_a_disagreement() -> None:
    def fn(comm: Any) -> bool:
        with pytest.raises((pc.MismatchError, pc.AbortedError)):
            comm.all_reduce(np.ones(640 + 8 * comm.rank, np.float32), algorithm="two_shot")
        return True

    for seed in range(1, 5):
        assert run(3, fn, seed=seed) == [True] * 3
