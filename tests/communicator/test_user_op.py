"""`pc.op(f)`: operators written in Python, on every verb that reduces, by every algorithm that can."""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 and float8 as NumPy dtypes
import numpy as np
import pytest
from ranks import Pools, threads

import pycollectives as pc

pytest.importorskip("numba")

Array = Any
VERBS = ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
PAIR = np.dtype([("value", "f4"), ("place", "i8")])  # 12 bytes, and not aligned


def last_set(a: Any, b: Any) -> Any:  # associative, not commutative, for every dtype
    return b if b != 0 else a


def joined(a: Any, b: Any) -> Any:  # (1 + a)(1 + b) - 1: associative and commutative
    return a + b + a * b


def affine(a: Any, b: Any) -> Any:  # not even associative: only a left fold gives the right result
    return a * np.float32(0.5) + b


def matrix_product(a: Any, b: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = a[i, 0] * b[0, j]
            for k in range(1, a.shape[1]):
                total += a[i, k] * b[k, j]
            out[i, j] = total


def larger(a: Any, b: Any) -> Any:
    return a if a.value >= b.value else b


def sum_and_last(a: Any, b: Any, out: Any) -> None:
    out.value = a.value + b.value
    out.place = b.place


LAST = pc.op(last_set)
JOINED = pc.op(joined, commutative=True)
AFFINE = pc.op(affine)
MATRIX = pc.op(matrix_product, shape=(2, 2))
MATRIX3 = pc.op(matrix_product, shape=(3, 3))
LARGER = pc.op(larger)
SUM_AND_LAST = pc.op(sum_and_last)


def fold(f: Any, xs: list[Array]) -> Array:
    """The left fold of elementwise `f`, in the dtype's own arithmetic or in float32, rounded once."""
    dtype = xs[0].dtype
    if dtype.kind in "iubm" or dtype.name in ("float32", "float64", "complex64", "complex128"):
        wide = dtype
    else:
        wide = np.dtype("float32")
    with np.errstate(all="ignore"):
        columns = zip(*(x.ravel().astype(wide) for x in xs), strict=True)
        flat = [functools.reduce(lambda a, b: wide.type(f(a, b)), column) for column in columns]
    return np.array(flat, wide).reshape(xs[0].shape).astype(dtype)


def data(dtype: str, shape: tuple[int, ...], rank: int, low: int = 0) -> Array:
    """Small whole numbers, many of them 0; they depend on rank and index."""
    drawn = np.random.default_rng([7, rank]).integers(low, 3, shape)
    return drawn.astype(dtype)


def same(a: Array, b: Array) -> bool:
    """Equal bits, but for the padding of records."""
    equal = a.tobytes() == b.tobytes() if a.dtype.names is None else bool((a == b).all())
    return a.dtype == b.dtype and a.shape == b.shape and equal


def parts(verb: str, xs: list[Array], size: int, rank: int) -> list[Array] | None:
    """What the result of a rank is the fold of; None: it has no result."""
    if verb == "reduce_scatter":
        return [x.reshape(size, -1, *x.shape[1:])[rank] for x in xs]
    if verb == "scan":
        return xs[: rank + 1]
    if verb == "exscan":
        return xs[:rank] or None
    return xs


def algorithms(comm: Any, verb: str, x: Array, op: Any, **options: Any) -> list[str]:
    """Those that accept the call; the others must refuse it by name."""
    found = []
    for name in [known.name for known in comm.algorithms(verb)]:
        try:
            comm.plan(verb, x, op, algorithm=name, **options)
            found.append(name)
        except pc.UnsupportedError as error:
            assert repr(name) in str(error) and "these can: " in str(error), error
    return found


def every_way(comm: Any, op: Any, xs: list[Array], want: Any) -> set[tuple[str, str]]:
    """All verbs by all algorithms, into new memory and in place, at every root; returns those that ran."""
    ran = set()
    mine = xs[comm.rank]
    for verb in VERBS:
        for root in range(comm.size) if verb == "reduce" else (None,):
            place = {} if root is None else {"root": root}
            inputs = parts(verb, xs, comm.size, comm.rank)
            expected = None if inputs is None or root not in (None, comm.rank) else want(inputs)
            for name in algorithms(comm, verb, mine, op, **place):
                ran.add((verb, name))
                got = getattr(comm, verb)(mine.copy(), op, algorithm=name, **place)
                where = f"{verb} by {name} on {comm.size} ranks, rank {comm.rank}, {mine.dtype}{mine.shape}"
                if expected is None:
                    assert got is None, where
                    continue
                assert same(got, expected), f"{where}: {got}, not {expected}"
            for name in algorithms(comm, verb, mine, op, **place) if verb != "reduce_scatter" else ():
                x = mine.copy()
                getattr(comm, verb)(x, op, algorithm=name, out=x, **place)
                kept = mine if expected is None else expected
                assert same(x, kept), f"{verb} by {name} in place, rank {comm.rank}"
    return ran


# -- elements ------------------------------------------------------------------------------------------------


def _dtype_on_all(comm: Any, dtype: str, count: int) -> None:
    for f, op in ((last_set, LAST), (joined, JOINED)) if dtype != "bool" else ((last_set, LAST),):
        xs = [data(dtype, (comm.size * count,), rank) for rank in range(comm.size)]
        every_way(comm, op, xs, functools.partial(fold, f))


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS, "complex64", "complex128"])
def test_dtypes(dtype: str) -> None:
    threads(3, _dtype_on_all, dtype, 37)


@pytest.mark.parametrize("n", [1, 2, 4, 5])
@pytest.mark.parametrize("count", [0, 1, 333])
def test_counts(n: int, count: int) -> None:
    threads(n, _dtype_on_all, "int32", count)


def _left_fold(comm: Any, dtype: str) -> None:
    rng = np.random.default_rng(1)
    xs = [rng.standard_normal(5000).astype(dtype) for _ in range(comm.size)]
    want = fold(affine, xs)
    whole = comm.all_reduce(xs[comm.rank], AFFINE, deterministic=True)
    assert whole.tobytes() == want.tobytes()
    prefix = comm.all_reduce(xs[comm.rank][:777], AFFINE, deterministic=True)
    assert prefix.tobytes() == want[:777].tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [2, 5])
def test_deterministic_is_the_left_fold_rounded_once(n: int, dtype: str) -> None:
    threads(n, _left_fold, dtype)


# -- blocks and records --------------------------------------------------------------------------------------


def _matrices(comm: Any, op: Any, dtype: str, counts: list[int]) -> set[tuple[str, str]]:
    ran: set[tuple[str, str]] = set()
    for count in counts:
        shape = (comm.size * count, *op.shape)
        xs = [data(dtype, shape, rank, low=-2) for rank in range(comm.size)]
        ran |= every_way(comm, op, xs, functools.partial(functools.reduce, np.matmul))
    return ran


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("op", "dtype"), [(MATRIX, "int64"), (MATRIX3, "int32")], ids=["2x2", "3x3"])
def test_matrices_in_rank_order(n: int, op: Any, dtype: str) -> None:
    ran = threads(n, _matrices, op, dtype, [0, 1, 5, 101])[0]
    assert {("all_reduce", "one_shot"), ("all_reduce", "two_shot"), ("reduce_scatter", "direct")} <= ran


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize(("op", "dtype"), [(MATRIX, "float16"), (MATRIX3, "uint8")], ids=["2x2", "3x3"])
def test_matrices_in_many_slices(n: int, op: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVES_SEGMENT_BYTES", "4096")
    monkeypatch.setenv("PYCOLLECTIVES_POOL_BYTES", "262144")

    def check(comm: Any) -> None:
        count = 6007
        xs = [data(dtype, (comm.size * count, *op.shape), rank, low=0) for rank in range(comm.size)]
        if dtype == "float16":  # products of such matrices stay exact
            xs = [np.tril(np.minimum(x, 1)).astype(dtype) for x in xs]
        every_way(
            comm,
            op,
            xs,
            lambda ys: functools.reduce(
                np.matmul, [y.astype("f4" if y.dtype.kind == "f" else y.dtype) for y in ys]
            ).astype(dtype),
        )

    threads(n, check)


def test_large_arrays() -> None:
    def check(comm: Any) -> None:
        m = np.random.default_rng(comm.rank).integers(-2, 3, (120_001, 2, 2))
        want = functools.reduce(np.matmul, comm.all_gather(m))
        for name in algorithms(comm, "all_reduce", m, MATRIX):
            x = m.copy()
            assert np.array_equal(comm.all_reduce(x, MATRIX, algorithm=name, out=x), want)
        y = np.random.default_rng(comm.rank).integers(-2, 3, 1_000_003)
        want = functools.reduce(joined, comm.all_gather(y))
        for name in algorithms(comm, "all_reduce", y, JOINED):
            assert np.array_equal(comm.all_reduce(y, JOINED, algorithm=name), want)

    threads(3, check)


def test_large_blocks() -> None:
    big = pc.op(matrix_product, shape=(60, 60))  # 28,800 bytes

    def check(comm: Any) -> None:
        x = np.random.default_rng(comm.rank).integers(-2, 3, (12, 60, 60))
        assert np.array_equal(comm.all_reduce(x, big), functools.reduce(np.matmul, comm.all_gather(x)))

    threads(3, check)
    huge = pc.op(matrix_product, shape=(2000, 2000))
    with pytest.raises(pc.UnsupportedError, match="items of 32000000 bytes"):
        threads(2, lambda comm: comm.all_reduce(np.ones((1, 2000, 2000)), huge))


def _records(comm: Any, dtype: Any) -> None:
    xs = []
    for rank in range(comm.size):
        x = np.zeros(comm.size * 41, dtype)
        x["value"] = np.random.default_rng(rank).integers(0, 9, x.size)
        x["place"] = np.arange(x.size) + 1000 * rank
        xs.append(x)

    def largest(ys: list[Array]) -> Array:
        which = np.argmax([y["value"] for y in ys], axis=0)
        return np.array(ys)[which, np.arange(ys[0].size)]

    def summed(ys: list[Array]) -> Array:
        result = ys[-1].copy()
        result["value"] = sum(y["value"] for y in ys)
        return result

    every_way(comm, LARGER, xs, largest)
    every_way(comm, SUM_AND_LAST, xs, summed)


@pytest.mark.parametrize("dtype", [PAIR, np.dtype(PAIR.descr, align=True)], ids=["packed", "aligned"])
def test_records(dtype: Any) -> None:
    threads(4, _records, dtype)


def test_memory_that_is_not_aligned() -> None:
    def check(comm: Any) -> None:
        raw = np.zeros(8 * 3001 + 1, np.uint8)
        x, out = raw[1:].view("f8"), np.zeros_like(raw)[1:].view("f8")
        x[:] = np.arange(3001) + comm.rank
        want = functools.reduce(affine, comm.all_gather(x))
        comm.all_reduce(x, AFFINE, out=out, deterministic=True)
        assert not x.flags.aligned and np.array_equal(out, want)
        assert np.array_equal(comm.all_reduce(x, AFFINE, out=x, deterministic=True), want)

    threads(3, check)


def test_strided_and_other_dtypes() -> None:
    latest = pc.op(lambda a, b: max(a, b), commutative=True)

    def check(comm: Any) -> None:
        x = data("int32", (50, 6), comm.rank)
        want = fold(last_set, list(comm.all_gather(x)))
        assert np.array_equal(comm.all_reduce(np.asfortranarray(x), LAST), want)
        out = np.zeros((50, 12), "int32")[:, ::2]
        assert comm.all_reduce(x, LAST, out=out) is out and np.array_equal(out, want)
        days = np.arange(9).astype("datetime64[D]") + comm.rank
        assert np.array_equal(comm.all_reduce(days, latest), days - comm.rank + comm.size - 1)
        assert comm.all_reduce(np.array(comm.rank + 1), LAST) == comm.size  # 0-d

    threads(3, check)


# -- ways to call --------------------------------------------------------------------------------------------


def test_the_code_lives_as_long_as_a_call_may_run() -> None:
    def check(comm: Any) -> None:
        x = np.full(1000, comm.rank + 1.0)
        again = comm.plan("all_reduce", x, pc.op(lambda a, b: a * b, commutative=True))
        works = [
            comm.all_reduce(x, pc.op(lambda a, b: a + b, commutative=True), async_op=True) for _ in range(2)
        ]
        gc.collect()
        assert all((work.wait() == sum(range(1, comm.size + 1))).all() for work in works)
        comm._calls._kept.clear()
        gc.collect()
        assert (again() == np.prod(np.arange(1.0, comm.size + 1))).all()

    threads(2, check)


def test_repeated_calls_check_the_shape_every_time() -> None:
    def check(comm: Any) -> None:
        m = np.stack([np.eye(2)] * 4)
        for _ in range(3):
            assert np.array_equal(comm.all_reduce(m, MATRIX), m)
            with pytest.raises(
                pc.InvalidArgumentError, match=r"op\(matrix_product\) combines blocks of shape \(2, 2\)"
            ):
                comm.all_reduce(m.reshape(8, 2, 1), MATRIX)
            assert comm.all_reduce(np.arange(3), LAST).tolist() == [0, 1, 2]
            assert comm.all_reduce(np.arange(3.0), op=LAST).tolist() == [0, 1, 2]

    threads(2, check)


def test_groups_and_history() -> None:
    def check(comm: Any) -> None:
        m = np.random.default_rng(comm.rank).integers(-3, 4, (4, 2, 2))
        with comm.group():
            works = [comm.all_reduce(m, MATRIX), comm.reduce_scatter(m, MATRIX), comm.all_reduce(m, LAST)]
        product = functools.reduce(np.matmul, comm.all_gather(m))
        assert np.array_equal(works[0].wait(), product)
        assert np.array_equal(works[1].wait(), product[2 * comm.rank : 2 * comm.rank + 2])
        assert np.array_equal(works[2].wait(), fold(last_set, list(comm.all_gather(m))))
        assert any("op(matrix_product)" in entry["call"] for entry in comm.history())

    threads(2, check)


def test_uneven_blocks() -> None:
    def check(comm: Any) -> None:
        counts = [3, 0, 2]
        m = np.random.default_rng(comm.rank).integers(-3, 4, (5, 2, 2))
        first = sum(counts[: comm.rank])
        want = functools.reduce(np.matmul, comm.all_gather(m))[first : first + counts[comm.rank]]
        assert np.array_equal(comm.reduce_scatterv(m, counts, MATRIX), want)
        with pytest.raises(pc.InvalidArgumentError, match="cannot be cut"):
            comm.reduce_scatterv(m[0], [1, 1, 0], MATRIX)

    threads(3, check)


def test_a_function_is_still_one() -> None:
    @pc.op
    def twice(a: Any, b: Any) -> Any:
        return a + b + b

    assert twice(1, 2) == 5 and twice.name == "op(twice)" and not twice.commutative


def test_functions_that_numba_has_compiled() -> None:
    import numba

    helper = numba.njit(lambda a: a * 2)
    op = pc.op(numba.njit(lambda a, b: a + helper(b)))
    results = threads(2, lambda comm: comm.all_reduce(np.full(3, comm.rank + 1), op, deterministic=True))
    assert results[0].tolist() == results[1].tolist() == [5, 5, 5]


# -- refusals ------------------------------------------------------------------------------------------------


def raised(n: int, call: Any) -> str:
    """The text of the error that `call(comm)` raises on every rank."""

    def check(comm: Any) -> str:
        with pytest.raises(pc.CollectiveError) as caught:
            call(comm)
        return f"{type(caught.value).__name__}: {caught.value}"

    return threads(n, check)[0]


def test_algorithms_that_cannot_are_refused_by_name() -> None:
    text = raised(3, lambda comm: comm.all_reduce(np.ones((4, 2, 2)), MATRIX, algorithm="ring"))
    assert text.startswith("UnsupportedError: all_reduce by 'ring'") and "does not commute" in text
    assert "one_shot" in text and "two_shot" in text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: pc.op(len), "takes a Python function, not <built-in function len>"),
        (lambda: pc.op(np.add), "takes a Python function"),
        (lambda: pc.op(lambda a: a), r"\(a\) must have the form f\(a, b\)"),
        (lambda: pc.op(lambda a, *, b: a), "must have the form"),
        (lambda: pc.op(joined, shape=(2,)), r"joined\(a.* must have the form f\(a, b, out\)$"),
        (lambda: pc.op(matrix_product, shape=(2, 0)), "may be shorter than 1"),
        (lambda: pc.op(matrix_product, shape=("x",)), "lengths of a block"),
    ],
)
def test_bad_operators(make: Any, text: str) -> None:
    with pytest.raises(pc.InvalidArgumentError, match=text):
        make()


def test_functions_must_be_wrapped() -> None:
    assert "pc.op(function)" in raised(1, lambda comm: comm.all_reduce(np.ones(3), joined))


def test_what_numba_cannot_compile() -> None:
    text = raised(2, lambda comm: comm.all_reduce(np.ones(3), pc.op(lambda a, b: a.missing)))
    assert text.startswith("UnsupportedError: Numba cannot compile op(<lambda>) for float64: ")
    assert text.endswith(": Unknown attribute 'missing' of type float64")
    text = raised(2, lambda comm: comm.all_reduce(np.ones(3, "c8"), pc.op(lambda a, b: max(a, b))))
    assert text.startswith("UnsupportedError: Numba cannot compile op(<lambda>) for complex64: ")
    text = raised(2, lambda comm: comm.all_reduce(np.ones(3), pc.op(lambda a, b: a @ b)))
    assert "matmul(float64, float64)" in text and len(text) < 250


def test_dtypes_that_cannot_be_combined() -> None:
    assert "op(last_set) is not defined for <U3" in raised(
        1, lambda comm: comm.all_reduce(np.array(["abc"]), LAST)
    )
    assert "needs shape=" in raised(1, lambda comm: comm.all_reduce(np.ones(3), SUM_AND_LAST))


def test_blocks_are_not_cut() -> None:
    for shape in ((4,), (2, 2, 3), (2,), ()):
        text = raised(2, lambda comm, shape=shape: comm.all_reduce(np.ones(shape), MATRIX))
        assert text.startswith("InvalidArgumentError: op(matrix_product) combines blocks of shape (2, 2)")
    assert "cannot be cut" in raised(2, lambda comm: comm.reduce_scatter(np.ones((2, 2)), MATRIX))
    assert "cannot be cut" in raised(
        2, lambda comm: comm.reduce_scatter(np.ones((3, 2, 2)), MATRIX, out=np.ones(6))
    )


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    text = raised(1, lambda comm: comm.all_reduce(np.ones(3), pc.op(joined)))
    assert (
        text.startswith("UnsupportedError: op(joined) needs Numba")
        and "pip install 'pycollectives[numba]'" in text
    )


def test_different_functions_mismatch() -> None:
    def scaled(factor: int) -> Any:
        return pc.op(lambda a, b: factor * (a + b))

    for ops in (
        [pc.op(joined), pc.op(last_set)],
        [scaled(1), scaled(2)],
        [pc.op(joined), pc.op(joined, commutative=True)],
        [pc.op(joined), "sum"],
    ):

        def check(comm: Any, ops: Any = ops) -> str:
            with pytest.raises(pc.MismatchError) as caught:
                comm.all_reduce(np.ones(3), ops[comm.rank])
            return str(caught.value)

        for text in threads(2, check):
            assert "op(" in text and "the ranks disagree" in text


def test_an_exception_in_the_function() -> None:
    def careful(a: Any, b: Any) -> Any:
        if a < 0:
            raise ValueError("negative")
        return a + b

    op = pc.op(careful)

    def check(comm: Any) -> str:
        assert comm.all_reduce(np.ones(5000), op)[0] == 2
        x = np.ones(5000)
        x[4321] = -1
        with pytest.raises(pc.CollectiveError) as caught:
            comm.all_reduce(x, op)
        return f"{type(caught.value).__name__}: {caught.value}"

    texts = threads(2, check)
    assert any(
        "InvalidArgumentError" in text and "op(careful) raised an exception" in text for text in texts
    ), texts


def test_division_by_zero_gives_what_numpy_gives() -> None:
    op = pc.op(lambda a, b: a / b)
    got = threads(
        2,
        lambda comm: comm.all_reduce(
            np.array([1.0, 0.0, 4.0]) if comm.rank == 0 else np.array([0.0, 0.0, 2.0]), op
        ),
    )
    np.testing.assert_array_equal(got[0], [np.inf, np.nan, 2.0])


# -- processes -----------------------------------------------------------------------------------------------


def doubled(a: Any) -> Any:
    return a * np.int64(2) if a not in (1000, 2000) else a


def in_processes(comm: Any) -> str:
    import numba

    factor, helper = 3, numba.njit(doubled)
    op = pc.op(lambda a, b: helper(a) * factor + b)
    got = comm.all_reduce(np.arange(4) + comm.rank, op, deterministic=True)
    want = functools.reduce(lambda a, b: a * 6 + b, [np.arange(4) + r for r in range(comm.size)])
    assert np.array_equal(got, want)
    m = np.random.default_rng(comm.rank).integers(-2, 3, (5000, 2, 2))
    assert np.array_equal(comm.all_reduce(m, MATRIX), functools.reduce(np.matmul, comm.all_gather(m)))
    return op.digest


def in_symmetric_memory(comm: Any) -> None:
    x = comm.empty((20_000, 2, 2), "int64")
    x[...] = np.random.default_rng(comm.rank).integers(-2, 3, x.shape)
    want = functools.reduce(np.matmul, comm.all_gather(x))
    for name in algorithms(comm, "all_reduce", x, MATRIX):
        y = comm.empty(x.shape, x.dtype)
        assert np.array_equal(comm.all_reduce(x, MATRIX, out=y, algorithm=name), want), name


def test_processes(pools: Pools) -> None:
    assert len(set(pools(4).run(in_processes))) == 1
    pools(3).run(in_symmetric_memory)
