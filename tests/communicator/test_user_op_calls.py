"""Operators written in Python: ways to call, lifetimes, processes, and what is refused."""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 and float8 as NumPy dtypes
import numpy as np
import pytest
import user_ops
from ranks import Pools, threads
from user_ops import (
    LAST,
    MATRIX,
    SUM_AND_LAST,
    algorithms,
    fold,
    joined,
    last_set,
    matrix_product,
    uneven,
)

import pycollectives as pc

pytest.importorskip("numba")


# -- ways to call ----------------------------------------------------------------------------------------


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
        uneven(comm)
        with pytest.raises(pc.InvalidArgumentError, match="cannot be cut"):
            comm.reduce_scatterv(np.ones((2, 2), np.int64), [1, 1, 0], MATRIX)

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


# -- refusals --------------------------------------------------------------------------------------------


def raised(n: int, call: Any) -> str:
    """The text of the error that `call(comm)` raises on every rank."""
    return user_ops.raised(threads, n, call)[0]


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


# -- processes -------------------------------------------------------------------------------------------


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
