"""Bad input: an error with the offending values in its text, before anything moves, and the communicator goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ranks import Pools, threads

import pycollectives as pc


def read_only(shape: Any) -> Any:
    array = np.zeros(shape)
    array.flags.writeable = False
    return array


def cases(comm: Any) -> list[tuple[type[Exception], str, Callable[[], Any]]]:
    n = comm.size
    x, b = np.ones(6 * n), np.zeros(12 * n)
    invalid, unsupported = pc.InvalidArgumentError, pc.UnsupportedError
    fold = (
        unsupported,
        "left fold.*two_shot",
        lambda: comm.all_reduce(x, algorithm="ring", deterministic=True),
    )
    return [
        *([fold] if n > 2 else []),
        # shapes
        (
            invalid,
            rf"out has {6 * n + 1} elements .* the result has {6 * n}",
            lambda: comm.all_reduce(x, out=np.ones(6 * n + 1)),
        ),
        (
            invalid,
            rf"out has shape \({2 * n}, 3\), the result has \({6 * n},\)",
            lambda: comm.all_reduce(x, out=np.ones((2 * n, 3))),
        ),
        (
            invalid,
            rf"out has 9 elements .* the result has {5 * n}",
            lambda: comm.all_gather(np.ones(5), out=np.ones(9)),
        ),
        (invalid, rf"multiple of {n}.*\({n + 1}, 2\)", lambda: comm.reduce_scatter(np.ones((n + 1, 2)))),
        (invalid, rf"multiple of {n}.*\(\)", lambda: comm.reduce_scatter(np.ones(()))),
        (invalid, rf"multiple of {n}.*\(1, {2 * n}\)", lambda: comm.reduce_scatter(np.ones((1, 2 * n)))),
        (invalid, "out has 5 elements", lambda: comm.reduce_scatter(x, out=np.ones(5))),
        # dtypes
        (
            invalid,
            "out has dtype float32, the result has float64",
            lambda: comm.all_reduce(x, out=np.ones(6 * n, np.float32)),
        ),
        (invalid, "object", lambda: comm.all_reduce(np.array([None, 1]))),
        (invalid, "object", lambda: comm.broadcast(np.array([{}]))),
        (invalid, ">f8.*byte order.*astype", lambda: comm.all_reduce(x.astype(">f8"))),
        (invalid, "byte order", lambda: comm.broadcast(np.zeros(3, [("a", ">i4"), ("b", "i4")]))),
        (unsupported, "complex64.*sum, prod", lambda: comm.all_reduce(np.ones(3, np.complex64), "max")),
        (unsupported, "avg is not defined for bool.*sum", lambda: comm.all_reduce(np.ones(3, bool), "avg")),
        (
            unsupported,
            "band is not defined for float32.*min, max",
            lambda: comm.all_reduce(np.ones(3, np.float32), "band"),
        ),
        (
            unsupported,
            "datetime64.*cannot be reduced.*float32",
            lambda: comm.all_reduce(np.zeros(3, "M8[s]")),
        ),
        (unsupported, "cannot be reduced", lambda: comm.all_reduce(np.zeros(3, "S4"))),
        (unsupported, "cannot be reduced", lambda: comm.reduce_scatter(np.zeros(n, np.longdouble))),
        # operators, algorithms, verbs
        (invalid, "unknown operator 'smu'; did you mean 'sum'", lambda: comm.all_reduce(x, "smu")),
        (invalid, "unknown operator 'SUM'; did you mean 'sum'", lambda: comm.all_reduce(x, "SUM")),
        (invalid, "unknown operator None", lambda: comm.all_reduce(x, None)),
        (invalid, "unknown operator", lambda: comm.all_reduce(x, np.ones(3))),
        (invalid, "unknown operator", lambda: comm.all_reduce(x, ["sum"])),
        (invalid, "numpy.divide is not a reduction", lambda: comm.all_reduce(x, np.divide)),
        (invalid, "no algorithm 'rnig'; did you mean 'ring'", lambda: comm.all_reduce(x, algorithm="rnig")),
        (invalid, "'two_shot' exists for all_reduce", lambda: comm.broadcast(x, algorithm="two_shot")),
        (invalid, "no algorithm '7'", lambda: comm.barrier(algorithm=7)),
        (
            invalid,
            "unknown collective 'all_redcue'; did you mean 'all_reduce'",
            lambda: comm.plan("all_redcue", x),
        ),
        (invalid, "unknown collective", lambda: comm.explain("bcast", nbytes=8)),
        (invalid, "unknown collective", lambda: comm.algorithms("bcast")),
        # roots
        (invalid, rf"root {n} is not in 0\.\.{n - 1}", lambda: comm.broadcast(x, root=n)),
        (invalid, "root -1 is not in", lambda: comm.reduce(x, root=-1)),
        (invalid, "root -1 is not in", lambda: comm.broadcast(x, root=-1)),
        (invalid, "is not in", lambda: comm.broadcast(x, root=2**32)),
        (invalid, "is not in", lambda: comm.broadcast(x, root=2**80)),
        (invalid, "root is 0.0", lambda: comm.broadcast(x, root=0.0)),
        (invalid, "root is '0'", lambda: comm.reduce(x, root="0")),
        (invalid, "root is None", lambda: comm.broadcast(x, root=None)),
        # outputs
        (invalid, "read-only", lambda: comm.all_reduce(x, out=read_only(6 * n))),
        (invalid, "list.*not a NumPy array", lambda: comm.all_reduce(x, out=[0.0] * 6 * n)),
        (
            invalid,
            "stride is 0",
            lambda: comm.all_reduce(x, out=np.lib.stride_tricks.as_strided(b, (6 * n,), (0,))),
        ),
        (invalid, "read-only|stride", lambda: comm.all_reduce(x, out=np.broadcast_to(np.zeros(1), (6 * n,)))),
        (invalid, "overlap", lambda: comm.all_reduce(b[0 : 6 * n], out=b[2 : 6 * n + 2])),
        (invalid, "overlap", lambda: comm.all_reduce(b[0 : 6 * n], out=b[6 * n - 1 :: -1])),
        (invalid, "overlap", lambda: comm.all_reduce(b[::2], out=b[: 6 * n])),
        (invalid, "overlap", lambda: comm.all_gather(b[1:3], out=b[: 2 * n])),
        (invalid, "overlap", lambda: comm.all_gather(b[2 * n : 2 * n + 2], out=b[1 : 2 * n + 1])),
        (invalid, "overlap", lambda: comm.reduce_scatter(b[: 2 * n], out=b[1:3])),
        (
            invalid,
            "overlap",
            lambda: comm.broadcast(b[: 6 * n].reshape(3, -1), out=b[: 6 * n].reshape(-1, 3).T),
        ),
        # algorithms, counts, tags, dims
        (invalid, "no algorithm \"\\['ring'\\]\"", lambda: comm.scan(x, algorithm=["ring"])),
        (invalid, "must be 2 numbers|must be 3 numbers", lambda: comm.all_gatherv(x, [1] * (n + 1))),
        (invalid, "none negative", lambda: comm.reduce_scatterv(x, [-1] * n)),
        (invalid, "whole numbers", lambda: comm.reduce_scatterv(x, None)),
        (invalid, "whole numbers", lambda: comm.all_to_allv(x, dict.fromkeys(range(n), 6))),
        (invalid, "whole numbers", lambda: comm.all_gatherv(x, [6.0] * n)),
        (invalid, "add up to", lambda: comm.all_to_allv(x, [5] * n)),
        (invalid, "64 bits", lambda: comm.reduce_scatterv(np.zeros((0, 0)), [2**63] * n)),
        (invalid, "needs rows to count", lambda: comm.all_gatherv(np.float64(1), [1] * n)),
        (invalid, "dest 1267650600228229401496703205376", lambda: comm.send(x, 2**100)),
        (invalid, "tag 1267650600228229401496703205376", lambda: comm.recv(tag=2**100)),
        (invalid, "tag 2147483648 is not in", lambda: comm.send_object(x, 0, 2**31)),
        (invalid, "periodic is None", lambda: comm.neighbor_exchange(np.zeros((2, 1)), (n,), periodic=None)),
        (invalid, "periodic is 3", lambda: comm.neighbor_exchange(np.zeros((2, 1)), (n,), periodic=3)),
        (invalid, "dims is 3", lambda: comm.neighbor_exchange(np.zeros((2, 1)), 3)),
        (invalid, "factor is 'x'", lambda: comm.all_reduce(x, pc.scaled_sum("x"))),
        # memory and explanations
        (invalid, "shape is 'ab'", lambda: comm.empty("ab")),
        (invalid, "shape is 3.5", lambda: comm.empty(3.5)),
        (invalid, "shape is None", lambda: comm.empty(None)),
        (invalid, "negative length", lambda: comm.empty((2, -1))),
        (invalid, "more bytes than", lambda: comm.empty((2**40, 2**40))),
        (invalid, "dtype 'foo'", lambda: comm.empty(3, "foo")),
        (invalid, "nbytes is 1.5", lambda: comm.explain("all_reduce", nbytes=1.5)),
        (invalid, "nbytes is -1", lambda: comm.explain("all_reduce", nbytes=-1)),
        (invalid, f"rank {n} is not in", lambda: comm.history(n)),
        (invalid, "rank is 'a'", lambda: comm.history("a")),
        (
            invalid,
            "x is None on rank" if n > 1 else "dtype object",
            lambda: comm.scatter(None, root=(comm.rank + 1) % n),
        ),
        # timeouts
        (invalid, "timeout", lambda: comm.barrier(timeout="soon")),
        (invalid, "timeout", lambda: comm.all_reduce(x, timeout=float("nan"))),
        (invalid, "timeout", lambda: comm.recv(async_op=True, tag=98765).wait(timeout="soon")),
        (invalid, "timeout", lambda: comm.plan("all_reduce", x, timeout=-1)),
    ]


def all_of_them(comm: Any) -> list[str]:
    """What goes wrong with the errors; each is tried before and after the call has been made rightly."""
    wrong = []
    for turn in range(2):
        for i, (kind, pattern, make) in enumerate(cases(comm)):
            try:
                with pytest.raises(kind, match=pattern) as caught:
                    make()
                assert isinstance(caught.value, (ValueError, NotImplementedError))
            except BaseException as error:
                wrong.append(f"case {i} in turn {turn} ({pattern}): {type(error).__name__}: {error}")
        x = np.ones(6 * comm.size)
        for root in range(comm.size):
            comm.broadcast(x, root=root)
        comm.all_reduce(x), comm.reduce(x), comm.all_gather(x), comm.reduce_scatter(x), comm.barrier()
    return wrong


@pytest.mark.parametrize("size", [2, 3])
def test_bad_input(pools: Pools, size: int) -> None:
    for wrong in pools(size).run(all_of_them):
        assert not wrong, "\n".join(wrong)


def nothing_moves(comm: Any) -> None:
    """Only rank 0 errs: it has not entered the call, and makes it rightly afterwards."""
    x, out = np.ones(10), np.full(10, 5.0)
    if comm.rank == 0:
        with pytest.raises(pc.InvalidArgumentError):
            comm.all_reduce(x, out=out[:9])
        assert (out == 5.0).all()
    assert (comm.all_reduce(x, out=out) == comm.size).all()


def test_an_error_of_one_rank_can_be_made_good(pools: Pools) -> None:
    pools(3).run(nothing_moves)


def odd_but_right(comm: Any) -> None:
    n = comm.size
    assert (comm.all_reduce([1, 2, 3]) == n * np.arange(1, 4)).all()
    assert comm.all_reduce(2.5) == 2.5 * n and comm.all_reduce(2.5).shape == ()
    assert comm.all_reduce(np.float32(1)).dtype == np.float32
    assert (comm.broadcast(range(4), root=np.int8(n - 1)) == np.arange(4)).all()
    assert (comm.broadcast(np.arange(4), root=True) == np.arange(4)).all()
    fixed = np.arange(5.0)
    fixed.flags.writeable = False
    assert (comm.all_reduce(fixed) == n * np.arange(5)).all()
    assert (comm.all_reduce(np.broadcast_to(3, (4, 5))) == 3 * n).all()
    empty = np.zeros((0,))
    assert comm.all_reduce(empty, out=empty[:0]) is not None
    one = np.lib.stride_tricks.as_strided(np.ones(2), (1,), (2,))  # a stride that does not matter
    assert (comm.all_reduce(one, out=one) == n).all()
    for op in (pc.ReduceOp.MAX, "max", np.maximum):
        assert (comm.all_reduce(np.full(3, comm.rank), op) == n - 1).all()
    little = np.arange(4, dtype="<f8")
    assert (comm.all_reduce(little) == n * np.arange(4)).all()
    assert comm.all_gather(np.ones(5, "f4"), out=np.ones((n, 5), "f4")).shape == (n, 5)
    assert comm.all_gather(np.ones(5, "f4"), out=np.ones(5 * n, "f4")).shape == (5 * n,)


@pytest.mark.parametrize("size", [2, 3])
def test_odd_but_right(pools: Pools, size: int) -> None:
    pools(size).run(odd_but_right)


def plain_data(comm: Any) -> None:
    """What is only moved may be of any dtype without objects; the same count again in another dtype."""
    kinds = [
        "S5",
        "S9",
        "V3",
        "V11",
        "U2",
        "M8[s]",
        "M8[ns]",
        "m8[us]",
        np.longdouble,
        [("a", "i4"), ("b", "f8", (3,))],
    ]
    for _ in range(2):
        for kind in kinds:
            dtype = np.dtype(kind)
            mine = [
                (np.arange(4 * dtype.itemsize) % 50 + 65 + r).astype(np.uint8).view(dtype)
                for r in range(comm.size)
            ]
            assert comm.broadcast(mine[comm.rank], root=1).tobytes() == mine[1].tobytes()
            gathered = comm.all_gather(mine[comm.rank])
            assert gathered.dtype == dtype and gathered.tobytes() == b"".join(x.tobytes() for x in mine)
    with pytest.raises(pc.InvalidArgumentError, match=r"datetime64\[ms\]"):
        comm.broadcast(np.zeros(4, "M8[s]"), out=np.zeros(4, "M8[ms]"))


def test_data_that_is_only_moved(pools: Pools) -> None:
    pools(3).run(plain_data)


@pytest.mark.parametrize("counts", [[4, 3], [1, 1], [-1, 6], [5], "no", None])
@pytest.mark.parametrize("root", [0, 1])
def test_what_is_wrong_at_the_root_of_a_scatterv_is_told_to_all(counts: Any, root: int) -> None:
    """Found by chance: counts that did not fit the root's x were an error there only, and the other rank waited."""

    def fn(comm: Any) -> None:
        with pytest.raises(pc.InvalidArgumentError):
            comm.scatterv(np.ones(5), counts, root=root)
        assert comm.all_reduce(np.ones(3)).tolist() == [2] * 3

    threads(2, fn)
