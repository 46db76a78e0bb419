"""Jobs whose rank 0 holds the broker: who may come, and who is refused."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pycollectives.bootstrap import hosted
from pycollectives.bootstrap.hosted import HostedRendezvous
from pycollectives.bootstrap.wire import Channel, Kind
from pycollectives.errors import BootstrapError

SECRET = b"s" * 32


@pytest.fixture
def name() -> str:
    return hosted.random_name()


def end(rendezvous: HostedRendezvous) -> None:
    rendezvous.abandon()


def test_ranks_join_and_leave_nothing(name: str) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    first = hosted.host(name, SECRET, 3, "mpi")
    others = [hosted.join(name, SECRET, rank, 3, "mpi", 5) for rank in (1, 2)]
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(r.exchange, "k", r.rank, 3, b"%d" % r.rank, [0], 5) for r in (first, *others)]
        for future in futures:
            got = future.result(10)
            assert [payload for payload, _ in got] == [b"0", b"1", b"2"]
            for _, fds in got:
                os.close(fds[0])
    for rendezvous in (first, *others):  # rank 0 first: the others are still served
        rendezvous.close()
        if rendezvous is first:
            with ThreadPoolExecutor(2) as pool:
                pair = [pool.submit(r.exchange, "pair", r.rank - 1, 2, b"", [], 5) for r in others]
                assert [len(future.result(10)) for future in pair] == [2, 2]
    deadline = time.monotonic() + 5
    while len(os.listdir("/proc/self/fd")) > descriptors and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert not any(thread.name == "pycollectives-broker" for thread in threading.enumerate())


def test_a_wrong_secret_is_refused_on_both_sides(name: str) -> None:
    first = hosted.host(name, SECRET, 2, "mpi")
    with pytest.raises(BootstrapError, match="does not hold the secret"):
        hosted.join(name, b"t" * 32, 1, 2, "mpi", 5)
    # One that does not check the broker does not get in either.
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"\0{name}")
        channel = Channel(sock, trusted=False)
        channel.queue(Kind.HELLO, meta={"rank": 1, "size": 2, "nonce": secrets.token_hex(32), "pid": 1})
        channel.flush()
        while not channel.receive():
            time.sleep(0.001)
        channel.queue(Kind.PROOF, meta={"proof": "0" * 64})
        channel.flush()
        while not (frames := channel.receive()):
            time.sleep(0.001)
        assert frames[0].kind == Kind.REFUSED and "secret is wrong" in frames[0].meta["reason"]
    second = hosted.join(name, SECRET, 1, 2, "mpi", 5)  # the place is still free
    second.close()
    end(first)


def test_descriptors_before_the_proof_are_not_taken(name: str) -> None:
    first = hosted.host(name, SECRET, 2, "mpi")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"\0{name}")
        socket.send_fds(sock, [b"pcb1"], [0])
        sock.settimeout(5)
        assert sock.recv(100) == b""
    end(first)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n" + b"x" * 100, b"pcb1" + b"\xff" * 100])
def test_garbage_is_hung_up_on(name: str, data: bytes) -> None:
    first = hosted.host(name, SECRET, 2, "mpi")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"\0{name}")
        sock.sendall(data)
        sock.settimeout(5)
        assert sock.recv(100) == b""
    end(first)


def test_a_stranger_does_not_delay_the_job(name: str) -> None:
    first = hosted.host(name, SECRET, 2, "mpi")
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(f"\0{name}")
    hosted.join(name, SECRET, 1, 2, "mpi", 5).close()
    silent.close()
    end(first)


def test_a_rank_cannot_come_twice_nor_from_another_size(name: str) -> None:
    first = hosted.host(name, SECRET, 2, "mpi")
    second = hosted.join(name, SECRET, 1, 2, "mpi", 5)
    with pytest.raises(BootstrapError, match="come already"):
        hosted.join(name, SECRET, 1, 2, "mpi", 5)
    with pytest.raises(BootstrapError, match="has 2 ranks"):
        hosted.join(name, SECRET, 2, 3, "mpi", 5)
    second.close()
    end(first)


def test_a_taken_name(name: str) -> None:
    first = hosted.host(name, SECRET, 2, "mpi")
    with pytest.raises(BootstrapError, match="taken"):
        hosted.host(name, SECRET, 2, "mpi")
    end(first)


def test_nobody_there(name: str) -> None:
    start = time.monotonic()
    with pytest.raises(BootstrapError, match=r"within 0\.3 s"):
        hosted.join(name, SECRET, 1, 2, "mpi", 0.3)
    assert time.monotonic() - start < 1


def test_rank_0_may_be_late(name: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(hosted.join, name, SECRET, 1, 2, "mpi", 20)
        time.sleep(0.5)
        first = hosted.host(name, SECRET, 2, "mpi")
        waiting.result(5).close()
    end(first)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="optional: only root can act as another user")

AS_ANOTHER = """
import os
from pycollectives.bootstrap import handshake, hosted  # before it: the interpreter may be another user's
from pycollectives.errors import BootstrapError
os.setgid(65534)
os.setuid(65534)
"""


@needs_root
def test_another_user_is_refused(jobs: Any, done: Any, name: str) -> None:
    first = hosted.host(name, SECRET, 2, "mpi")
    # It even knows the secret, and does not mind whom it talks to.
    script = AS_ANOTHER + (
        "handshake.refusal_of_user = lambda sock: None\n"
        f"try: hosted.join({name!r}, {SECRET!r}, 1, 2, 'mpi', 5)\n"
        "except BootstrapError as error: print(error)"
    )
    code, out, err = done(jobs.python("-c", script))
    assert code == 0 and "refused" in out and "65534" in out, err
    end(first)


@needs_root
def test_a_name_held_by_another_user_is_not_trusted(jobs: Any, done: Any, name: str) -> None:
    squatter = AS_ANOTHER + f"r = hosted.host({name!r}, {SECRET!r}, 2, 'mpi')\n"
    squatter += "print('ready', flush=True)\ninput()"
    process = jobs.python("-c", squatter)
    assert process.stdout.readline() == "ready\n"
    with pytest.raises(BootstrapError, match=r"somebody else's.*65534"):
        hosted.join(name, SECRET, 1, 2, "mpi", 5)
    done(process, stdin="\n")
