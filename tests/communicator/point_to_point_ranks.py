"""What the ranks of test_point_to_point.py do: random traffic that every rank can check by itself.

All ranks derive one list of messages from a seed. Each does its part of it in that order, but for what may be moved without
harm: a send may be made earlier, a receive later. Tags below 3 are received from any source, the others from the sender.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from calls import LAYOUTS, frame
from reference import DTYPES, Array

import pycollectives as pc

RECORD = np.dtype([("a", "i2"), ("b", "f8", (3,))])
KINDS = [*DTYPES, "datetime64[s]", "S5", RECORD]


def caught(make: Any) -> Any:
    """The error that a call raises: class, text, peer, seconds until it came."""
    start = time.monotonic()
    try:
        make()
    except (pc.CollectiveError, KeyboardInterrupt) as error:
        return type(error).__name__, str(error), getattr(error, "peer", None), time.monotonic() - start
    return "nothing", "", None, time.monotonic() - start


@dataclass(frozen=True)
class Traffic:
    """`most`: bytes of the largest message."""

    seed: int
    messages: int
    most: int


@dataclass(frozen=True)
class Message:
    """One message, and how its ends go about it."""

    index: int
    source: int
    dest: int
    tag: int
    dtype: Any
    shape: tuple[int, ...]
    layout: str
    into: str | None  # layout of out
    flat: bool  # out has another shape
    send_async: bool
    recv_async: bool

    def data(self, seed: int) -> Array:
        dtype = np.dtype(self.dtype)
        count = int(np.prod(self.shape, dtype=np.int64))
        raw = np.random.default_rng([seed, self.index]).integers(0, 256, count * dtype.itemsize, np.uint8)
        return (raw % 2 if dtype.kind == "b" else raw).view(dtype).reshape(self.shape)


def messages(traffic: Traffic, size: int) -> list[Message]:
    """The list."""
    rng = np.random.default_rng(traffic.seed)
    found = []
    for index in range(traffic.messages):
        dtype = np.dtype(KINDS[rng.integers(len(KINDS))])
        count = (
            int(min(rng.integers(0, 9) if rng.random() < 0.4 else 2 ** rng.uniform(0, 20), traffic.most))
            // dtype.itemsize
        )
        axes = int(rng.integers(0, 5))
        shape: tuple[int, ...] = (count,)
        if axes == 0 and count == 1:
            shape = ()
        elif axes > 1:
            shape = (*(int(n) for n in rng.integers(1, 3, axes - 1)), count)
        into = None if rng.random() < 0.5 else str(rng.choice(LAYOUTS))
        flat = into is not None and bool(rng.random() < 0.3)
        source, dest = (int(r) for r in rng.integers(0, size, 2))
        layout = str(rng.choice(LAYOUTS))
        asynchronous = [bool(a) for a in rng.random(2) < 0.3]
        tag = int(rng.integers(0, 6))
        found.append(Message(index, source, dest, tag, dtype, shape, layout, into, flat, *asynchronous))
    return found


def part(todo: list[Message], me: int, rng: np.random.Generator) -> list[tuple[str, Message]]:
    """What one rank does, in an order that cannot block."""
    steps = [(what, m) for m in todo for what, who in (("send", m.source), ("recv", m.dest)) if who == me]
    for _ in range(len(steps) // 2):
        for i in range(len(steps) - 1):
            if rng.random() < 0.3 and steps[i][0] == "recv" and steps[i][1].source != me:
                (_, first), (what, then) = steps[i], steps[i + 1]
                same = what == "recv" and first.tag == then.tag  # these keep their order
                if not same:
                    steps[i], steps[i + 1] = steps[i + 1], steps[i]
    return steps


def exchange(comm: pc.Communicator, traffic: Traffic) -> int:
    """Do it, and check every message. Returns how many were received."""
    todo = messages(traffic, comm.size)
    steps = part(todo, comm.rank, np.random.default_rng([traffic.seed, comm.rank]))
    expected: dict[tuple[int, int], list[Message]] = defaultdict(
        list
    )  # by source and tag, in the order of sending
    for peer in range(comm.size):
        # Sends of a rank to another are never exchanged for one another, so the list says their order.
        for m in todo:
            if m.source == peer and m.dest == comm.rank:
                expected[peer, m.tag].append(m)
    sent, received = [], []
    for what, m in steps:
        if what == "send":
            x, _ = frame(m.shape, m.dtype, m.layout)
            x[...] = m.data(traffic.seed)
            work = comm.send(x, m.dest, m.tag, async_op=m.send_async)
            if work is not None:
                sent.append((work, x))
            continue
        out = None
        source = pc.ANY_SOURCE if m.tag < 3 else m.source
        if m.tag >= 3 and m.into is not None:  # what comes is known
            shape = (int(np.prod(m.shape, dtype=np.int64)),) if m.flat else m.shape
            out, _ = frame(shape, m.dtype, m.into)
        if m.recv_async:
            received.append((comm.recv(out, source, m.tag, async_op=True), out, m))
        else:
            received.append((comm.recv_from(out, source, m.tag), out, m))
    for work, _ in sent:
        assert work.wait() is None and work.done()
    for result, out, m in received:
        if m.recv_async:
            array, source, tag = result.wait(), result.source, result.tag
        else:
            array, source, tag = result
        assert tag == m.tag and (m.tag < 3 or source == m.source)
        true = expected[source, tag].pop(0)
        wanted = true.data(traffic.seed)
        where = f"rank {comm.rank}: {true}"
        assert array.dtype == wanted.dtype and array.nbytes == wanted.nbytes, where
        assert array is out or (out is None and array.shape == wanted.shape and array.flags.writeable), where
        assert np.ascontiguousarray(array).tobytes() == wanted.tobytes(), where
    assert not any(expected.values())
    return len(received)


def exchange_all(comm: pc.Communicator, traffics: list[Traffic]) -> int:
    """One after the other: a receive from any source must not take a later one's message."""
    received = 0
    for traffic in traffics:
        received += exchange(comm, traffic)
        comm.barrier()
    return received


def every_offset(comm: pc.Communicator, nbytes: int, times: int) -> None:
    """Messages of odd length begin everywhere in the ring; each holds its number."""
    x = np.zeros(nbytes, np.uint8)
    number = x[: nbytes // 8 * 8].view(np.uint64) if nbytes >= 8 else x
    if comm.rank == 0:
        for i in range(times):
            number[:] = i % 251
            comm.send(x, 1, 3)
    else:
        for i in range(times):
            comm.recv(x, 0, 3)
            assert (number == i % 251).all(), i
    comm.barrier()


def all_send_first(comm: pc.Communicator, nbytes: int) -> None:
    """Everybody sends to everybody, then receives, in another order and without out too."""
    n, me = comm.size, comm.rank
    for peer in range(n):
        comm.send(np.full(nbytes, 16 * me + peer, np.uint8), peer, tag=peer)
    for peer in reversed(range(n)):
        got = comm.recv(np.empty(nbytes, np.uint8) if peer % 2 else None, peer, me)
        assert got.shape == (nbytes,) and (got == 16 * peer + me).all()
    comm.barrier()


def rotate(comm: pc.Communicator, nbytes: int) -> None:
    """sendrecv around the ring, with and without out, in place, asynchronously."""
    n, me = comm.size, comm.rank
    right, left = (me + 1) % n, (me - 1) % n
    x = np.full(nbytes, me, np.int16)
    assert (comm.sendrecv(x, right, left) == left).all()
    out = np.empty((nbytes, 2), np.int16)[:, 1]
    assert comm.sendrecv(x, right, left, out=out, tag=4) is out and (out == left).all()
    work = comm.sendrecv(x, right, left, tag=me, recv_tag=left, async_op=True)
    assert (work.wait() == left).all() and work.done()
    assert comm.sendrecv(x, right, left, out=x) is x and (x == left).all()


def many_threads(comm: pc.Communicator, nthreads: int, rounds: int) -> None:
    """Pairs of threads talk, each with a tag of its own, while the main thread is in collectives."""
    n, me = comm.size, comm.rank
    failures: list[BaseException] = []

    def talk(tag: int) -> None:
        try:
            rng = np.random.default_rng([tag, 7])
            for turn in range(rounds):
                length = int(2 ** rng.uniform(0, 17))
                x = np.full(length, 100 * me + tag, np.int32)
                if turn % 3 == 0:
                    got = comm.sendrecv(x, (me + 1) % n, (me - 1) % n, tag=tag)
                elif turn % 3 == 1:
                    work = comm.recv(None, (me - 1) % n, tag, async_op=True)
                    comm.send(x, (me + 1) % n, tag)
                    got = work.wait()
                else:
                    comm.send(x, (me + 1) % n, tag)
                    got = comm.recv(np.empty(length, np.int32), pc.ANY_SOURCE, tag)
                assert got.shape == (length,) and (got == 100 * ((me - 1) % n) + tag).all()
        except BaseException as error:
            failures.append(error)
            raise

    workers = [threading.Thread(target=talk, args=(tag,)) for tag in range(nthreads)]
    for worker in workers:
        worker.start()
    for _ in range(rounds):
        assert comm.all_reduce(np.full(100, 1)).sum() == 100 * n
    for worker in workers:
        worker.join(timeout=60)
        assert not worker.is_alive(), "a thread hangs"
    assert not failures, failures
    comm.barrier()


def wake_one_of_two(comm: pc.Communicator, rounds: int) -> float:
    """Rank 0 sleeps in a barrier and, in another thread, in receives. Returns the seconds of all rounds."""
    if comm.rank == 0:
        other = threading.Thread(target=comm.barrier)
        other.start()
    start = time.monotonic()
    for turn in range(rounds):
        x = np.array([turn])
        if comm.rank == 0:
            assert comm.recv(source=1)[0] == turn
            comm.send(x, 1)
        else:
            time.sleep(0.001)  # until both sleep
            comm.send(x, 0)
            assert comm.recv(source=0)[0] == turn
    seconds = time.monotonic() - start
    if comm.rank == 0:
        assert other.is_alive()
        other.join(timeout=0.01)
    else:
        comm.barrier()
    if comm.rank == 0:
        other.join(timeout=10)
        assert not other.is_alive()
    return seconds


def progress_without_a_call(comm: pc.Communicator) -> None:
    """A large asynchronous send ends although its rank only waits in a collective; so does one whose Work is dropped."""
    if comm.rank == 0:
        work = comm.send(np.arange(1_000_000), 1, async_op=True)
        comm.send(np.arange(1_000_000), 1, tag=1, async_op=True)
        comm.barrier()
        assert work is not None and work.wait(10) is None
    else:
        time.sleep(0.05)
        for tag in (1, 0):
            assert (comm.recv(source=0, tag=tag) == np.arange(1_000_000)).all()
        comm.barrier()


def polled(comm: pc.Communicator) -> None:
    """done() alone moves a message."""
    x = np.arange(500_000.0)
    works = [comm.send(x, (comm.rank + 1) % comm.size, async_op=True), comm.recv(async_op=True)]
    until = time.monotonic() + 20
    while not all(work.done() for work in works if work is not None):
        assert time.monotonic() < until
    assert (works[1].wait() == x).all()  # type: ignore[union-attr]


def two_communicators(comm: pc.Communicator) -> None:
    """The same pair and tag on three communicators: three streams."""
    sub = comm.split(0, key=-comm.rank)
    twin = comm.split(0, key=comm.rank)
    assert sub is not None and twin is not None
    last = comm.size - 1
    if comm.rank == 0:
        for number, each in enumerate((comm, twin)):
            each.send(np.array(number), last)
        sub.send(np.array(2), 0)  # there, ranks are reversed
    if comm.rank == last:
        assert sub.recv(source=last) == 2
        assert twin.recv(source=0) == 1
        assert comm.recv(source=0) == 0
    comm.barrier()
    sub.close()
    twin.close()
