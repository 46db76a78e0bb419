"""Exchanges through a broker: what is carried, and how they fail."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pycollectives import _core
from pycollectives.bootstrap import SingleRendezvous, discover
from pycollectives.bootstrap.broker import Broker
from pycollectives.bootstrap.client import SocketRendezvous
from pycollectives.bootstrap.matching import Contribution, Table
from pycollectives.bootstrap.recorders import Recorders
from pycollectives.bootstrap.rendezvous import close_all
from pycollectives.bootstrap.threads import ThreadGroup
from pycollectives.bootstrap.wire import Channel, Descriptors, Kind, ProtocolError
from pycollectives.errors import BootstrapError, InvalidArgumentError

World = Callable[..., tuple[Broker, list[SocketRendezvous]]]


def together(calls: Sequence[Callable[[], Any]], seconds: float = 20.0) -> list[Any]:
    """Run the calls in threads; results or exceptions in order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures: list[Future[Any]] = [pool.submit(call) for call in calls]
        return [future.exception(seconds) or future.result() for future in futures]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(params=["broker", "threads"])
def ranks(request: pytest.FixtureRequest, world: World) -> Callable[[int], list[Any]]:
    """Rendezvous of n ranks in this process, of both kinds that serve several ranks."""

    def make(n: int) -> list[Any]:
        if request.param == "broker":
            return list(world(n)[1])
        group = ThreadGroup(n)
        return [group.rendezvous(rank) for rank in range(n)]

    return make


def test_payloads_and_descriptors_arrive_by_index(ranks: Callable[[int], list[Any]]) -> None:
    def body(rendezvous: Any) -> list[tuple[bytes, list[int]]]:
        fds = [os.memfd_create("test") for _ in range(rendezvous.rank)]
        for number, fd in enumerate(fds):
            os.write(fd, b"%d.%d" % (rendezvous.rank, number))
        index = 2 - rendezvous.rank  # not the rank
        got = rendezvous.exchange("key", index, 3, b"x" * rendezvous.rank, fds, 10)
        close_all(fds)
        return got

    for result in together([lambda r=r: body(r) for r in ranks(3)]):
        assert [payload for payload, _ in result] == [b"xx", b"x", b""]
        for index, (_, fds) in enumerate(result):
            rank = 2 - index
            assert [os.pread(fd, 99, 0) for fd in fds] == [b"%d.%d" % (rank, i) for i in range(rank)]
            assert all(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for fd in fds)
            close_all(fds)


def test_a_descriptor_received_is_the_same_memory(ranks: Callable[[int], list[Any]]) -> None:
    first, second = ranks(2)
    fd = os.memfd_create("test")
    a, b = together(
        [
            lambda: first.exchange("k", 0, 2, b"", [fd], 10),
            lambda: second.exchange("k", 1, 2, b"", [], 10),
        ]
    )
    os.write(b[0][1][0], b"written by the other")
    assert os.pread(fd, 99, 0) == os.pread(a[0][1][0], 99, 0) == b"written by the other"
    close_all([fd, *a[0][1], *b[0][1]])


def test_300_descriptors(ranks: Callable[[int], list[Any]]) -> None:
    before = open_descriptors()

    def body(rendezvous: Any) -> list[tuple[bytes, list[int]]]:
        fd = os.memfd_create("test")
        os.write(fd, b"%d" % rendezvous.rank)
        got = rendezvous.exchange("many", rendezvous.rank, 2, b"p", [fd] * 300, 20)
        os.close(fd)
        return got

    everyone = ranks(2)
    for result in together([lambda r=r: body(r) for r in everyone]):
        assert [len(fds) for _, fds in result] == [300, 300]
        for rank, (_, fds) in enumerate(result):
            assert {os.pread(fd, 9, 0) for fd in fds} == {b"%d" % rank}
            close_all(fds)
    for rendezvous in everyone:
        rendezvous.close()
    deadline = time.monotonic() + 5
    while open_descriptors() > before + 20 and time.monotonic() < deadline:
        time.sleep(0.01)  # the broker lets go a moment later
    assert open_descriptors() < before + 20


def test_large_payload(ranks: Callable[[int], list[Any]]) -> None:
    data = [os.urandom(5_000_000 + rank) for rank in range(3)]
    calls = [lambda r=r: r.exchange("big", r.rank, 3, data[r.rank], [], 30) for r in ranks(3)]
    for result in together(calls):
        assert [payload for payload, _ in result] == data


def test_different_keys_at_once_from_threads_of_one_rank(ranks: Callable[[int], list[Any]]) -> None:
    """Each rank enters the keys in another order, sizes differ: nothing may wait for another key."""
    everyone = ranks(3)
    keys = [f"key {number}" for number in range(12)]

    def body(rendezvous: Any, key: str, delay: float) -> list[bytes]:
        time.sleep(delay)
        data = key.encode() * (100_000 if key.endswith("3") else 1) + b"%d" % rendezvous.rank
        fd = os.memfd_create("test")
        got = rendezvous.exchange(key, rendezvous.rank, 3, data, [fd], 20)
        close_all([fd, *(fd for _, fds in got for fd in fds)])
        return [payload[-1:] for payload, _ in got]

    calls = []
    for rendezvous in everyone:
        order = keys[rendezvous.rank :] + keys[: rendezvous.rank]
        for number, key in enumerate(order if rendezvous.rank != 1 else order[::-1]):
            calls.append(lambda r=rendezvous, k=key, d=number * 0.002: body(r, k, d))
    assert together(calls) == [[b"0", b"1", b"2"]] * len(calls)


def test_a_key_serves_again_and_again(ranks: Callable[[int], list[Any]]) -> None:
    def body(rendezvous: Any) -> bool:
        for number in range(200):
            got = rendezvous.exchange("same", rendezvous.rank, 3, b"%d" % number, [], 10)
            if [payload for payload, _ in got] != [b"%d" % number] * 3:
                return False
        return True

    assert together([lambda r=r: body(r) for r in ranks(3)]) == [True, True, True]


def test_timeout_names_the_missing(ranks: Callable[[int], list[Any]]) -> None:
    everyone = ranks(4)
    start = time.monotonic()
    calls = [lambda r=r: r.exchange("late", r.rank, 4, b"", [], 0.3) for r in (everyone[0], everyone[2])]
    for error in together(calls):
        assert isinstance(error, BootstrapError)
        assert "'late'" in str(error) and "1, 3" in str(error) and "0.3 s" in str(error)
    assert 0.3 <= time.monotonic() - start < 0.8
    assert everyone[0].exchange("late", 0, 1, b"again", [], 1) == [(b"again", [])]


def test_a_timeout_does_not_disturb_a_longer_wait(ranks: Callable[[int], list[Any]]) -> None:
    hasty, patient = ranks(2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(patient.exchange, "k", 1, 2, b"b", [], 10)
        with pytest.raises(BootstrapError):
            hasty.exchange("other", 0, 2, b"a", [], 0.05)
        assert hasty.exchange("k", 0, 2, b"a", [], 10) == waiting.result(5) == [(b"a", []), (b"b", [])]


def test_disagreement_about_the_count_is_told_to_all(ranks: Callable[[int], list[Any]]) -> None:
    everyone = ranks(3)
    counts = [3, 2, 3]

    def body(rendezvous: Any) -> object:
        time.sleep(0.1 * rendezvous.rank)
        return rendezvous.exchange(
            "n", rendezvous.rank if rendezvous.rank < 2 else 2, counts[rendezvous.rank], b"", [], 10
        )

    for error in together([lambda r=r: body(r) for r in everyone], 5):
        assert isinstance(error, BootstrapError)
        assert "rank 0 says 3" in str(error) and "rank 1 says 2" in str(error)


def test_two_ranks_with_one_index(ranks: Callable[[int], list[Any]]) -> None:
    for error in together([lambda r=r: r.exchange("i", 1, 3, b"", [], 10) for r in ranks(2 + 1)[:2]], 5):
        assert isinstance(error, BootstrapError) and "both are index 1" in str(error)


def test_a_rank_that_closes_fails_the_exchanges_that_need_it(ranks: Callable[[int], list[Any]]) -> None:
    everyone = ranks(3)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(r.exchange, "k", r.rank, 3, b"", [], 30) for r in everyone[:2]]
        time.sleep(0.1)
        everyone[2].close()
        for future in waiting:
            error = future.exception(5)
            assert isinstance(error, BootstrapError) and "rank 2 has closed its rendezvous" in str(error)
            assert error.peer == 2
    # ... and those that begin later at once; those that do not need it go on.
    start = time.monotonic()
    with pytest.raises(BootstrapError, match="rank 2"):
        everyone[0].exchange("later", 0, 3, b"", [], 30)
    assert time.monotonic() - start < 2
    pair = together([lambda r=r: r.exchange("two", r.rank, 2, b"%d" % r.rank, [], 10) for r in everyone[:2]])
    assert pair == [[(b"0", []), (b"1", [])]] * 2
    with pytest.raises(BootstrapError, match="closed"):
        everyone[2].exchange("k", 2, 3, b"", [], 1)


def test_bad_arguments(ranks: Callable[[int], list[Any]]) -> None:
    first = ranks(2)[0]
    for index, count in ((-1, 2), (2, 2), (0, 0), (0, 3)):
        with pytest.raises(InvalidArgumentError):
            first.exchange("k", index, count, b"", [], 1)
    with pytest.raises(InvalidArgumentError):
        first.exchange("", 0, 1, b"", [], 1)
    with pytest.raises(InvalidArgumentError):
        first.exchange("k", 0, 1, b"", [], float("nan"))
    with pytest.raises(BootstrapError, match="descriptor"):
        first.exchange("k", 0, 1, b"", [1 << 20], 1)


def test_close_from_another_thread_wakes_the_waiting(ranks: Callable[[int], list[Any]]) -> None:
    first = ranks(2)[0]
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(first.exchange, f"k{i}", 0, 2, b"", [], 30) for i in range(2)]
        time.sleep(0.1)
        start = time.monotonic()
        first.close()
        assert time.monotonic() - start < 1
        for future in waiting:
            assert isinstance(future.exception(5), BootstrapError)


def test_waiting_costs_no_cpu(world: World) -> None:
    _, everyone = world(2)
    with pytest.raises(BootstrapError):
        before = time.process_time()
        everyone[0].exchange("k", 0, 2, b"", [], 1.0)
    assert time.process_time() - before < 0.1


def shared_mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:pycollectives")


def test_recorders_outlive_their_ranks(world: World) -> None:
    before = shared_mappings()
    broker, everyone = world(2, keep=True)
    cores = [_core.Communicator(rank, 2, 1 << 20, 0, 0, 0) for rank in range(2)]
    key = "keep/world/memory"
    got = together([lambda r=r: r.exchange(key, r.rank, 2, b"", [cores[r.rank].fd], 10) for r in everyone])
    close_all([fd for result in got for _, fds in result for fd in fds])
    cores[1].say("the last words")
    cores.clear()
    broker.leave(1, "died")
    [found] = broker.recorders.snapshot()["communicators"]
    assert found["name"] == "world" and [each["size"] for each in found["ranks"]] == [2, 2]
    assert [(each["rank"], each["error"], each["calls"]) for each in found["ranks"]] == [
        (0, "", []),
        (1, "the last words", []),
    ]
    assert broker.recorders.snapshot()["ended"] == {"1": "died"}
    everyone[0].release(key)
    deadline = time.monotonic() + 5
    while shared_mappings() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert shared_mappings() <= before
    [found] = broker.recorders.snapshot()["communicators"]  # the dead one's words are remembered
    assert found["ranks"][1]["error"] == "the last words"


def test_the_end_of_a_member_fails_an_exchange_of_some(world: World) -> None:
    """Others are left, but they are not meant."""
    broker, everyone = world(3)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(everyone[0].exchange, "k", 0, 2, b"", [], 30, [0, 1])
        time.sleep(0.1)
        broker.leave(1, "died")
        error = waiting.exception(5)
    assert isinstance(error, BootstrapError) and error.peer == 1 and "rank 1 died" in str(error)


def test_a_rank_that_raised_is_remembered_before_the_others_notice() -> None:
    recorders, key = Recorders(2), "keep/world/memory"
    cores = [_core.Communicator(rank, 2, 1 << 20, 0, 0, 0) for rank in range(2)]
    for rank, core in enumerate(cores):
        recorders.keep(0, key, rank, core.fd)
    cores[1].say("ValueError: what I said")
    recorders.release(0, key, 1)
    [found] = recorders.snapshot()["communicators"]
    assert [(each["rank"], each["error"]) for each in found["ranks"]] == [
        (0, ""),
        (1, "ValueError: what I said"),
    ]
    recorders.close()


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("members", [None, frozenset(range(3))])
def test_of_several_that_have_gone_the_first_is_named(first: int, members: frozenset[int] | None) -> None:
    """The second may have ended because of it."""
    table = Table(3)
    assert table.leave(first, "died of SIGKILL (signal 9)") == []
    assert table.leave(3 - first, "ended with status 1") == []
    [outcome] = table.join("k", 3, Contribution(0, 1, 0, b"", Descriptors([]), 30, 30, members))
    assert (outcome.rank, outcome.parts, outcome.peer, outcome.cause) == (0, None, first, "gone")
    assert f"rank {first} died of" in outcome.error and f"rank {3 - first} ended" in outcome.error


def test_a_look_ends_an_exchange(ranks: Callable[[int], list[Any]]) -> None:
    def look() -> None:
        if time.monotonic() > end:
            raise ZeroDivisionError

    end = time.monotonic() + 0.3
    first, _ = ranks(2)
    with pytest.raises(ZeroDivisionError):
        first.exchange("k", 0, 2, b"", [], 30, None, look)
    assert time.monotonic() < end + 1


def test_a_frame_that_claims_an_exabyte_ends_its_connection() -> None:
    broker = Broker(2)
    broker.start()
    ours, theirs = socket.socketpair()
    with ours:
        broker.attach(0, theirs)
        ours.sendall(struct.pack("<4sB3xIIQQ", b"pcb1", Kind.EXCHANGE, 0, 2, 1, 1 << 60) + b"{}")
        ours.settimeout(5)
        assert ours.recv(100) == b""  # no allocation, and no wait for the rest
    broker.close()


def test_lost_descriptors_are_an_error() -> None:
    """A sender may not smuggle descriptors that the frame does not declare as its own."""
    left, right = socket.socketpair()
    sender, receiver = Channel(left, trusted=True), Channel(right, trusted=False)
    sender.queue(Kind.HELLO)
    socket.send_fds(left, [b"x"], [0])
    with pytest.raises(ProtocolError, match="before the peer proved"):
        receiver.receive()
    sender.close()
    receiver.close()


def test_single_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYCOLLECTIVES_RANK", "PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    threads, descriptors = threading.active_count(), open_descriptors()
    rendezvous = discover()
    assert isinstance(rendezvous, SingleRendezvous)
    assert (rendezvous.rank, rendezvous.size, rendezvous.kind) == (0, 1, "single")
    fd = os.memfd_create("test")
    [(payload, fds)] = rendezvous.exchange("k", 0, 1, b"p", [fd], 1)
    assert payload == b"p" and len(fds) == 1 and fds[0] != fd
    close_all([fd, *fds])
    with pytest.raises(InvalidArgumentError):
        rendezvous.exchange("k", 0, 2, b"p", [], 1)
    rendezvous.close()
    assert (threading.active_count(), open_descriptors()) == (threads, descriptors)
