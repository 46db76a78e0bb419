"""All verbs that reduce treat operators, `deterministic`, empty data and a single rank alike, in every way of calling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from ranks import threads
from reference import Array

import pycollectives as pc

VERBS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatterv", "scan", "exscan")
WAYS = ("call", "async", "plan", "out", "group")
LAST = pc.op(lambda a, b: b)  # associative, does not commute: the highest rank's value
OPS: dict[str, Any] = {
    "sum": "sum",
    "max": "max",
    "avg": "avg",
    "scaled_sum": pc.scaled_sum(reference.FACTOR),
    "last": LAST,
}


def counts_of(size: int, rows: int) -> list[int]:
    """Blocks of a reduce_scatterv, some empty."""
    counts = [0] * size
    counts[0], counts[-1] = rows // 3, rows - rows // 3 if size > 1 else rows
    return counts


def wanted(verb: str, op: str, xs: list[Array], rank: int) -> Array | None:
    """What `rank` must get, by the left fold; the root is the last rank."""
    size = len(xs)
    if verb == "reduce" and rank < size - 1:
        return None
    mine = xs[: rank + (verb == "scan")] if verb in ("scan", "exscan") else xs
    if not mine:
        return None
    whole = mine[-1] if op == "last" else reference.fold(op, mine)
    if verb == "reduce_scatter":
        return np.array_split(whole, size)[rank]
    if verb == "reduce_scatterv":
        counts = counts_of(size, len(whole))
        return whole[sum(counts[:rank]) : sum(counts[: rank + 1])]
    return whole


def made(comm: Any, verb: str, way: str, x: Array, want: Array | None, **options: Any) -> Any:
    method = getattr(comm, verb)
    if way == "plan":
        again = comm.plan(verb, x, **options)
        again()
        return again()
    if way == "async":
        return method(x, async_op=True, **options).wait()
    if way == "group":
        with comm.group():
            work = method(x, **options)
        return work.wait()
    if way == "out" and want is not None:
        out = np.full_like(want, 1)
        assert method(x, out=out, **options) is out
        return out
    return method(x, **options)


def alike(comm: Any, rows: int, dtype: str) -> None:
    size, rank = comm.size, comm.rank
    rng = np.random.default_rng([rows, size])
    rows -= rows % size  # for reduce_scatter
    exact = [reference.values(dtype, (rows, 2), rng, exact=True) for _ in range(size)]
    rough = [reference.values(dtype, (rows, 2), rng, exact=False) for _ in range(size)]
    turn = 0
    for verb in VERBS:
        for op in OPS:
            for deterministic in (False, True):
                if deterministic and op == "last":  # a fold whose order the operator does not show
                    continue
                xs = rough if deterministic else exact
                want = wanted(verb, op, xs, rank)
                options: dict[str, Any] = {"op": OPS[op], "deterministic": deterministic}
                options |= {"root": size - 1} if verb == "reduce" else {}
                options |= {"counts": counts_of(size, rows)} if verb == "reduce_scatterv" else {}
                way = WAYS[turn % len(WAYS)]
                turn += 1
                what = verb, op, deterministic, way, size, rank, rows, dtype
                got = made(comm, verb, way, xs[rank], want, **options)
                assert (got is None) == (want is None), what
                if want is not None:
                    assert got.shape == want.shape and got.dtype == want.dtype, what
                    assert reference.same(got, want) or (
                        not deterministic and np.array_equal(got, want)  # the sign of a zero
                    ), (what, got, want)


@pytest.mark.parametrize("dtype", ["int32", "float16", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_alike(n: int, dtype: str) -> None:
    for rows in (0, n, 7 * n, 60 * n):
        threads(n, alike, rows, dtype)


def test_deterministic_is_refused_by_name() -> None:
    def body(comm: Any) -> None:
        for verb, name in (("scan", "linear"), ("exscan", "linear"), ("reduce", "flat|chain|")):
            other = "recursive_doubling" if verb != "reduce" else "binomial"
            with pytest.raises(pc.UnsupportedError, match=f"left fold.*({name})"):
                getattr(comm, verb)(np.ones(3), algorithm=other, deterministic=True)

    threads(5, body)
