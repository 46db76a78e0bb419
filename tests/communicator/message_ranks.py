"""What the ranks of test_object_messages.py do."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import object_ranks
from object_failures import Poisonous, Unpicklable
from object_ranks import equal, value

import pycollectives as pc
from pycollectives import pickles


def exchange(comm: pc.Communicator, nbytes: int) -> None:
    """Around the ring, to oneself, by tag, from anybody."""
    n, me = comm.size, comm.rank
    right, left = (me + 1) % n, (me - 1) % n
    for seed in range(3):
        work = comm.send_object(value(me, seed, nbytes), right, async_op=True)
        assert equal(comm.recv_object(left), value(left, seed, nbytes))
        work.wait()
        work = comm.recv_object(left, 5, async_op=True)
        comm.send_object(value(me, seed, nbytes), right, tag=5)
        assert equal(work.wait(), value(left, seed, nbytes)) and work.wait() is work.wait()
        assert (work.source, work.tag) == (left, 5) and work.done()
        assert equal(comm.sendrecv_object(value(me, seed, nbytes), right, left), value(left, seed, nbytes))
        work = comm.sendrecv_object(seed, left, right, tag=me, recv_tag=right, async_op=True)
        assert work.wait() == seed and (work.source, work.tag) == (right, right)
    send, recv = comm.plan("send_object", right, tag=4), comm.plan("recv_object", left, tag=4)
    both = comm.plan("sendrecv_object", left, right)
    for i in range(3):
        send((me, i))
        assert recv() == (left, i)
        assert both([me] * i) == [right] * i
    assert "recv_object(source=" in repr(recv)
    comm.send_object("second", me, tag=2)
    comm.send_object("first", me, tag=1)
    assert comm.recv_object(me, 1) == "first"
    assert comm.recv_object_from(tag=2) == ("second", me, 2)
    comm.barrier()
    if me:
        comm.send_object({"from": me}, 0, tag=me)
    else:
        got = [comm.recv_object_from() for _ in range(n - 1)]
        assert sorted((g.source, g.tag, g.value["from"]) for g in got) == [(r, r, r) for r in range(1, n)]
    comm.barrier()


def errors(comm: pc.Communicator) -> None:
    """What goes wrong does so on both ends, soon, and spoils nothing."""
    cases: list[tuple[Any, Any, str]] = [
        (lambda: comm.send_object(Unpicklable(), 1), pc.InvalidArgumentError, "I stay here ééé"),
        (
            lambda: comm.send_object(Unpicklable(), 1, async_op=True),
            pc.InvalidArgumentError,
            "I stay here ééé",
        ),
        (lambda: comm.sendrecv_object(Unpicklable(), 1, 1), pc.InvalidArgumentError, "I stay here ééé"),
        (lambda: comm.plan("send_object", 1)(Unpicklable()), pc.InvalidArgumentError, "I stay here ééé"),
        (lambda: comm.send_object(Poisonous(), 1), pc.CollectiveError, "no module named nowhere"),
        (lambda: comm.send(np.arange(9), 1), pc.TransportError, "int64[9]"),
        (lambda: comm.send(np.zeros(0, np.uint8), 1), pc.TransportError, "uint8[0]"),
        (lambda: comm.send(np.zeros(99, np.uint8), 1), pc.TransportError, "damaged"),
        (lambda: comm.send(_longer(), 1), pc.TransportError, "announced"),
    ]
    receives: list[Any] = [
        lambda: comm.recv_object(0),
        comm.plan("recv_object", 0),
        lambda: comm.recv_object(0, async_op=True).wait(),
    ]
    for (send, kind, words), receive in itertools.product(cases, receives):
        start = time.monotonic()
        if comm.rank == 0:
            try:
                send()
            except pc.InvalidArgumentError as error:
                assert words in str(error) and kind is pc.InvalidArgumentError and error.__cause__ is not None
            else:
                assert kind is not pc.InvalidArgumentError
        elif comm.rank == 1:
            try:
                receive()
            except kind as error:
                assert words in str(error) and "rank 0" in str(error) and error.peer == 0, str(error)
                assert time.monotonic() - start < 2
            else:
                raise AssertionError(words)
        comm.barrier()
    exchange(comm, 100)
    object_ranks.folds(comm)


def _longer() -> Any:
    """A whole header that announces more than there is."""
    header = pickles.Parcel([b"x" * (1 << 20)]).header("send_object", 0, 1)
    return np.concatenate([header.view(np.uint8), np.zeros(7, np.uint8)])
