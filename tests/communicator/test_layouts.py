"""Arrays of any shape and layout; every rank may have another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import calls
import numpy as np
import pytest
import ranks
import reference
from calls import LAYOUTS, Call
from ranks import Pools

import pycollectives as pc
from pycollectives.schedule import names


def each_its_own(comm: Any, made: list[Call]) -> list[str]:
    """Ranks give the same data in different layouts, and want the result in different ones."""
    turn = comm.rank
    ours = []
    for i, call in enumerate(made):
        layout, into = (
            LAYOUTS[(i + turn) % len(LAYOUTS)],
            ("new", *LAYOUTS)[(i + 2 * turn) % (len(LAYOUTS) + 1)],
        )
        ours.append(replace(call, layout=layout, into=into))
    return calls.check_all(comm, ours)


@pytest.mark.parametrize("size", [2, 4])
def test_other_layouts_on_other_ranks(pools: Pools, size: int) -> None:
    made = [
        Call(verb, dtype=dtype, shape=shape, root=i % size, seed=i)
        for verb in reference.VERBS
        for dtype in ("float32", "float64", "bfloat16")
        for i, shape in enumerate(((6,), (4, 3), (2, 3, 4), (5, 1, 2), (1, 1), (40, 50)))
        for _ in LAYOUTS
    ]
    calls.agree(made, pools(size).run(each_its_own, made))


@pytest.mark.parametrize("shape", [(0,), (1, 0, 2), (0, 3), (3, 0)])
@pytest.mark.parametrize("size", [1, 3])
def test_nothing_in_the_right_shape(size: int, shape: tuple[int, ...]) -> None:
    def fn(comm: Any) -> None:
        x = np.ones(shape, np.float32)
        last = size - 1
        for name in reference.algorithms("all_reduce", size):
            assert comm.all_reduce(x, algorithm=name).shape == shape
        for name in reference.algorithms("broadcast", size):
            assert comm.broadcast(x, root=last, algorithm=name).shape == shape
        for name in reference.algorithms("reduce", size):
            got = comm.reduce(x, root=last, algorithm=name)
            assert got is None if comm.rank < last else got.shape == shape
        for name in reference.algorithms("all_gather", size):
            assert comm.all_gather(x, algorithm=name).shape == (size, *shape)
        rows = np.ones((size * shape[0], *shape[1:]))
        for name in reference.algorithms("reduce_scatter", size):
            assert comm.reduce_scatter(rows, algorithm=name).shape == shape
        assert comm.all_reduce(x, out=x) is x and comm.plan("all_reduce", x, out=x)() is x
        assert comm.all_reduce(x.T).shape == shape[::-1]

    ranks.threads(size, fn)


def scalars(comm: Any) -> None:
    n, total = comm.size, sum(range(comm.size))
    x, out = np.array(comm.rank), np.array(-1)
    assert comm.all_reduce(x) == total and comm.all_reduce(x).shape == ()
    assert comm.all_reduce(x, out=out) is out and out == total
    assert comm.broadcast(x, root=n - 1).shape == () and comm.broadcast(x, root=n - 1) == n - 1
    assert comm.all_gather(x).tolist() == list(range(n))
    reduced = comm.reduce(x, "max", root=0)
    assert reduced is None or (reduced.shape == () and reduced == n - 1)
    assert comm.all_reduce(np.float64(0.5)) == 0.5 * n
    single = comm.reduce_scatter(np.arange(n), out=np.array(0))
    assert single.shape == () and single == comm.rank * n


def test_scalars(pools: Pools) -> None:
    pools(3).run(scalars)
    ranks.threads(1, scalars)


def unaligned(comm: Any) -> None:
    """Elements may lie at any byte."""
    for dtype in reference.DTYPES:
        size = np.dtype(dtype).itemsize
        rng = np.random.default_rng(4)
        data = [reference.values(dtype, (1001,), rng, exact=True) for _ in range(comm.size)]
        for shift in (1, 3):
            x = np.zeros(1001 * size + shift, np.uint8)[shift:].view(dtype)
            out = np.zeros(1001 * size + 7, np.uint8)[7:].view(dtype)
            x[:] = data[comm.rank]
            assert np.array_equal(
                comm.all_reduce(x, out=out), reference.fold("sum", data), equal_nan=dtype != "bool"
            )
            assert np.array_equal(comm.broadcast(x, root=1, out=out), data[1])
            assert np.array_equal(
                comm.all_reduce(x, out=x), reference.fold("sum", data), equal_nan=dtype != "bool"
            )


def test_unaligned_arrays(pools: Pools) -> None:
    pools(3).run(unaligned)


def kinds_of_arrays(comm: Any) -> None:
    n = comm.size
    matrix = np.asmatrix(np.arange(6.0).reshape(2, 3))
    assert (comm.all_reduce(matrix) == n * np.arange(6.0).reshape(2, 3)).all()
    record = np.zeros(5, [("a", "i4"), ("b", "f8")])
    record["b"] = comm.rank
    assert (comm.all_reduce(record["b"]) == sum(range(n))).all()
    assert (comm.broadcast(record, root=n - 1)["b"] == n - 1).all()
    comm.all_reduce(record["b"], "max", out=record["b"])
    assert (record["b"] == n - 1).all() and (record["a"] == 0).all()
    chars = np.array(["one", "seven"])
    assert comm.all_gather(chars).tolist() == [["one", "seven"]] * n
    from_bytes = np.frombuffer(bytes(range(16)), np.uint8)
    assert (comm.all_reduce(from_bytes, "bxor") == (from_bytes if n % 2 else 0)).all()
    assert comm.all_reduce(memoryview(from_bytes)).dtype == np.uint8


def test_kinds_of_arrays(pools: Pools) -> None:
    pools(3).run(kinds_of_arrays)


def blocks_at_home(comm: Any) -> None:
    """The own block of all_gather's output as its input, that of reduce_scatter's input as its output, for every layout
    that has one; also where the array is an item of a larger one."""
    n, r = comm.size, comm.rank
    for shape in ((n, 5), (n, 2, 3), (n * 4,)):
        whole = np.full((3, *shape), -1.0)
        out = whole[1]
        mine = out.reshape(n, -1)[r]
        mine[:] = r
        assert comm.all_gather(mine, out=out) is out
        assert (out.reshape(n, -1) == np.arange(n)[:, None]).all() and (whole[::2] == -1).all()
        x = whole[1]
        x.reshape(n, -1)[:] = np.arange(n)[:, None] + r
        block = x[r * (shape[0] // n) : (r + 1) * (shape[0] // n)]
        comm.reduce_scatter(x, out=block)
        assert (block == n * r + sum(range(n))).all() and (whole[::2] == -1).all()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_blocks_in_place(pools: Pools, size: int) -> None:
    pools(size).run(blocks_at_home)
    ranks.threads(size, blocks_at_home)


def untouched(comm: Any) -> None:
    """reduce: what is not the root's stays as it is, byte by byte, whatever its layout."""
    for root in range(comm.size):
        for name in reference.algorithms("reduce", comm.size):
            out = np.full((513, 2), -7, np.int32)
            x = np.arange(513, dtype=np.int32) + comm.rank
            got = comm.reduce(x, root=root, out=out[:, 1], algorithm=name)
            assert (out[:, 0] == -7).all()
            if comm.rank == root:
                assert got.base is out and (got == np.arange(513) * comm.size + sum(range(comm.size))).all()
            else:
                assert got is None and (out == -7).all() and (x == np.arange(513) + comm.rank).all()


def test_only_the_root_is_written(pools: Pools) -> None:
    pools(3).run(untouched)


def test_use_forces_an_algorithm_and_only_that() -> None:
    def fn(comm: Any) -> tuple[str, str]:
        x = np.ones(50)
        comm.all_reduce(x)
        with pc.use(all_reduce="ring"):
            assert (comm.all_reduce(x) == comm.size).all()
            forced = comm.explain("all_reduce", nbytes=400).chosen
            assert (comm.broadcast(x) == 1).all()
        return forced, comm.history()[-2]["call"]

    assert {forced for forced, _ in ranks.threads(3, fn)} == {"ring"}
    with pytest.raises(pc.InvalidArgumentError, match="did you mean 'ring'"), pc.use(all_reduce="rnig"):
        pass


def test_repeated_calls_keep_to_the_algorithm_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such calls take the fast way in from the second on."""
    monkeypatch.setenv("PYCOLLECTIVES_ALGORITHM", "all_reduce=halving_doubling")

    def fn(comm: Any) -> None:
        x, out = np.arange(50.0) + comm.rank, np.empty(50)
        total = comm.size * np.arange(50.0) + sum(range(comm.size))
        asked = ("ring", None, "one_shot", "".join(["ri", "ng"]), "two_shot", None)
        for turn in range(4 * len(asked)):
            name = asked[turn % len(asked)]
            assert (comm.all_reduce(x, out=out, algorithm=name) == total).all()
            assert comm.history()[-1]["algorithm"] == (name or "halving_doubling")
            with pc.use(all_reduce="recursive_doubling"):
                assert (comm.all_reduce(x, out=out) == total).all()
                assert comm.history()[-1]["algorithm"] == "recursive_doubling"
        for _ in range(2):
            with pytest.raises(pc.InvalidArgumentError, match="did you mean 'ring'"):
                comm.all_reduce(x, out=out, algorithm="rnig")

    ranks.threads(3, fn)


def test_barriers_by_name_do_not_stand_for_others() -> None:
    """The table of remembered calls has few places, so some of these names share that of a barrier without one."""

    def fn(comm: Any) -> None:
        comm.barrier()
        usual = comm.history()[-1]["algorithm"]
        other = next(name for name in names("barrier") if name not in (usual, "leaders"))
        copies = ["".join(list(other)) for _ in range(400)]  # told apart by identity
        for name in copies:
            comm.barrier(algorithm=name)
            assert comm.history()[-1]["algorithm"] == other
            comm.barrier()
            assert comm.history()[-1]["algorithm"] == usual

    ranks.threads(3, fn)
