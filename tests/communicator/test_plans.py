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


@pytest.mark.parametrize("fn", [repeated, strided, every_verb])
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
    with pytest.raises(pc.InvalidArgumentError):
        comm.plan("all_reduce")
    with pytest.raises(pc.InvalidArgumentError, match="no algorithm 'rnig'; did you mean 'ring'"):
        comm.plan("all_reduce", x, algorithm="rnig")
    sub = comm.split(0)
    late = sub.plan("all_reduce", x)
    sub.close()
    with pytest.raises(pc.AbortedError):
        late()
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
