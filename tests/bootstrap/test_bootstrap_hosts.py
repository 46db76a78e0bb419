"""Who shares memory with whom, and how ranks of several hosts meet. Hosts are made by PYCOLLECTIVES_PLACEMENT here."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from test_bootstrap_environment import mpiexec, needs_mpi

from pycollectives.bootstrap import places
from pycollectives.bootstrap.addresses import Door, connect, connect_all, listen
from pycollectives.bootstrap.agreement import Decision
from pycollectives.bootstrap.hosted import Host
from pycollectives.bootstrap.lifelines import Lifelines
from pycollectives.bootstrap.rendezvous import SingleRendezvous
from pycollectives.bootstrap.reunion import Reunion
from pycollectives.bootstrap.spanning import Network, SpanningRendezvous, meet_again
from pycollectives.errors import BootstrapError
from pycollectives.topology import Interface

Done = Callable[..., tuple[int, str, str]]


class Gathering:
    """`gather` for threads."""

    def __init__(self, size: int) -> None:
        self._values: list[Any] = [None] * size
        self._barrier = threading.Barrier(size, timeout=20)

    def of(self, rank: int) -> places.Gather:
        def gather(value: Any) -> list[Any]:
            self._values[rank] = value
            self._barrier.wait()
            found = list(self._values)
            self._barrier.wait()
            return found

        return gather


def find(size: int) -> list[Any]:
    """find_hosts on threads; errors in place of results."""
    gathering, found = Gathering(size), [None] * size

    def rank(r: int) -> None:
        try:
            found[r] = places.find_hosts(r, size, gathering.of(r))  # type: ignore[call-overload]
        except BootstrapError as error:
            found[r] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_ranks_that_share_memory_are_on_one_host() -> None:
    assert find(1) == [(0,)]
    assert find(5) == [(0,) * 5] * 5


@pytest.mark.parametrize(
    ("labels", "hosts"),
    [("a,a,b", (0, 0, 1)), ("x,y,x,y", (0, 1, 0, 1)), ("c,b,a", (0, 1, 2)), (",,", (0, 0, 0))],
)
def test_labels_keep_ranks_apart(
    monkeypatch: pytest.MonkeyPatch, labels: str, hosts: tuple[int, ...]
) -> None:
    monkeypatch.setenv(places.PLACEMENT, labels)
    assert find(len(hosts)) == [hosts] * len(hosts)


def test_a_wrong_number_of_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.PLACEMENT, "a,b")
    for error in find(3):
        assert "has 2 labels for 3 ranks" in str(error)


def test_a_rank_that_gets_no_memory_is_a_host_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket of the same name can be reached, but no descriptor comes: as if a sandbox forbade it."""
    monkeypatch.setattr(places, "_PATIENCE_MS", 100.0)
    lend = places._lend
    monkeypatch.setattr(places, "_lend", lambda door, token: door.accept()[0].close() or lend(door, token))
    found = find(3)
    assert found in ([(0, 1, 0)] * 3, [(0, 0, 1)] * 3)  # whoever comes to the door first


def test_doors_are_tried_in_order() -> None:
    with listen(4) as listener:
        door = Door.of(listener)
        with connect(door, 2) as sock:
            assert sock.getpeername()[1] == door.port
        elsewhere = Door(Host("other", "another boot", 1), (Interface("eth0", "127.0.0.1/8"),), door.port)
        made = connect_all({1: door, 2: elsewhere}, 2)
        assert sorted(made) == [1, 2]
        for sock in made.values():
            sock.close()
    with pytest.raises(OSError):
        connect(door, 0.3)  # nobody listens now
    assert connect_all({1: door}, 0.5) == {}


def test_a_lifeline_tells_of_a_death_and_of_nothing_else() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        lines = Lifelines()
        os.write(write, str(lines.door.port).encode())
        if os.fork() == 0:  # a grandchild that lives on must not answer for its parent
            time.sleep(20)
            os._exit(0)
        time.sleep(20)
        os._exit(0)
    port = int(os.read(read, 10))
    mine = Lifelines()
    try:
        mine.connect({7: Door(Host.here(), (), port)})
        fd = mine.descriptor(7)
        assert mine.descriptor(8) == -1
        assert not select.select([fd], [], [], 0.2)[0]
        os.kill(child, signal.SIGSTOP)
        assert not select.select([fd], [], [], 0.2)[0]
        os.kill(child, signal.SIGKILL)
        assert select.select([fd], [], [], 2.0)[0]
        os.close(fd)
    finally:
        mine.close()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


MEET = """
import os, sys, time
import pycollectives as pc
from pycollectives.bootstrap import discover
from pycollectives.errors import BootstrapError
from pycollectives.topology import Interface
r = discover()
hosts = r.network.hosts
def meet(key="meet", timeout=20):
    fd = os.memfd_create("x")
    os.write(fd, b"%d" % r.rank)
    return [(payload, [os.pread(fd, 9, 0) for fd in fds]) for payload, fds in
            r.exchange(key, r.rank, r.size, b"from %d" % r.rank, [fd], timeout)]
for turn in range(3):
    for i, (payload, passed) in enumerate(meet(f"meet {turn}")):
        assert payload == b"from %d" % i
        assert passed == ([b"%d" % i] if hosts[i] == hosts[r.rank] else []), (i, passed)
"""


@needs_mpi
@pytest.mark.parametrize("labels", ["a,b,c", "a,a,b", "a,b,a"])
def test_payloads_go_everywhere_and_descriptors_to_the_same_host(jobs: Any, done: Done, labels: str) -> None:
    script = jobs.script(MEET + "os.write(1, f'{r.kind} {hosts}\\n'.encode())\nr.close()")
    code, out, err = done(mpiexec(jobs, 3, sys.executable, script, env={places.PLACEMENT: labels}), 60)
    order = tuple(dict.fromkeys(labels.split(",")))
    hosts = tuple(order.index(label) for label in labels.split(","))
    assert (code, out) == (0, f"mpi {hosts}\n" * 3), err


@needs_mpi
def test_too_little_thread_support(jobs: Any, done: Done) -> None:
    script = jobs.script(
        "import mpi4py; mpi4py.rc.thread_level = 'serialized'\nfrom mpi4py import MPI\nimport pycollectives as pc\n"
        "try: pc.init()\nexcept pc.BootstrapError as e: print(e, flush=True)"
    )
    code, out, err = done(mpiexec(jobs, 2, sys.executable, script, env={places.PLACEMENT: "a,b"}), 60)
    assert (
        code == 0
        and out.count("MPI_THREAD_SERIALIZED, but ranks on several hosts need MPI_THREAD_MULTIPLE") == 2
    ), err


class Left:
    """What is left of a job of three ranks on hosts 0, 1, 1: rank 0 and rank 1, threads of this process."""

    def __init__(self) -> None:
        self.doors, self.lifelines = [Reunion() for _ in range(3)], Lifelines()
        for rank, own in enumerate(self.doors):
            own.others = {r: (each.door, each.secret) for r, each in enumerate(self.doors) if r != rank}

    def meet(self, rank: int, found: Decision, listener: socket.socket | None) -> SpanningRendezvous:
        network = Network((0, 1, 1), ("a", "b"), None, None, 0, 0, self.lifelines, self.doors[rank])
        one = SingleRendezvous()
        old = SpanningRendezvous(one, one, network, "mpi")  # type: ignore[arg-type]
        old.rank, old.size = rank, 3
        return meet_again(old, found, listener, found.ranks, 5.0, lambda _: "")


def counted() -> tuple[int, int]:
    """Brokers, and descriptors of this process."""
    gc.collect()
    return sum(each.name == "pycollectives-broker" for each in threading.enumerate()), len(
        os.listdir("/proc/self/fd")
    )


def test_what_is_abandoned_leaves_nothing_behind() -> None:
    """One that has agreed does not come; and one whose host cannot meet."""
    left = Left()
    before = counted()
    with listen(4) as listener:
        found = Decision(1, (0, 1, 2), listener.getsockname()[1], "nonce")
        made = left.meet(0, found, listener)
        with pytest.raises(BootstrapError, match="1"):
            made.exchange("x", 0, 2, b"", [], 0.3, [0, 1])
        made.abandon()
        made.abandon()
    assert counted() == before
    with listen(4) as listener:
        found = Decision(1, (0, 1, 2), listener.getsockname()[1], "nonce")
        made = left.meet(0, found, listener)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as taken:
            here = f"host 1 {found.nonce}"
            name = left.doors[1].derive(0, f"name of {here}").hex()[:32]
            taken.bind(f"\0pycollectives-{name}")
            try:
                left.meet(1, found, None)
            except BootstrapError as error:
                kept = error  # and what it refers to
        assert "is taken" in str(kept)
        made.abandon()
    assert counted() == before
