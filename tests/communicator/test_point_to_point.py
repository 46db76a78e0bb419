"""Sends and receives: order, matching, sizes, threads, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import point_to_point_ranks as todo
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from point_to_point_ranks import Traffic, caught
from ranks import Pools, threads

import pycollectives as pc

small = st.builds(Traffic, st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([64, 5000, 200_000]))
large = st.builds(
    Traffic, st.integers(0, 2**32), st.integers(1, 60), st.sampled_from([100, 70_000, 1_000_000])
)


# -- traffic ---------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(n=st.integers(1, 5), traffic=small)
def test_random_traffic_between_threads(n: int, traffic: Traffic) -> None:
    assert sum(threads(n, todo.exchange, traffic)) == traffic.messages


@pytest.mark.parametrize("n", [2, 3])
@settings(max_examples=12)
@given(traffics=st.lists(large, min_size=1, max_size=4))
def test_random_traffic_between_processes(pools: Pools, n: int, traffics: list[Traffic]) -> None:
    received = pools(n).run(todo.exchange_all, traffics)
    assert sum(received) == sum(traffic.messages for traffic in traffics)


@pytest.mark.parametrize(("nbytes", "times"), [(3, 70_000), (1001, 70_000), (65_537, 200)])
def test_messages_begin_at_every_place_of_the_ring(pools: Pools, nbytes: int, times: int) -> None:
    pools(2).run(todo.every_offset, nbytes, times)


@pytest.mark.parametrize("nbytes", [0, 1, 60_000, 8_000_000])
def test_all_ranks_may_send_first(pools: Pools, nbytes: int) -> None:
    pools(2).run(todo.all_send_first, nbytes)
    pools(3).run(todo.all_send_first, nbytes)
    threads(4, todo.all_send_first, nbytes // 4)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_sendrecv(n: int) -> None:
    for nbytes in (1, 100_000):
        threads(n, todo.rotate, nbytes)


def test_many_threads_of_a_rank_beside_collectives(pools: Pools) -> None:
    pools(2).run(todo.many_threads, 4, 60)
    threads(3, todo.many_threads, 3, 30)


def test_a_ring_wakes_all_sleepers(fresh: Any) -> None:
    seconds = fresh(2, {"PYCOLLECTIVES_SPINS": "0", "PYCOLLECTIVES_YIELDS": "0"}).run(
        todo.wake_one_of_two, 200
    )
    assert max(seconds) < 2.5, "rings were lost: naps have ended the waits"


def test_asynchronous_messages_move_by_themselves(pools: Pools) -> None:
    pools(2).run(todo.progress_without_a_call)
    threads(2, todo.progress_without_a_call)


def test_done_moves_messages(pools: Pools) -> None:
    pools(2).run(todo.polled)
    threads(3, todo.polled)


def test_communicators_do_not_mix(pools: Pools) -> None:
    pools(3).run(todo.two_communicators)


def test_a_rank_alone() -> None:
    comm = threads(1, lambda comm: comm)[0]
    x = np.arange(12.0).reshape(3, 4)
    comm.send(x[:, 1], 0, tag=2**31 - 1)
    comm.send(x, np.int8(0))
    array, source, tag = comm.recv_from(tag=2**31 - 1)
    assert (source, tag) == (0, 2**31 - 1) and (array == x[:, 1]).all()
    work = comm.recv(np.empty(5), tag=9, async_op=True)
    assert not work.done() and "pending" in repr(work)
    assert (comm.recv() == x).all()
    comm.send(range(5), 0, tag=9)
    assert caught(work.wait)[0] == "MismatchError"
    comm.close()


def test_persistent_messages() -> None:
    def body(comm: Any) -> None:
        x, y = np.zeros((4, 2)), np.empty(4)
        if comm.rank == 0:
            sends = [comm.plan("send", x[:, 1], dest=1, tag=3), comm.plan("send", x, dest=1)]
            for turn in range(3):
                x[:] = turn
                assert sends[0]() is None and sends[1]() is None
        else:
            first, second = comm.plan("recv", out=y, source=0, tag=3), comm.plan("recv", tag=0)
            for turn in range(3):
                assert first() is y and (y == turn).all()
                assert second().shape == (4, 2)
            assert "source=0" in repr(first)

    threads(2, body)


# -- what does not fit -----------------------------------------------------------------------------------------


def test_a_message_that_does_not_fit() -> None:
    def body(comm: Any) -> None:
        if comm.rank == 0:
            for x in (
                np.arange(8),
                np.arange(4),
                np.arange(4.0),
                np.arange(100_000),
                np.zeros(2, todo.RECORD),
                np.arange(3),
            ):
                comm.send(x, 1, tag=5)
            comm.barrier()
            comm.send(np.arange(70_000), 1, tag=5)
            return
        out = np.full((2, 2), -1)
        errors = [caught(lambda: comm.recv(out, 0, 5))]
        assert comm.recv(out, 0, 5) is out and (out.ravel() == range(4)).all()
        errors += [caught(lambda: comm.recv(out, 0, 5)), caught(lambda: comm.recv(out, 0))]
        errors += [caught(comm.recv(out, async_op=True).wait)]
        assert (out.ravel() == range(4)).all(), "out of a message that does not fit was written"
        for (kind, text, peer, _), theirs in zip(
            errors, ["int64[8]", "float64[4]", "int64[100000]", "'b'"], strict=True
        ):
            assert kind == "MismatchError" and peer == 0
            assert "int64[4]" in text and theirs in text and "rank 0 with tag 5" in text
        assert (comm.recv() == range(3)).all()
        work = comm.recv(out, async_op=True)
        comm.barrier()
        assert caught(work.wait)[0] == "MismatchError" and work.done()
        assert caught(work.wait)[0] == "MismatchError"

    threads(2, body)


def test_wrong_arguments() -> None:
    def body(comm: Any) -> None:
        x = np.arange(3)
        x.flags.writeable = False
        for call, words in (
            (lambda: comm.send(x, 2), "dest 2 is not in 0..1"),
            (lambda: comm.send(x, pc.ANY_SOURCE), "dest -1 is not in 0..1"),
            (lambda: comm.send(x, 1.0), "dest is 1.0, not an integer"),
            (lambda: comm.send(x, 1, pc.ANY_TAG), "tag -1 is not in 0..2147483647"),
            (lambda: comm.send(x, 1, 2**31), "tag 2147483648"),
            (lambda: comm.send(x, 1, None), "tag is None"),
            (lambda: comm.send(np.array([None]), 1), "Python objects"),
            (lambda: comm.send(x.astype(">i4"), 1), "byte order"),
            (lambda: comm.recv(source=-2), "source -2 is not in 0..1"),
            (lambda: comm.recv(source="a"), "source is 'a'"),
            (lambda: comm.recv(tag=-2), "tag -2"),
            (lambda: comm.recv(x), "read-only"),
            (lambda: comm.recv([1, 2]), "list"),
            (lambda: comm.recv(np.empty(2, object)), "Python objects"),
            (lambda: comm.sendrecv(x, 5, 0), "dest 5"),
            (lambda: comm.sendrecv(x, 0, 5, async_op=True), "source 5"),
            (lambda: comm.plan("send", x), "missing a required argument: 'dest'"),
            (lambda: comm.recv(timeout=-1), "timeout is -1"),
        ):
            kind, text, *_ = caught(call)
            assert kind == "InvalidArgumentError" and words in text, (words, kind, text)
        comm.barrier()
        assert caught(lambda: comm.recv(timeout=0.0))[0] == "CollectiveTimeoutError"  # nothing was sent

    threads(2, body)


def test_dtypes_that_need_a_description() -> None:
    def body(comm: Any) -> None:
        nested = np.dtype([("x", todo.RECORD), ("when", "M8[ns]"), ("name", "U7")], align=True)
        for dtype in (nested, np.dtype("M8[25us]"), np.dtype("V3"), np.dtype([]), np.dtype("longdouble")):
            comm.send(np.zeros(3, dtype), 0)
            got = comm.recv()
            assert got.dtype == dtype and got.shape == (3,)
        wide = np.dtype([(f"field_{i}", "f4") for i in range(200)])
        assert caught(lambda: comm.send(np.zeros(1, wide), 0))[0] == "UnsupportedError"

    threads(1, body)
