"""Numbers: wrapping, rounding, NaN, averages, and that the same bits come out everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranks
import reference
from ranks import Pools

import pycollectives as pc


def every_algorithm(comm: Any, verb: str = "all_reduce") -> list[str]:
    return reference.algorithms(verb, comm.size)


def results(size: int, make: Callable[[Any, str], Any]) -> list[tuple[str, list[Any]]]:
    """What `make(comm, algorithm)` gives on each rank, by every algorithm of all_reduce."""
    by_rank = ranks.threads(size, lambda comm: [(name, make(comm, name)) for name in every_algorithm(comm)])
    return [(name, [mine[i][1] for mine in by_rank]) for i, (name, _) in enumerate(by_rank[0])]


def test_int8_wraps() -> None:
    for name, got in results(
        2, lambda c, a: c.all_reduce(np.full(9, 120 - 20 * c.rank, np.int8), algorithm=a)
    ):
        assert all((x == -36).all() for x in got), name


def test_a_sum_of_int8_in_int32_is_one_of_int32() -> None:
    """A wider `out` does not widen the sum in silence: the error says how to ask for it."""

    def make(comm: Any, algorithm: str) -> Any:
        x, out = np.full(9, 120 - 20 * comm.rank, np.int8), np.zeros(9, np.int32)
        with pytest.raises(
            pc.InvalidArgumentError, match=r"int32, .* has int8, as x has: pass x.astype\('int32'\)"
        ):
            comm.all_reduce(x, out=out, algorithm=algorithm)
        assert (out == 0).all()
        assert (comm.reduce_scatter(np.repeat(x, 2), accumulate=np.int32) == 220).all()
        assert (comm.scan(x, accumulate="int32") == (120 if comm.rank == 0 else 220)).all()
        with pytest.raises(pc.InvalidArgumentError, match="cannot hold"):
            comm.all_reduce(x, accumulate="uint8")
        with pytest.raises(pc.InvalidArgumentError, match="must be a dtype"):
            comm.all_reduce(x, accumulate="native")
        with pytest.raises(pc.InvalidArgumentError, match="same arrays each time"):
            comm.plan("all_reduce", x, accumulate="int32")
        later = comm.all_reduce(x, accumulate="int32", async_op=True).wait()
        assert later.dtype == np.int32 and (later == 220).all()
        return comm.all_reduce(x, out=out, accumulate="int32", algorithm=algorithm)

    for name, got in results(2, make):
        assert all(x.dtype == np.int32 and (x == 220).all() for x in got), name


def test_bool() -> None:
    rng = np.random.default_rng(1)
    data = rng.integers(0, 2, (3, 17)).astype(bool)

    def fn(comm: Any) -> None:
        mine = data[comm.rank]
        odd = (mine * np.uint8(255)).view(bool)  # true is any byte but 0
        for name in every_algorithm(comm):
            for x in (mine, odd):
                for ops, want in (
                    (("sum", "max", "bor", "lor"), data.any(0)),
                    (("prod", "min", "band", "land"), data.all(0)),
                    (("bxor", "lxor"), data.sum(0) % 2 == 1),
                ):
                    for op in ops:
                        got = comm.all_reduce(x, op, algorithm=name)
                        assert got.tobytes() == want.tobytes(), (name, op)  # the bytes 0 and 1, nothing else

    ranks.threads(3, fn)


def test_averages_do_not_overflow() -> None:
    for name, got in results(
        4, lambda c, a: c.all_reduce(np.full(11, 40000, np.float16), "avg", algorithm=a)
    ):
        assert all((x == 40000).all() for x in got), name


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (7,)])
def test_average_of_few_elements(shape: tuple[int, ...]) -> None:
    for name, got in results(3, lambda c, a: c.all_reduce(np.full(shape, float(c.rank)), "avg", algorithm=a)):
        assert all(x.shape == shape and (x == 1).all() for x in got), name


def test_average_of_integers_is_truncated() -> None:
    column = np.array([[1, 2, 2], [-1, -2, -2], [7, 7, 8], [-128, -1, 0]])
    for dtype in (np.int8, np.int32, np.int64):
        want = np.trunc(column.sum(1).astype(dtype) / 3).astype(dtype)  # of the wrapped sum
        for name, got in results(
            3, lambda c, a, dtype=dtype: c.all_reduce(column[:, c.rank].astype(dtype), "avg", algorithm=a)
        ):
            assert all((x == want).all() for x in got), (name, got)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_scaled_sum(dtype: str) -> None:
    for factor, want in ((0.5, 1.5), (3, 9)):
        make = lambda c, a: c.all_reduce(np.full(8, c.rank + 1, dtype), pc.scaled_sum(factor), algorithm=a)  # noqa: E731, B023
        for name, got in results(2, make):
            assert all((x.astype(float) == want).all() for x in got), name


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]
)
def test_nan_wins(dtype: str) -> None:
    """A NaN of any rank, at any place of the data."""
    for op in ("min", "max"):
        for where in range(4):

            def make(comm: Any, algorithm: str, where: int = where, op: str = op) -> Any:
                x = np.arange(67, dtype=np.float32)
                x[::3] = np.nan if comm.rank == where else x[::3]
                return comm.all_reduce(x.astype(dtype), op, algorithm=algorithm)

            for name, got in results(4, make):
                for x in got:
                    is_nan = np.isnan(x.astype(np.float32))
                    assert is_nan[::3].all() and not is_nan[1::3].any(), (name, op, where)


def test_xor() -> None:
    data = np.random.default_rng(2).integers(0, 256, (3, 257), dtype=np.uint8)
    for op in ("bxor", np.bitwise_xor, pc.ReduceOp.BXOR):
        for name, got in results(3, lambda c, a: c.all_reduce(data[c.rank], op, algorithm=a)):  # noqa: B023
            assert all((x == np.bitwise_xor.reduce(data)).all() for x in got), name


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_same_bits_on_all_ranks(dtype: str) -> None:
    cancelling = [1e8, 1.0, -1e8, 1.0]
    noise = np.random.default_rng(3).standard_normal((4, 1000)) * 10.0 ** np.arange(-4, 4).repeat(125)

    def make(comm: Any, algorithm: str) -> bytes:
        x = np.append(noise[comm.rank], cancelling[comm.rank] if dtype == "float32" else 1.0)
        return bytes(comm.all_reduce(x.astype(dtype), algorithm=algorithm).tobytes())

    for name, got in results(4, make):
        assert len(set(got)) == 1, name


@pytest.mark.parametrize("dtype", reference.SMALL_FLOATS)
@pytest.mark.parametrize("size", [2, 5, 8])
def test_small_floats_are_rounded_once(size: int, dtype: str) -> None:
    """Sums that would go wrong if they were rounded on the way: one big number, then many that are half a unit each."""
    half = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}[dtype]
    want = np.array(1 + half * (size - 1), np.float32).astype(dtype)
    for big in range(size):
        for name, got in results(
            size,
            lambda c, a: c.all_reduce(np.full(130, 1 if c.rank == big else half, dtype), algorithm=a),  # noqa: B023
        ):
            assert all((x == want).all() for x in got), (name, big, got[0][:3], want)


# -- deterministic=True ----------------------------------------------------------------------------------------


def folded(xs: Any) -> Any:
    return reference.fold("sum", list(xs))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "complex64"])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_left_fold_for_every_size(size: int, dtype: str) -> None:
    """Bits do not depend on what else is in the array, on cuts, or on the algorithm."""
    rng = np.random.default_rng(size)
    data = [reference.values(dtype, (20_011,), rng, exact=False) for _ in range(size)]
    want = folded(data)

    def fn(comm: Any) -> None:
        x = data[comm.rank]
        for n in (0, 1, 2, 7, 64, 1000, 4097, 20_011):
            got = comm.all_reduce(x[:n], deterministic=True)
            assert got.tobytes() == want[:n].tobytes(), n
            reduced = comm.reduce(x[:n], root=size - 1, deterministic=True)
            assert reduced is None or reduced.tobytes() == want[:n].tobytes()
        parts = [comm.all_reduce(x[i : i + 1000], deterministic=True) for i in range(0, 10_000, 1000)]
        assert np.concatenate(parts).tobytes() == comm.all_reduce(x[:10_000], deterministic=True).tobytes()
        scattered = comm.reduce_scatter(x[: 2000 * size], deterministic=True)
        assert scattered.tobytes() == want[2000 * comm.rank :][:2000].tobytes()
        for name in every_algorithm(comm):
            try:
                got = comm.all_reduce(x, algorithm=name, deterministic=True)
            except pc.UnsupportedError as error:
                assert name in str(error) and "these can: " in str(error)
            else:
                assert got.tobytes() == want.tobytes(), name

    ranks.threads(size, fn)


def many_cuts(comm: Any, rows: int, want: bytes) -> bool:
    rng = np.random.default_rng(9)
    data = [reference.values("bfloat16", (2048, 64), rng, exact=False) for _ in range(comm.size)]
    return bytes(comm.all_reduce(data[comm.rank][:rows], deterministic=True).tobytes()) == want


@pytest.mark.parametrize("segment", [4096, 20_000, 1 << 20])
def test_the_left_fold_for_every_segment_size(fresh: Any, segment: int) -> None:
    rng = np.random.default_rng(9)
    want = folded([reference.values("bfloat16", (2048, 64), rng, exact=False) for _ in range(3)])
    job = fresh(3, {"PYCOLLECTIVES_SEGMENT_BYTES": str(segment)})
    for rows in (1, 1664, 2048):
        assert all(job.run(many_cuts, rows, want[:rows].tobytes()))


def operators_by_any_name(comm: Any) -> None:
    x = np.full(4, comm.rank + 2)
    for op, name, ufunc in (
        (pc.ReduceOp.SUM, "sum", np.add),
        (pc.ReduceOp.PROD, "prod", np.multiply),
        (pc.ReduceOp.MIN, "min", np.minimum),
        (pc.ReduceOp.BAND, "band", np.bitwise_and),
        (pc.ReduceOp.LXOR, "lxor", np.logical_xor),
    ):
        want = ufunc.reduce([np.full(4, r + 2) for r in range(comm.size)]).astype(x.dtype)
        assert all((comm.all_reduce(x, way) == want).all() for way in (op, name, ufunc))


def test_operators_by_any_name(pools: Pools) -> None:
    pools(3).run(operators_by_any_name)
