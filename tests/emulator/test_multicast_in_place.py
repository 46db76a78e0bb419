"""The switch and arrays of `comm.empty(device="cuda")`: used where they are, if all ranks have them at the same place."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import emulated
import fake_arrays as fake
import numpy as np
import on_device
import pytest
from test_multicast import OPTIONS, run

import pycollectives as pc

AROUND = 16  # elements before and behind a piece, which nobody may touch


class Piece:
    """A piece of a symmetric array, from an element on, with something else around it."""

    def __init__(self, comm: Any, dtype: str, first: int, values: Any) -> None:
        self.stream = emulated.device().make_stream()
        whole = comm.empty(values.size + first + 2 * AROUND, dtype, device="cuda")
        self.memory, self.first, self.size = on_device.seen(whole), AROUND + first, values.size
        self.memory[...] = 77
        self.values[...] = values
        self.array = on_device.Part(whole, self.first, (self.size,), self.stream)

    @property
    def values(self) -> Any:
        return self.memory[self.first : self.first + self.size]

    def is_clean(self) -> bool:
        """Is what is around it as it was?"""
        return bool(
            (self.memory[: self.first] == 77).all() and (self.memory[self.first + self.size :] == 77).all()
        )


def data(count: int, rank: int, dtype: str) -> Any:
    return (np.arange(count) % 7 + rank).astype(dtype)


def every_verb(comm: Any, count: int, dtype: str, firsts: tuple[int, ...]) -> list[str]:
    """`firsts`: where the pieces of the ranks begin. Returns the kernels."""
    n, r = comm.size, comm.rank
    first = firsts[r % len(firsts)]
    total = sum(data(count, k, dtype) for k in range(n))

    def piece(values: Any) -> Piece:
        return Piece(comm, dtype, first, values)

    def check(verb: str, x: Piece, out: Piece, want: Any, **options: Any) -> None:
        for _ in range(2 if x is not out else 1):
            getattr(comm, verb)(x.array, out=out.array, **options)
        comm._device.drain()
        assert np.array_equal(out.values, want), (verb, options, count, dtype, firsts)
        assert x.is_clean() and out.is_clean(), (verb, options, count, dtype, firsts)

    zeros = np.zeros(count, dtype)
    for algorithm in ("two_shot", "one_shot"):
        check("all_reduce", piece(data(count, r, dtype)), piece(zeros), total, algorithm=algorithm)
        x = piece(data(count, r, dtype))
        check("all_reduce", x, x, total, algorithm=algorithm)
    tiled = np.tile(data(count, r, dtype), n)
    check("reduce_scatter", piece(tiled), piece(zeros), total, algorithm="direct")
    everyone = np.concatenate([data(count, k, dtype) for k in range(n)])
    check(
        "all_gather",
        piece(data(count, r, dtype)),
        piece(np.zeros(n * count, dtype)),
        everyone,
        algorithm="direct",
    )
    check(
        "broadcast",
        piece(data(count, r, dtype)),
        piece(zeros),
        data(count, 1, dtype),
        root=1,
        algorithm="flat",
    )
    return [call.kernel for call in comm._device._kept.values()]


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint16"])
@pytest.mark.parametrize("firsts", [(0,), (8,), (1,), (0, 8), (8, 8, 0)])
def test_every_verb(dtype: str, firsts: tuple[int, ...]) -> None:
    """At the same place, at one that vectors do not fit, and at different ones, so that all copy. Whole vectors, and tails."""

    def fn(comm: Any) -> bool:
        kernels: list[str] = []
        for count in (8, 37, 700):
            kernels += every_verb(comm, count, dtype, firsts)
        return any(name.startswith("multicast") for name in kernels)

    before = emulated.device().statistics()[1]
    assert run(3, fn, seed=len(firsts) + len(dtype)) == [True] * 3
    assert emulated.device().statistics()[1] == before, "a flag was released to the own device only"


def test_one_rank_with_an_array_of_its_own() -> None:
    """Where the switch does not reach: all copy, at every call anew."""

    def fn(comm: Any) -> bool:
        right = []
        for turn in range(4):
            x = Piece(comm, "float32", 0, data(700, comm.rank, "float32"))
            array = x.array
            if comm.rank == turn % comm.size and turn < 3:
                array = fake.over(x.values.copy(), x.stream)
            out = Piece(comm, "float32", 0, np.zeros(700, np.float32))
            comm.all_reduce(array, out=out.array, algorithm="two_shot")
            comm._device.drain()
            right.append(np.array_equal(out.values, sum(data(700, k, "float32") for k in range(comm.size))))
        return all(right)

    assert run(3, fn) == [True] * 3


def test_nothing_is_copied() -> None:
    """Through staging memory a long array takes many rounds; in its place it takes one."""

    def fn(comm: Any) -> tuple[int, int]:
        count, steps = 12_000, []
        pieces = [Piece(comm, "float32", 0, data(count, comm.rank, "float32")) for _ in range(2)]
        own = [fake.over(piece.values.copy(), piece.stream) for piece in pieces]
        for there, (x, out) in ((False, own), (True, [piece.array for piece in pieces])):
            for one in (x, out):
                address, _ = one.__cuda_array_interface__["data"]
                assert comm._device._rank.on_switch(address, 4 * count) is there
            again = comm.plan("all_reduce", x, out=out, algorithm="two_shot")
            comm._exchange(f"begin {len(steps)}", b"")
            begin = emulated.device().statistics()[0]
            comm._exchange(f"known {len(steps)}", b"")
            again()
            comm._device.drain()
            comm._exchange(f"end {len(steps)}", b"")
            steps.append(emulated.device().statistics()[0] - begin)
        return steps[0], steps[1]

    copied, there = run(2, fn)[0]
    assert there * 3 < copied


def test_pieces_come_and_go() -> None:
    """Each has a multicast object of its own, which is let go with it; native kernels without the switch find it, too."""

    def fn(comm: Any) -> bool:
        right = []
        for turn in range(5):
            x = Piece(comm, "float32", 0, data(100 + turn, comm.rank, "float32"))
            rank = comm._device._rank
            assert rank.finds(x.memory.ctypes.data, x.memory.nbytes)
            comm.all_reduce(x.array, out=x.array, algorithm="two_shot", deterministic=True)
            comm.all_reduce(x.array, out=x.array, algorithm="two_shot")
            comm._device.drain()
            want = comm.size * sum(data(100 + turn, k, "float32") for k in range(comm.size))
            right.append(np.array_equal(x.values, want))
            del x
        comm.empty(1, device="cuda")
        return all(right) and len(comm._device._symmetric._dropped) == 1

    assert run(3, fn) == [True] * 3


@pytest.mark.parametrize("by", ["the next array", "the end of the communicator"])
def test_a_piece_is_dropped_while_the_caller_works_on_it(by: str) -> None:
    """It is unmapped when that is over."""

    def fn(comm: Any) -> bool:
        module, stream = emulated.device(), emulated.device().make_stream()
        x = Piece(comm, "float32", 0, data(100, comm.rank, "float32"))
        comm.all_reduce(x.array, out=x.array, algorithm="two_shot")
        comm._device.drain()
        want, seen = x.values.copy(), np.zeros(100, np.float32)
        module.copy(stream, seen.ctypes.data, x.values.ctypes.data, seen.nbytes)  # when somebody waits for it
        gone = weakref.ref(x.array)
        del x
        gc.collect()
        comm._exchange("dropped", b"")
        if by == "the next array":
            comm.empty(1, device="cuda")
        else:
            comm._device.close()
            comm._device = None
            gc.collect()
        assert gone() is None
        module.synchronize(stream)
        return np.array_equal(seen, want)

    assert run(3, fn) == [True] * 3


@pytest.mark.parametrize("step", ["make_multicast", "join_multicast", "bind_multicast"])
def test_one_that_cannot_bind_is_enough(step: str) -> None:
    """Then the array is in ordinary symmetric memory on all ranks."""

    def fn(comm: Any) -> bool:
        made, real = comm._device, comm._device._rank

        class Failing:
            def __getattr__(self, name: str) -> Any:
                return self._fail if name == step and comm.rank in (0, 1) else getattr(real, name)

            def _fail(self, *_: int) -> None:
                raise pc.DeviceError("no more multicast memory")

        made._rank = Failing()
        x = Piece(comm, "float32", 0, data(50, comm.rank, "float32"))
        made._rank = real
        comm.all_reduce(x.array, out=x.array, algorithm="two_shot")
        made.drain()
        return np.array_equal(x.values, sum(data(50, k, "float32") for k in range(comm.size)))

    assert run(3, fn, options=OPTIONS) == [True] * 3
