"""What the first six verbs are tested for at length, of all the others too: dtypes, layouts, nothing, uneven rows."""

from __future__ import annotations

from typing import Any

import calls
import catalogue
import numpy as np
import pytest
import ranks
import reference
from calls import LAYOUTS
from reference import Array

import pycollectives as pc
from pycollectives.schedule import COLLECTIVES

IN_BLOCKS = ("reduce_scatter", "scatter", "all_to_all")  # the first axis of x is a multiple of the ranks


@pytest.mark.parametrize("size", [3, 4])
def test_every_dtype(size: int) -> None:
    def fn(comm: Any) -> None:
        for verb in catalogue.VERBS:
            for number, algorithm in enumerate(catalogue.able(verb, size)):
                for i, dtype in enumerate(reference.DTYPES):
                    way = catalogue.WAYS[(i + number) % 4]
                    catalogue.check(comm, verb, algorithm, 9, dtype, i % size, way, i)

    ranks.threads(size, fn)


def shaped(verb: str, want: Array, shape: tuple[int, ...], size: int) -> Array:
    """A result of `catalogue.wanted` in the shape that it must have for an x of `shape`."""
    if verb in ("all_gather", "gather"):
        return want.reshape(size, *shape)
    return (
        want.reshape(shape[0] // size, *shape[1:])
        if verb in ("reduce_scatter", "scatter")
        else want.reshape(shape)
    )


def one(comm: Any, verb: str, shape: tuple[int, ...], layout: str, into: str, root: int, seed: int) -> None:
    """One call with x in one layout and out in another; nothing beside out is written."""
    if verb in IN_BLOCKS:
        shape = (comm.size * shape[0], *shape[1:])
    xs = catalogue.inputs(comm.size, int(np.prod(shape)), "float32", seed)
    x, _ = calls.frame(shape, np.float32, layout)
    x[...] = xs[comm.rank].reshape(shape)
    options: dict[str, Any] = {"root": root} if COLLECTIVES[verb].rooted else {}
    found = catalogue.wanted(verb, xs, comm.rank, root)
    what = (verb, shape, layout, into, root, comm.rank)
    if found is None:
        assert getattr(comm, verb)(x, **options) is None, what
        return
    want = shaped(verb, found, shape, comm.size)
    out, outer = calls.frame(want.shape, np.float32, into)
    calls.poison(outer)
    before = outer.copy()
    assert getattr(comm, verb)(x, out=out, **options) is out, what
    assert np.array_equal(out, want), what
    calls.poison(out)
    assert outer.tobytes() == before.tobytes(), what
    assert np.array_equal(x, xs[comm.rank].reshape(shape)), what


@pytest.mark.parametrize("shape", [(6,), (4, 3), (2, 3, 4), (1, 0, 2)])
def test_every_layout_in_and_out(shape: tuple[int, ...]) -> None:
    """Each rank has another one."""

    def fn(comm: Any) -> None:
        for verb in catalogue.VERBS:
            for i in range(len(LAYOUTS) ** 2):
                layout = LAYOUTS[(i + comm.rank) % len(LAYOUTS)]
                into = LAYOUTS[(i // len(LAYOUTS) + 3 * comm.rank) % len(LAYOUTS)]
                one(comm, verb, shape, layout, into, i % comm.size, i)

    ranks.threads(3, fn)


def test_in_place() -> None:
    def fn(comm: Any) -> None:
        for count in range(0, 258, 7):
            xs = catalogue.inputs(comm.size, count, "int32", count)
            for verb in ("scan", "exscan"):
                for algorithm in catalogue.able(verb, comm.size):
                    x, want = xs[comm.rank].copy(), catalogue.wanted(verb, xs, comm.rank, 0)
                    got = getattr(comm, verb)(x, out=x, algorithm=algorithm)
                    assert got is (None if want is None else x), (verb, algorithm, count)
                    assert np.array_equal(x, xs[comm.rank] if want is None else want), (
                        verb,
                        algorithm,
                        count,
                    )
            out = np.full((comm.size, count), -1, np.int32)
            out[comm.rank] = xs[comm.rank]
            got = comm.gather(out[comm.rank], root=1, out=out)  # the own block of out, at the root
            assert got is None if comm.rank != 1 else np.array_equal(out, np.stack(xs)), count
            whole = np.stack(xs)
            mine = whole[comm.rank] if comm.rank == 2 else np.empty(count, np.int32)
            comm.scatter(whole if comm.rank == 2 else None, root=2, out=mine)
            assert np.array_equal(mine, xs[comm.rank]), count
        x = np.zeros(comm.size)
        with pytest.raises(pc.InvalidArgumentError, match="cannot work in place"):
            comm.all_to_all(x, out=x)

    ranks.threads(4, fn)


@pytest.mark.parametrize("counts", [[0, 3, 5], [5, 0, 3], [0, 0, 0], [0, 0, 8]])
def test_uneven_rows(counts: list[int]) -> None:
    def fn(comm: Any) -> None:
        for verb in catalogue.UNEVEN:
            for algorithm in catalogue.able(verb[:-1], comm.size, even=False):
                for root in range(comm.size if COLLECTIVES[verb[:-1]].rooted else 1):
                    for told in (True, False):
                        catalogue.check_uneven(comm, verb, algorithm, counts, root, told, root + told)

    ranks.threads(3, fn)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_uneven_rows_of_any_layout(layout: str) -> None:
    def fn(comm: Any) -> None:
        counts = [2, 0, 5]
        data = np.arange(21, dtype=np.float32).reshape(7, 3)
        ends = np.cumsum([0, *counts])
        block = data[ends[comm.rank] : ends[comm.rank + 1]]

        def strided(like: Array, *, filled: bool = True) -> Array:
            array, _ = calls.frame(like.shape, np.float32, layout)
            array[...] = like if filled else -1
            return array

        whole = strided(data, filled=False)
        assert comm.all_gatherv(strided(block), counts, out=whole) is whole and np.array_equal(whole, data)
        mine = strided(block, filled=False)
        assert comm.reduce_scatterv(strided(data), counts, out=mine) is mine and np.array_equal(
            mine, 3 * block
        )
        mine = strided(block, filled=False)
        assert comm.scatterv(strided(data), counts, root=1, out=mine) is mine and np.array_equal(mine, block)
        whole = strided(data, filled=False)
        got = comm.gatherv(strided(block), counts, root=2, out=whole)
        assert (got is whole and np.array_equal(whole, data)) if comm.rank == 2 else got is None
        parts = strided(np.repeat(block, 3, axis=0)) if counts[comm.rank] else strided(block)
        got = comm.all_to_allv(parts, [counts[comm.rank]] * 3)
        rows = [np.repeat(data[ends[r] : ends[r + 1]], 3, axis=0) for r in range(3)]
        want = [rows[r][comm.rank * n : (comm.rank + 1) * n] for r, n in enumerate(counts)]
        assert np.array_equal(got, np.concatenate(want))

    ranks.threads(3, fn)
