"""Arrays of `comm.empty`: read in place by the peers, wherever they lie, as long as anybody has them."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from typing import Any

import calls
import numpy as np
import pytest
import ranks
import reference
from calls import Call
from ranks import Pools

import pycollectives as pc

BIG = 30_011  # elements: beyond the size from which peers read in place, for every dtype used here


class Arena:
    """Hands out pieces of one symmetric array, at different places on different ranks."""

    def __init__(self, comm: Any, nbytes: int) -> None:
        self.bytes = comm.empty(nbytes, "uint8")
        self.start = self.at = 64 * comm.rank

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> Any:
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if self.at + nbytes > self.bytes.size:
            self.at = self.start
        piece = self.bytes[self.at : self.at + nbytes]
        self.at += nbytes // 64 * 64 + 192
        return piece.view(dtype).reshape(shape)


def from_arenas(comm: Any, made: list[Call], both: bool) -> list[str]:
    """Some ranks have their arrays in symmetric memory, or all; large and small."""
    arena = Arena(comm, 24 << 20)
    here = both or comm.rank % 2 == 0
    return calls.check_all(comm, [replace(call, memory=arena if here else None) for call in made])


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_algorithm(pools: Pools, size: int, both: bool) -> None:
    made = [
        Call(
            verb,
            algorithm,
            dtype=dtype,
            shape=(count,),
            root=count % size,
            into=into,
            layout="offset",
            way=way,
            seed=i,
        )
        for verb in reference.VERBS
        for algorithm in reference.algorithms(verb, size)
        for i, (dtype, count, way) in enumerate(
            [
                ("float32", BIG, "call"),
                ("bfloat16", BIG, "async"),
                ("uint8", 200_003, "plan"),
                ("int64", 40, "call"),
            ]
        )
        for into in ("new", "offset", "in place", "column")
    ]
    calls.agree(made, pools(size).run(from_arenas, made, both))


def test_ranks_as_threads() -> None:
    made = [
        Call(verb, algorithm, dtype="float32", shape=(BIG,), root=4, into=into, layout="offset")
        for verb in reference.VERBS
        for algorithm in reference.algorithms(verb, 5)
        for into in ("offset", "in place")
    ]
    calls.agree(made, ranks.threads(5, from_arenas, made, True))


def dropped_and_made_anew(comm: Any) -> None:
    """Ranks drop their arrays at different times; ordinary arrays may then lie where they were."""
    total = sum(range(1, comm.size + 1))
    held = comm.empty(BIG, "int64")
    for i in range(14):
        mine = comm.empty(BIG + i, "int64")
        mine[:] = comm.rank + 1
        if comm.rank % 2 == i % 2:
            del mine
            gc.collect()
            mine = np.full(BIG + i, comm.rank + 1)
        held[:] = comm.rank + 1
        assert (comm.all_reduce(mine, out=mine) == total).all()
        assert (comm.all_reduce(held) == total).all()
    del mine
    del held
    for i in range(5):
        x = np.full(BIG, comm.rank + i)
        assert (comm.all_reduce(x) == sum(range(comm.size)) + i * comm.size).all()


@pytest.mark.parametrize("size", [2, 4])
def test_arrays_come_and_go(pools: Pools, size: int) -> None:
    pools(size).run(dropped_and_made_anew)
    ranks.threads(size, dropped_and_made_anew)


def resident_kib() -> int:
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss:"))


def given_back(comm: Any) -> tuple[int, int]:
    """The memory of dropped arrays comes back, for those of closed communicators, too."""
    sub, before, files = comm, 0, 0
    for i in range(40):
        array = comm.empty(1 << 20, "uint8")
        array[:] = 1
        sub = comm.split(0)
        nested = sub.empty(1 << 20, "uint8")
        nested[:] = 2
        assert (sub.all_reduce(nested, out=array) == 2 * comm.size).all()
        del array, nested
        sub.close()
        if i == 9:
            before, files = resident_kib(), len(os.listdir("/proc/self/fd"))
    return resident_kib() - before, len(os.listdir("/proc/self/fd")) - files


def test_memory_comes_back(pools: Pools) -> None:
    for grown, files in pools(3).run(given_back):
        assert grown < 8_000 and files <= 0, (grown, files)


def in_other_communicators(comm: Any) -> None:
    """Arrays of the world and of its parts, each used in the other."""
    world = comm.empty(BIG, "int32")
    half = comm.split(comm.rank % 2)
    part = half.empty(BIG, "int32")
    pair = half.split(0)
    second = comm.empty(BIG, "int32")
    for i in range(5):
        for group in (comm, half, pair):
            for array in (world, part, second):
                array[:] = comm.rank + i
                want = sum(group.world_ranks) + i * group.size
                assert (group.all_reduce(array) == want).all()
                assert (group.all_reduce(array, out=array) == want).all()
    half.close()
    pair.close()
    new = comm.split(0)
    for array in (world, part, second):
        array[:] = comm.rank
        assert (new.all_reduce(array) == sum(range(comm.size))).all()
    new.close()


def test_use_in_other_communicators(pools: Pools) -> None:
    pools(4).run(in_other_communicators)
    ranks.threads(4, in_other_communicators)


def one_closes_first(comm: Any) -> None:
    """A communicator knows only those arrays that all of its members still have."""
    half = comm.split(0)
    array = half.empty(BIG, "float32")
    if comm.rank == 0:
        del array
        half.close()
        array = np.empty(BIG, np.float32)
    again = comm.split(0)
    array[:] = comm.rank
    assert (again.all_reduce(array) == sum(range(comm.size))).all()
    if comm.rank:
        half.close()
    again.close()


def test_an_array_that_one_rank_has_no_more(pools: Pools) -> None:
    pools(3).run(one_closes_first)


def shapes(comm: Any) -> None:
    for shape, dtype in (
        ((), "float32"),
        (0, "int8"),
        ((3, 0, 2), "float64"),
        (7, "bfloat16"),
        ((2, 3), "S5"),
        (np.int64(4), bool),
    ):
        array = comm.empty(shape, dtype)
        dims = (int(shape),) if not isinstance(shape, tuple) else shape
        assert (
            array.shape == dims
            and array.dtype == np.dtype(dtype)
            and array.flags.writeable
            and array.flags.c_contiguous
        )
        gathered = comm.all_gather(array)
        assert gathered.shape == (comm.size, *dims)
    for shape in (-1, (2, -3)):
        with pytest.raises(pc.InvalidArgumentError, match="negative"):
            comm.empty(shape)
    with pytest.raises(pc.InvalidArgumentError, match="object"):
        comm.empty(3, object)


@pytest.mark.parametrize("size", [1, 2])
def test_shapes_and_dtypes(pools: Pools, size: int) -> None:
    pools(size).run(shapes)


def different_lengths(comm: Any) -> None:
    """The pieces need not be of one size; the calls' have to."""
    array = comm.empty(BIG * (1 + comm.rank), "float32")
    array[:] = comm.rank
    assert (comm.all_reduce(array[-BIG:]) == sum(range(comm.size))).all()


def test_different_lengths(pools: Pools) -> None:
    pools(4).run(different_lengths)


def no_memory(comm: Any) -> str:
    """All ranks get the error of the one that has no memory."""
    with pytest.raises(pc.TransportError) as caught:
        comm.empty(1 << 50 if comm.rank == 1 else 10, "uint8")
    assert (comm.all_reduce(np.ones(4)) == comm.size).all()
    return str(caught.value)


def test_no_memory_on_one_rank(pools: Pools) -> None:
    for text in pools(3).run(no_memory):
        assert "rank 1" in text and str(1 << 50) in text and "available" in text


@pytest.mark.parametrize("device", ["cpu", "CUDA", "", 0, b"cuda", np.ones(3), ["cuda"]])
def test_a_device_that_is_none(device: Any) -> None:
    def fn(comm: Any) -> None:
        with pytest.raises(pc.InvalidArgumentError, match="device is"):
            comm.empty(3, device=device)

    ranks.threads(2, fn)
