"""The native fast way into a call, which the second call of a kind takes: it makes what the first one made."""

from __future__ import annotations

import threading
from typing import Any

import catalogue
import numpy as np
import pytest
import ranks
from test_every_verb import IN_BLOCKS, shaped

import pycollectives as pc
from pycollectives.caller import Caller
from pycollectives.schedule import COLLECTIVES

SHAPES = [(6,), (3, 2), (3, 1, 2), (6, 0)]
EVERYTHING_SAID = {"algorithm": None, "async_op": False, "timeout": None}
REDUCES = {"deterministic": False, "accumulate": None}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The number of calls that went through Python, on the thread that asks."""
    counted = threading.local()
    original = Caller._now

    def now(self: Any, *args: Any, **options: Any) -> Any:
        counted.calls = getattr(counted, "calls", 0) + 1
        return original(self, *args, **options)

    monkeypatch.setattr(Caller, "_now", now)
    return lambda: getattr(counted, "calls", 0)


def ways(verb: str, root: int) -> list[dict[str, Any]]:
    """Options that mean the same."""
    contract = COLLECTIVES[verb]
    rooted = {"root": root} if contract.rooted else {}
    reduces = REDUCES if contract.reduces else {}
    return [rooted, rooted | EVERYTHING_SAID | reduces, rooted | {"timeout": 60.0}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("verb", catalogue.VERBS)
def test_the_second_call_is_fast_and_the_same(verb: str, shape: tuple[int, ...], slow: Any) -> None:
    def fn(comm: Any) -> None:
        n = int(np.prod(shape))
        for root in range(comm.size if COLLECTIVES[verb].rooted else 1):
            for dtype in ("float32", "int64"):
                xs = catalogue.inputs(comm.size, n, dtype, root)
                x, found = xs[comm.rank].reshape(shape), catalogue.wanted(verb, xs, comm.rank, root)
                getattr(comm, verb)(x, **ways(verb, root)[0])
                before = slow()
                for options in ways(verb, root):
                    out = (
                        np.empty(0) if found is None else np.empty_like(shaped(verb, found, shape, comm.size))
                    )
                    made, into = getattr(comm, verb)(x, **options), getattr(comm, verb)(x, out=out, **options)
                    if found is None:
                        assert made is None and into is None
                        continue
                    want = shaped(verb, found, shape, comm.size)
                    assert into is out
                    for result in (made, into):
                        assert result.dtype == x.dtype and result.shape == want.shape
                        assert np.array_equal(result, want)
                assert slow() == before

    ranks.threads(3, fn)


@pytest.mark.parametrize("verb", ["all_reduce", "reduce", "reduce_scatter", "scan"])
def test_deterministic_calls_are_fast_and_not_taken_for_others(verb: str, slow: Any) -> None:
    def fn(comm: Any) -> None:
        call = getattr(comm, verb)
        x = np.array([1e8, 1.0, -1e8, 3.0, 1e-3, 7.0], np.float32)[(np.arange(6) + comm.rank) % 6]
        found = [call(x, deterministic=True), call(x), call(x, deterministic=False)]
        before = slow()
        for said, want in zip([True, False, False], found, strict=True):
            again = call(x, deterministic=said)
            assert again is None if want is None else np.array_equal(again, want)
        assert slow() == before

    ranks.threads(3, fn)


def test_kinds_do_not_put_each_other_out(slow: Any) -> None:
    """Many kinds in turns, as the arrays of a model, and a barrier between: whatever two of them have in common."""
    counts = [*(2**k for k in range(1, 17)), *range(3, 90)]

    def fn(comm: Any) -> None:
        arrays = [(np.arange(2 * count, dtype=np.float32), np.empty(count, np.float32)) for count in counts]
        for turn in range(3):
            before = slow()
            for x, out in arrays:
                comm.all_reduce(x, out=x)
                comm.barrier()
                comm.reduce_scatter(x, out=out)
                comm.broadcast(out)
            if turn:
                assert slow() == before

    ranks.threads(2, fn)


@pytest.mark.parametrize("verb", IN_BLOCKS)
def test_a_first_axis_that_cannot_be_cut(verb: str, slow: Any) -> None:
    """As many elements as in calls that were right before."""

    def fn(comm: Any) -> None:
        x = np.arange(12.0)
        getattr(comm, verb)(x)
        for wrong in (x.reshape(4, 3), x.reshape(2, 6), x.reshape(1, 12)):
            with pytest.raises(pc.InvalidArgumentError, match="first axis"):
                getattr(comm, verb)(wrong)
        assert getattr(comm, verb)(x.reshape(3, 4)).shape == ((3, 4) if verb == "all_to_all" else (1, 4))

    ranks.threads(3, fn)


@pytest.mark.parametrize("verb", ["reduce", "gather", "exscan"])
def test_an_out_that_gets_nothing_is_not_touched(verb: str) -> None:
    def fn(comm: Any) -> None:
        x = np.arange(4.0) + comm.rank
        shape = (comm.size, 4) if verb == "gather" else (4,)
        for _ in range(3):
            out = np.full(shape, -1.0)
            if getattr(comm, verb)(x, out=out) is None:
                assert (out == -1).all()

    ranks.threads(3, fn)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), "soon"])
def test_a_wrong_timeout_of_a_known_kind(timeout: Any) -> None:
    def fn(comm: Any) -> None:
        x = np.arange(4.0)
        comm.all_reduce(x)
        with pytest.raises(pc.InvalidArgumentError, match="timeout"):
            comm.all_reduce(x, timeout=timeout)

    ranks.threads(2, fn)


def test_the_timeout_of_a_known_kind_counts() -> None:
    def fn(comm: Any) -> None:
        x = np.arange(4.0)
        comm.all_reduce(x)
        if comm.rank == 0:
            with pytest.raises(pc.CollectiveTimeoutError):
                comm.all_reduce(x, timeout=0.05)

    ranks.threads(2, fn)


def test_more_axes_than_the_fast_way_takes() -> None:
    def fn(comm: Any) -> None:
        x = np.full((1,) * 30 + (2,), comm.rank + 1.0)
        for _ in range(2):
            assert comm.all_gather(x).shape == (2, *x.shape)
            assert (comm.all_reduce(x) == 3).all()

    ranks.threads(2, fn)
