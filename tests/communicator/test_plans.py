"""Persistent calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import ranks
from ranks import Pools

import pycollectives as pc


def repeated(comm: Any) -> None:
    x = np.zeros(1000, np.float32)
    again = comm.plan("all_reduce", x, out=x)
    for i in range(200):
        x[:] = comm.rank + i
        assert again() is x
        assert (x == sum(range(comm.size)) + i * comm.size).all()
    fresh = comm.plan("all_reduce", x, "max")
    x[:] = comm.rank
    first = fresh()
    x[:] = comm.rank + 5
    assert fresh() is first and (first == comm.size + 4).all()
    assert "all_reduce" in repr(again) and "1000" in repr(again)


def strided(comm: Any) -> None:
    """Strided arrays are read and written anew each time."""
    m, out = np.zeros((40, 3), np.float64), np.full((40, 2), -1.0)
    again = comm.plan("all_reduce", m[:, 1], "avg", out=out[::-1, 0])
    for i in range(20):
        m[:, 1] = np.arange(40) + comm.rank + i
        result = again()
        assert (result == np.arange(40) + (comm.size - 1) / 2 + i).all() and (out[:, 1] == -1).all()
        assert (out[::-1, 0] == result).all()
    z = np.zeros((5, 7), np.complex64)
    gather = comm.plan("all_gather", z.T)
    for i in range(5):
        z[...] = np.arange(35).reshape(5, 7) + 1j * (comm.rank + i)
        got = gather()
        for r in range(comm.size):
            assert (got[r].real == np.arange(35).reshape(5, 7).T).all() and (got[r].imag == r + i).all()


def every_verb(comm: Any) -> None:
    x = np.arange(comm.size * 3, dtype=np.int32) + comm.rank
    plans = {
        "reduce": comm.plan("reduce", x, root=comm.size - 1),
        "reduce_scatter": comm.plan("reduce_scatter", x),
        "broadcast": comm.plan("broadcast", x, root=comm.size - 1),
        "all_gather": comm.plan("all_gather", x),
        "barrier": comm.plan("barrier"),
    }
    for _ in range(10):
        total = np.arange(x.size) * comm.size + sum(range(comm.size))
        reduced = plans["reduce"]()
        assert reduced is None if comm.rank < comm.size - 1 else (reduced == total).all()
        assert (plans["reduce_scatter"]() == total[comm.rank * 3 :][:3]).all()
        assert (plans["broadcast"]() == np.arange(x.size) + comm.size - 1).all()
        assert (plans["all_gather"]() == np.arange(x.size) + np.arange(comm.size)[:, None]).all()
        assert plans["barrier"]() is None


def uneven(comm: Any) -> None:
    """Counts are told or exchanged when the plan is made; the data is read each time."""
    n, me = comm.size, comm.rank
    counts = [(2 * r + 1) % 3 for r in range(n)]
    mine, whole = np.zeros((counts[me], 2)), np.zeros((sum(counts), 2))
    block = slice(sum(counts[:me]), sum(counts[: me + 1]))
    for told in (counts, None):
        plans = {
            "all_gatherv": comm.plan("all_gatherv", mine, told),
            "gatherv": comm.plan("gatherv", mine, told, root=n - 1),
            "scatterv": comm.plan("scatterv", whole, counts if told or me == 0 else None),
            "reduce_scatterv": comm.plan("reduce_scatterv", whole, counts, "max"),
            "all_to_allv": comm.plan("all_to_allv", whole, counts, told and [counts[me]] * n),
        }
        for i in range(3):
            values = np.arange(whole.size).reshape(whole.shape) + 100.0 * i
            whole[...], mine[...] = values + me, values[block]
            assert (plans["all_gatherv"]() == values).all()
            got = plans["gatherv"]()
            assert got is None if me < n - 1 else (got == values).all()
            assert (plans["scatterv"]() == values[block]).all()
            assert (plans["reduce_scatterv"]() == values[block] + n - 1).all()
            assert (plans["all_to_allv"]() == np.concatenate([values[block] + r for r in range(n)])).all()


def neighbours(comm: Any) -> None:
    """A halo exchange, and messages around the ring."""
    n, me = comm.size, comm.rank
    right, left = (me + 1) % n, (me - 1) % n
    halo, border = np.zeros((2, 3)), np.full((2, 3), -7.0)
    ring = comm.plan("neighbor_exchange", halo, (n,))
    line = comm.plan("neighbor_exchange", halo[:, ::-1], (n,), periodic=False, out=border)
    x, y = np.zeros(5), np.zeros(5)
    both = comm.plan("sendrecv", x, right, left, out=y, tag=3)
    for i in range(3):
        halo[...] = [[10 * me + i] * 3, [10 * me + i + 0.5] * 3]
        got = ring()
        assert (got[0] == 10 * left + i + 0.5).all() and (got[1] == 10 * right + i).all()
        assert line() is border
        assert (border[0] == (10 * left + i + 0.5 if me else -7)).all()
        assert (border[1] == (10 * right + i if right else -7)).all()
        x[:] = me + i
        assert both() is y and (y == left + i).all()
    assert "neighbor_exchange" in repr(ring) and f"dest={right}" in repr(both)


@pytest.mark.parametrize("fn", [repeated, strided, every_verb, uneven, neighbours])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_results(pools: Pools, fn: Any, size: int) -> None:
    pools(size).run(fn)
    ranks.threads(size, fn)


def its_errors(comm: Any) -> None:
    x = np.ones(10)
    again = comm.plan("all_reduce", x, out=x)
    again()
    with pytest.raises(TypeError):
        again(x)
    with pytest.raises(pc.InvalidArgumentError, match="did you mean 'all_reduce'"):
        comm.plan("all_redcue", x)
    with pytest.raises(pc.InvalidArgumentError):
        comm.plan("all_reduce", x, out=np.ones(11))
    for verb, options, words in (
        ("all_reduce", {}, "missing a required argument: 'x'"),
        ("all_gather", {"x": x, "op": "sum"}, "unexpected keyword argument 'op'"),
        ("broadcast", {"x": x, "async_op": True}, "unexpected keyword argument 'async_op'"),
        ("all_gather_object", {"value": 1}, "unexpected keyword argument 'value'"),
        ("reduce_object", {"root": 2}, "root 2 is not in"),
        ("reduce_object", {"op": "smu"}, "did you mean 'sum'"),
        ("send", {"x": x}, "missing a required argument: 'dest'"),
        ("send", {"x": x, "dest": 2}, "dest 2 is not in"),
        ("recv", {"source": 2}, "source 2 is not in"),
        ("recv_object", {"tag": -2}, "tag -2 is not in"),
        ("sendrecv", {"x": x, "dest": 0, "source": 0, "recv_tag": 2**31}, "tag 2147483648 is not in"),
        ("neighbor_exchange", {"x": x, "dims": (3,)}, "do not make a grid"),
        ("all_to_allv", {"x": x}, "missing a required argument: 'send_counts'"),
        ("split", {"color": 0}, "unknown collective 'split'"),
        (7, {}, "unknown collective 7"),
    ):
        with pytest.raises(pc.InvalidArgumentError, match=words):
            comm.plan(verb, **options)
    with pytest.raises(pc.InvalidArgumentError, match="no algorithm 'rnig'; did you mean 'ring'"):
        comm.plan("all_reduce", x, algorithm="rnig")
    sub = comm.split(0)
    late = sub.plan("all_reduce", x)
    objects, ring = sub.plan("all_gather_object"), sub.plan("neighbor_exchange", x[:2], (2,))
    sub.close()
    for call in (late, lambda: objects(1), ring, lambda: sub.plan("barrier")):
        with pytest.raises(pc.AbortedError):
            call()
    comm.barrier()


def test_errors(pools: Pools) -> None:
    pools(2).run(its_errors)


def arrays_live_on(comm: Any) -> None:
    """A plan keeps its arrays."""
    plans = [comm.plan("all_reduce", np.full(50_000, float(i)), out=np.zeros(50_000)) for i in range(5)]
    rubbish = [np.full(50_000, np.nan) for _ in range(20)]
    for i, again in enumerate(plans):
        assert (again() == i * comm.size).all()
    del rubbish


def test_a_plan_keeps_its_arrays(pools: Pools) -> None:
    pools(2).run(arrays_live_on)
