"""Sends and receives that time out or are interrupted, whose peer dies or leaves; aborted and forked communicators."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from point_to_point_ranks import caught
from ranks import DIED, threads

# -- time ------------------------------------------------------------------------------------------------------


def test_a_receive_that_times_out_loses_nothing() -> None:
    def body(comm: Any) -> None:
        if comm.rank == 1:
            comm.barrier()
            comm.send(np.arange(3), 0, tag=1)
            comm.send(np.arange(4), 0, tag=2)
            return
        kind, text, _, seconds = caught(lambda: comm.recv(source=1, tag=2, timeout=0.1))
        assert kind == "CollectiveTimeoutError" and 0.1 <= seconds < 1.0 and "recv(source=1, tag=2)" in text
        work = comm.recv(np.empty(4, int), tag=2, async_op=True)
        kind, text, *_ = caught(lambda: work.wait(0.05))
        assert kind == "CollectiveTimeoutError" and "under way" in text and not work.done()
        short = comm.recv(tag=7, async_op=True, timeout=0.1)
        comm.barrier()
        assert len(work.wait()) == 4
        kind, text, *_ = caught(lambda: comm.recv(tag=3, timeout=0.1))
        assert kind == "CollectiveTimeoutError" and "tag 1 from rank 1" in text
        assert caught(short.wait)[0] == "CollectiveTimeoutError" and short.done()
        assert (comm.recv() == range(3)).all()

    threads(2, body)


def send_and_stop(comm: Any) -> Any:
    x = np.arange(1_000_000)
    comm.barrier()
    if comm.rank == 0:
        comm.send(x, 1, async_op=True)
        comm.send(np.arange(3), 1, async_op=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        comm.barrier()
        return None
    time.sleep(0.2)
    first = caught(lambda: comm.recv(np.empty(1_000_000, int), 0, timeout=0.3))
    second = caught(lambda: comm.recv(source=0, timeout=0.3))
    assert (comm.recv(np.empty(1_000_000, int), 0) == x).all(), "what had arrived was lost"
    assert (comm.recv() == range(3)).all()
    comm.barrier()
    return first, second


def test_a_receive_may_give_up_in_the_middle(fresh: Any) -> None:
    pair = fresh(2)
    pair.start(send_and_stop)
    pair.go_on(0, after=1.5)
    errors = pair.finish()[1]
    assert [kind for kind, *_ in errors] == ["CollectiveTimeoutError"] * 2


def test_a_send_that_times_out_in_its_middle_ends_the_communicator() -> None:
    def body(comm: Any) -> Any:
        result = None
        if comm.rank == 0:
            comm.send(np.zeros(100), 1)
            kind, text, peer, seconds = caught(lambda: comm.send(np.zeros(1_000_000), 1, timeout=0.2))
            assert kind == "CollectiveTimeoutError" and peer == 1 and 0.2 <= seconds < 1.5
            assert "send(dest=1, tag=0)" in text and "does not receive" in text
        else:
            time.sleep(0.6)
        result = caught(lambda: comm.recv(timeout=5))
        assert result[0] == "PeerError" and "rank 0" in result[1] and result[3] < 1
        return result

    threads(2, body)


def test_a_send_behind_another_that_times_out_is_withdrawn() -> None:
    def body(comm: Any) -> None:
        if comm.rank == 0:
            works = [comm.send(np.full(1_000_000, 1), 1, async_op=True)]
            assert caught(lambda: comm.send(np.full(3, 2), 1, timeout=0.1))[0] == "CollectiveTimeoutError"
            works += [comm.send(np.full(3, 3), 1, async_op=True)]
            comm.barrier()
            assert [work.wait() for work in works] == [None, None]
        else:
            comm.barrier()
            assert comm.recv()[0] == 1 and comm.recv()[0] == 3
        comm.barrier()

    threads(2, body)


def interrupt_myself(comm: Any, what: str) -> Any:
    if comm.rank == 1:
        time.sleep(2.0)
        comm.close()
        return None
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    if what == "recv":
        first = caught(lambda: comm.recv(source=1))
        return first, caught(lambda: comm.recv(tag=3, timeout=0.05))
    if what == "wait":
        work = comm.recv(async_op=True)
        first = caught(work.wait)
        return first, caught(lambda: comm.recv(tag=3, timeout=0.05))
    first = caught(lambda: comm.send(np.zeros(1_000_000), 1))
    return first, caught(lambda: comm.recv(tag=3, timeout=0.05))


@pytest.mark.parametrize(
    ("what", "then"),
    [("recv", "CollectiveTimeoutError"), ("wait", "CollectiveTimeoutError"), ("send", "PeerError")],
)
def test_ctrl_c(fresh: Any, what: str, then: str) -> None:
    (kind, _, _, seconds), later = fresh(2).run(interrupt_myself, what)[0]
    assert kind == "KeyboardInterrupt" and seconds < 1.8
    assert later[0] == then


# -- ranks that die, leave, abort --------------------------------------------------------------------------------


def talk_to_the_dying(comm: Any, what: str) -> Any:
    x = np.arange(1_000_000)
    comm.barrier()
    if comm.rank == 1:
        comm.send(np.arange(5), 0, tag=1)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    if comm.rank == 2:
        time.sleep(2)
        return None
    calls = {
        "recv": lambda: comm.recv(source=1, tag=7),
        "any": lambda: comm.recv(tag=7),
        "send": lambda: comm.send(x, 1),
        "wait": lambda: comm.recv(source=1, tag=7, async_op=True).wait(),
        "sendrecv": lambda: comm.sendrecv(x[:3], 1, 1, tag=7),
    }
    if what == "done":
        work = comm.send(x, 1, async_op=True)
        while not work.done():
            time.sleep(0.001)
        error = caught(work.wait)
    else:
        error = caught(calls[what])
    assert (comm.recv(source=1, tag=1) == range(5)).all()
    return error, caught(lambda: comm.recv(source=1, tag=1)), caught(lambda: comm.recv(timeout=0.05))


@pytest.mark.parametrize("what", ["recv", "any", "send", "wait", "sendrecv", "done"])
def test_a_killed_peer_is_named(fresh: Any, what: str) -> None:
    results = fresh(3).run(talk_to_the_dying, what, died=[1])
    assert results[1] is DIED
    (kind, text, peer, seconds), again, anyone = results[0]
    assert kind == "PeerError" and peer == 1 and "rank 1 (process" in text and "died" in text
    assert seconds < 1.5
    assert again[0] == "PeerError" and again[3] < 0.5
    assert anyone[0] == "PeerError"


def test_ranks_may_leave_when_they_have_sent_all() -> None:
    def body(comm: Any) -> Any:
        if comm.rank:
            comm.send(np.full(1000, comm.rank), 0)
            if comm.rank == 3:
                comm.send(np.zeros(0), 0, tag=9)
            comm.close()
            return None
        time.sleep(0.1)
        got = sorted(int(comm.recv(tag=0)[0]) for _ in range(3))
        assert got == [1, 2, 3] and comm.recv(source=3).size == 0
        errors = [
            caught(lambda: comm.recv(source=2)),
            caught(comm.recv),
            caught(lambda: comm.send(np.zeros(1), 1)),
        ]
        errors.append(caught(lambda: comm.send(np.zeros(1), 1, async_op=True)))
        assert [kind for kind, *_ in errors] == ["PeerError"] * 4, errors
        assert "rank 2 has left" in errors[0][1] and "all other ranks" in errors[1][1]
        comm.send(np.ones(1), 0)
        assert comm.recv(source=0) == 1  # to itself it can still talk
        return None

    threads(4, body)


@pytest.mark.parametrize("how", ["abort here", "abort there", "close"])
def test_abort_and_close_end_every_wait(how: str) -> None:
    def body(comm: Any) -> None:
        comm.barrier()
        if comm.rank == 1:
            time.sleep(0.3)
            if how == "abort there":
                comm.abort()
            time.sleep(0.5)
            return
        work = comm.recv(async_op=True, tag=5)
        waits = [
            lambda: comm.recv(tag=3),
            lambda: comm.send(np.zeros(1_000_000), 1),
            work.wait,
            lambda: comm.sendrecv(np.zeros(1), 1, 1),
        ]
        errors: list[Any] = []
        workers = [threading.Thread(target=lambda call=call: errors.append(caught(call))) for call in waits]
        for worker in workers:
            worker.start()
        time.sleep(0.3)
        if how == "abort here":
            comm.abort()
        if how == "close":
            comm.close()
        for worker in workers:
            worker.join(timeout=10)
            assert not worker.is_alive()
        assert [kind for kind, *_ in errors] == ["AbortedError"] * 4, errors
        for call in (comm.recv, lambda: comm.send(np.zeros(1), 0), work.wait):
            assert caught(call)[0] == "AbortedError"

    threads(2, body)


def use_in_a_child(comm: Any) -> None:
    work = comm.recv(tag=1, async_op=True)
    time.sleep(0.02)  # the serving thread sleeps
    child = os.fork()
    if child == 0:
        kinds = [caught(call)[0] for call in (comm.recv, lambda: comm.send(np.zeros(1), 0), work.wait)]
        comm.close()
        os._exit(0 if kinds == ["BootstrapError"] * 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    comm.send(np.arange(2), comm.rank, tag=1)
    assert (work.wait() == range(2)).all()
    comm.barrier()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_may_not(fresh: Any) -> None:
    fresh(2).run(use_in_a_child)


def test_arrays_live_as_long_as_their_messages() -> None:
    def body(comm: Any) -> None:
        peer = 1 - comm.rank
        for _ in range(20):
            comm.send(np.full(50_000, comm.rank), peer, async_op=True)
            comm.recv(np.empty(50_000, int), peer, async_op=True)  # nobody keeps these
        comm.barrier()
        got = [comm.sendrecv(np.array(comm.rank), peer, peer, tag=1) for _ in range(3)]
        assert got == [peer] * 3

    threads(2, body)
