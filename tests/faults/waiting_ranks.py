"""What ranks do in the tests of long waits."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from typing import Any

import numpy as np

import pycollectives as pc


class Heard(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert record.name == "pycollectives" and record.levelno == logging.WARNING
        self.texts.append(record.getMessage())


def be_awaited(comm: Any, way: str) -> list[str]:
    """Rank 1 is late; what the ranks log meanwhile."""
    heard = Heard()
    logging.getLogger("pycollectives").addHandler(heard)
    sub = comm.split(0)
    sub.barrier()
    x = np.ones(5)
    if comm.rank == 1:
        time.sleep(1.1)
    if way == "barrier":
        sub.barrier()
    elif way == "async":
        sub.all_reduce(x, async_op=True).wait()
    elif way == "recv":
        if comm.rank == 1:
            sub.send(x, dest=0, tag=3)
        elif comm.rank == 0:
            sub.recv(source=1, tag=3)
    elif way == "empty":
        sub.empty(5)
    comm.barrier()
    logging.getLogger("pycollectives").removeHandler(heard)
    return heard.texts


WAITS = {
    "split": lambda sub: sub.split(0),
    "empty": lambda sub: sub.empty(5),
    "shrink": lambda sub: sub.shrink(timeout=60),
    "objects": lambda sub: sub.all_gather_object("x"),
    "group": lambda sub: in_a_group(sub),
    "recv": lambda sub: sub.recv(source=1, tag=1),
    "recv from any": lambda sub: sub.recv(),
    "send": lambda sub: sub.send(np.ones(1_000_000), dest=1),
    "sendrecv": lambda sub: sub.sendrecv(np.ones(3), dest=1, source=1),
    "asynchronous recv": lambda sub: sub.recv(source=1, async_op=True).wait(),
    "another thread's call": lambda sub: behind_another_thread(sub),
}


def in_a_group(sub: Any) -> None:
    with sub.group():
        sub.all_reduce(np.ones(3))
        sub.all_reduce(np.ones(4))


def behind_another_thread(sub: Any) -> None:
    def other() -> None:
        try:
            sub.barrier()
        except pc.CollectiveError:
            return

    threading.Thread(target=other).start()
    time.sleep(0.1)
    sub.barrier()


def be_interrupted(comm: Any) -> dict[str, float]:
    """Seconds from Ctrl-C to KeyboardInterrupt in every kind of wait. Rank 1 takes no part."""
    subs = {way: comm.split(0) for way in WAITS}
    seconds: dict[str, float] = {}
    if comm.rank == 0:
        for way, wait in WAITS.items():
            sent: list[float] = []

            def interrupt(sent: list[float] = sent) -> None:
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

            timer = threading.Timer(0.3, interrupt)
            timer.start()
            try:
                wait(subs[way])
                seconds[way] = -1.0
            except KeyboardInterrupt:
                seconds[way] = time.monotonic() - sent[0]
            timer.join()
    comm.barrier()
    for sub in subs.values():
        sub.close()
    return seconds


def sleep_and_meet(comm: Any, seconds: float, timeout: float) -> float:
    """The whole job may be stopped meanwhile."""
    comm.barrier()
    if comm.rank == 1:
        time.sleep(seconds)
    start = time.monotonic()
    comm.barrier(timeout=timeout)
    return time.monotonic() - start


def watch_by_number(comm: Any) -> str:
    """Where the kernel has no pidfd, a process is known by its number."""
    pid = comm.all_gather_object(os.getpid())[1]
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm._native().watch(1, -1, pid, None)
    try:
        comm.barrier()
    except pc.PeerError as error:
        return str(error)
    return ""


def abort_others(comm: Any, way: str) -> Any:
    """Rank 1 aborts while the others wait in something that is no collective on arrays."""
    sub = comm.split(0)
    comm.barrier()
    if comm.rank == 1:
        time.sleep(0.3)
        sub.abort()
        comm.barrier()
        return "AbortedError", 0.0
    start = time.monotonic()
    try:
        WAITS[way](sub)
        kind = "nothing"
    except pc.CollectiveError as error:
        kind = type(error).__name__
    seconds = time.monotonic() - start
    comm.barrier()
    return kind, seconds


def miss_an_exchange(comm: Any) -> Any:
    """The last rank does not come to a collective `empty`, nor to the communicator that others make."""
    sub = comm.split(0)
    sub.timeout = 0.4
    caught = []
    if comm.rank < comm.size - 1:
        try:
            sub.empty(10)
        except pc.CollectiveTimeoutError as error:
            caught.append((error.peer, str(error)))
    comm.barrier()
    return caught


def die_in_an_exchange(comm: Any) -> Any:
    """A member of a communicator of some ranks dies, while the others of them wait in an exchange."""
    sub = comm.split(comm.rank % 2)
    comm.barrier()
    start = time.monotonic()
    if comm.rank == 2:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    if comm.rank == 0:
        try:
            sub.empty(10)
        except pc.PeerError as error:
            return error.peer, str(error), time.monotonic() - start
    return None


def wait_for_different_things(comm: Any) -> str:
    """Rank 0 waits in a collective, rank 1 for a message from rank 0."""
    sub = comm.split(0)
    sub.barrier()
    text = ""
    try:
        if comm.rank == 0:
            sub.all_reduce(np.ones(3), timeout=0.5)
        else:
            sub.recv(source=0, tag=9)
    except pc.CollectiveError as error:
        text = f"{type(error).__name__}: {error}"
    comm.barrier()
    return text


def fail_in_a_thread(comm: Any) -> None:
    """Ranks that are threads: one raises, the others wait in a communicator that is not the first."""
    sub = comm.split(0)
    if comm.rank == 1:
        raise ZeroDivisionError("my own")
    sub.barrier()
