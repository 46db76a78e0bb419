"""What the ranks of test_neighbor.py do: halo exchanges, compared with numpy.roll on the whole grid."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes  # noqa: F401 - teaches NumPy the name bfloat16
import numpy as np

import pycollectives as pc

Array = np.ndarray[Any, Any]
UNTOUCHED = 77


def grids(size: int, longest: int = 3) -> list[tuple[int, ...]]:
    """All ordered factorisations of `size` into up to `longest` numbers."""
    lengths = [n for n in range(1, size + 1) if size % n == 0]
    return [
        d for k in range(1, longest + 1) for d in itertools.product(lengths, repeat=k) if math.prod(d) == size
    ]


def whole(dims: tuple[int, ...], shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Everybody's x: shape (*dims, blocks, *shape)."""
    rng = np.random.default_rng([seed, *dims])
    return rng.integers(0, 70, (*dims, 2 * len(dims), *shape)).astype(dtype)


def exchanged(x: Array, dims: tuple[int, ...], periodic: tuple[bool, ...], border: int) -> Array:
    """Everybody's result."""
    result, axis_of_blocks = np.empty_like(x), len(dims)
    blocks, found = np.moveaxis(x, axis_of_blocks, 0), np.moveaxis(result, axis_of_blocks, 0)
    for axis in range(len(dims)):
        for block, step in ((2 * axis, 1), (2 * axis + 1, -1)):
            found[block] = np.roll(blocks[block ^ 1], step, axis=axis)
            if not periodic[axis]:
                edge = [slice(None)] * found[block].ndim
                edge[axis] = slice(0, 1) if step == 1 else slice(-1, None)
                found[block][tuple(edge)] = border
    return result


def check(
    comm: pc.Communicator,
    dims: tuple[int, ...],
    periodic: tuple[bool, ...],
    shape: tuple[int, ...],
    dtype: str,
    seed: int,
) -> None:
    """New result, out, in place, strided, asynchronous, in a group."""
    mine = whole(dims, shape, dtype, seed).reshape(comm.size, 2 * len(dims), *shape)[comm.rank]
    zeros, kept = (
        exchanged(whole(dims, shape, dtype, seed), dims, periodic, b).reshape(comm.size, *mine.shape)[
            comm.rank
        ]
        for b in (0, UNTOUCHED)
    )
    where = f"{dims} {periodic} {shape} {dtype} rank {comm.rank}"
    before = mine.copy()
    got = comm.neighbor_exchange(mine, dims, periodic=periodic)
    assert got.dtype == mine.dtype and got.tobytes() == zeros.tobytes(), where
    out = np.full(mine.shape, UNTOUCHED, mine.dtype)
    assert comm.neighbor_exchange(mine, dims, periodic=list(periodic), out=out) is out
    assert out.tobytes() == kept.tobytes() and mine.tobytes() == before.tobytes(), where
    strided = np.full((*mine.shape, 2), UNTOUCHED, mine.dtype)
    source = np.repeat(mine[..., None], 3, axis=-1)[..., 1]
    work = comm.neighbor_exchange(source, dims, periodic=periodic, out=strided[..., 0], async_op=True)
    assert np.array_equal(work.wait(), kept) and (strided[..., 1] == UNTOUCHED).all(), where
    with comm.group():
        pending = comm.neighbor_exchange(mine, dims, periodic=periodic)
    assert pending.wait().tobytes() == zeros.tobytes(), where
    inside = mine.copy()
    assert comm.neighbor_exchange(inside, dims, periodic=periodic, out=inside) is inside
    border = (kept == UNTOUCHED) & (zeros == 0) if mine.size else np.zeros(mine.shape, bool)
    assert np.array_equal(inside, np.where(border, before, kept)), where


def all_grids(comm: pc.Communicator, longest: int) -> None:
    for seed, dims in enumerate(grids(comm.size, longest)):
        for periodic in itertools.product((True, False), repeat=len(dims)):
            check(comm, dims, periodic, (3,), "float64", seed)


def shapes(comm: pc.Communicator, dims: tuple[int, ...]) -> None:
    wraps = (True, False, True)[: len(dims)]
    for seed, shape in enumerate([(), (1,), (0,), (4, 5), (2, 0, 3), (30_001,)]):
        check(comm, dims, wraps, shape, ("int8", "float32", "bfloat16", "complex64")[seed % 4], seed)


def stencil(comm: pc.Communicator, dims: tuple[int, int], steps: int) -> None:
    """Heat on a torus of cells, cut among the ranks: the same bits as on one rank."""
    rows, columns = 3, 4
    field = np.random.default_rng(5).standard_normal((dims[0] * rows, dims[1] * columns))
    at = np.unravel_index(comm.rank, dims)
    mine = field[at[0] * rows : (at[0] + 1) * rows, at[1] * columns : (at[1] + 1) * columns].copy()
    for _ in range(steps):
        field = field + 0.1 * (
            ((np.roll(field, 1, 0) + np.roll(field, -1, 0)) + np.roll(field, 1, 1)) + np.roll(field, -1, 1)
        )
        edges = np.zeros((4, max(rows, columns)))
        for block, edge in enumerate((mine[0], mine[-1], mine[:, 0], mine[:, -1])):
            edges[block, : edge.size] = edge
        up, down, left, right = comm.neighbor_exchange(edges, dims)
        above, below = np.vstack([up[:columns], mine[:-1]]), np.vstack([mine[1:], down[:columns]])
        before, after = (
            np.column_stack([left[:rows], mine[:, :-1]]),
            np.column_stack([mine[:, 1:], right[:rows]]),
        )
        mine = mine + 0.1 * (((above + below) + before) + after)
    part = field[at[0] * rows : (at[0] + 1) * rows, at[1] * columns : (at[1] + 1) * columns]
    assert mine.tobytes() == part.copy().tobytes()


def refused(comm: pc.Communicator) -> None:
    x = np.ones((4, 3))
    for bad, words in (
        (lambda: comm.neighbor_exchange(x, (3, 3)), ["(3, 3)", "4 ranks", "1 x 4, 2 x 2, 4 x 1"]),
        (lambda: comm.neighbor_exchange(x[:2], (5,)), ["these do: 4"]),
        (lambda: comm.neighbor_exchange(x, ()), ["these do: 4"]),
        (lambda: comm.neighbor_exchange(x, (-2, -2)), ["1 x 4"]),
        (lambda: comm.neighbor_exchange(x, (2.0, 2.0)), ["whole numbers"]),
        (lambda: comm.neighbor_exchange(x, 4), ["whole numbers"]),
        (lambda: comm.neighbor_exchange(x, (4,)), ["2 blocks", "(4, 3)"]),
        (lambda: comm.neighbor_exchange(1.0, (4,)), ["2 blocks"]),
        (lambda: comm.neighbor_exchange(x, (2, 2), periodic=[True]), ["periodic has 1"]),
        (lambda: comm.neighbor_exchange(x, (2, 2), out=np.ones((4, 2))), ["out has"]),
        (lambda: comm.neighbor_exchange(x, (2, 2), out=np.ones((4, 3), "f4")), ["float32"]),
    ):
        try:
            bad()  # type: ignore[no-untyped-call]
        except pc.InvalidArgumentError as error:
            assert all(word in str(error) for word in words), str(error)
        else:
            raise AssertionError(words)
    check(comm, (2, 2), (True, True), (2,), "int32", 1)


def mismatch(comm: pc.Communicator, theirs: dict[str, Any], mine: dict[str, Any]) -> None:
    chosen = {"dims": (2, 2), "periodic": True, "dtype": "f4", "width": 3} | (
        mine if comm.rank == 2 else theirs
    )
    x = np.ones((2 * len(chosen["dims"]), chosen["width"]), chosen["dtype"])
    out = np.full_like(x, 9)
    try:
        comm.neighbor_exchange(x, chosen["dims"], periodic=chosen["periodic"], out=out)
    except pc.MismatchError as error:
        assert "rank 2" in str(error) and (out == 9).all()
        return
    raise AssertionError("nothing was raised")
