"""Good manners on the host: little processor time, few files, no thread without need, forks."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
from ranks import Pools


def wait_two_seconds(comm: Any, way: str) -> float:
    sub = comm.split(0)
    x = np.ones(1000)
    if comm.rank == 1:
        time.sleep(2)
    start = time.process_time()
    if way == "call":
        sub.all_reduce(x)
    else:
        sub.all_reduce(x, async_op=True).wait()
    return time.process_time() - start


@pytest.mark.parametrize("way", ["call", "async"])
def test_waiting_costs_little(pools: Pools, way: str) -> None:
    waited, _ = pools(2).run(wait_two_seconds, way)
    assert waited < 0.2


def waiting_thread(comm: Any) -> None:
    if comm.rank:
        time.sleep(1)
    comm.barrier()


def test_waiting_threads_cost_little() -> None:
    start = time.process_time()
    ranks.threads(4, waiting_thread)
    assert time.process_time() - start < 0.5


def many_small(comm: Any, calls: int) -> float:
    x = np.ones(1)
    comm.all_reduce(x)
    start = time.monotonic()
    for _ in range(calls):
        comm.all_reduce(x, out=x)
    return time.monotonic() - start


def test_more_ranks_than_cores(fresh: Any) -> None:
    assert max(fresh(8).run(many_small, 1000)) < 5.0


def more_threads_than_cores() -> list[float]:
    return ranks.threads(8, many_small, 300)


def test_more_threads_than_cores() -> None:
    assert max(more_threads_than_cores()) < 5.0


def open_files() -> list[str]:
    return sorted(
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    )


def alone_in_the_world(comm: Any) -> tuple[int, int]:
    before = len(open_files()), len(os.listdir("/proc/self/task"))
    comm.all_reduce(np.ones(100))
    comm.all_reduce(np.ones(100), "avg")
    comm.broadcast(np.ones(3))
    comm.barrier()
    comm.empty(10)
    comm.split(0).all_gather(np.ones(3))
    return len(open_files()) - before[0], len(os.listdir("/proc/self/task")) - before[1]


def test_one_rank_needs_nothing(fresh: Any) -> None:
    assert fresh(1).run(alone_in_the_world) == [(0, 0)]


def look_around(comm: Any) -> tuple[Any, ...]:
    comm.all_reduce(np.ones(1000))
    without = len(os.listdir("/proc/self/task"))
    comm.all_reduce(np.ones(1000), async_op=True).wait()
    shared = [path for path in open_files() if "pycollectives" in path]
    return without, len(os.listdir("/proc/self/task")), shared, os.sched_getaffinity(0)


def test_threads_and_files(fresh: Any) -> None:
    """A progress thread comes with the first asynchronous call; no memory file stays open; the affinity is as it was."""
    named = sorted(os.listdir("/dev/shm"))
    for without, with_progress, shared, affinity in fresh(2).run(look_around):
        assert with_progress == without + 1
        assert shared == [] and affinity == os.sched_getaffinity(0)
    assert sorted(os.listdir("/dev/shm")) == named


# -- fork ------------------------------------------------------------------------------------------------------


def tried(make: Any) -> str:
    try:
        make()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def fork(comm: Any, pending: bool, code: int) -> tuple[int, list[str]]:
    """Uses the communicator in a child in every way, and leaves by the interpreter's normal end."""
    x = np.ones(1000)
    sub = comm.split(0)
    shared = comm.empty(100_000)
    again = comm.plan("all_reduce", x)
    comm.all_reduce(x)
    again()
    work = None
    if pending:
        comm.all_reduce(x, async_op=True).wait()
        if comm.rank == 0:  # the progress thread is inside a call while this process forks
            work = sub.all_reduce(x, async_op=True)
            time.sleep(0.1)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        ways = [
            lambda: comm.all_reduce(x),
            lambda: comm.all_reduce(x, out=x),
            lambda: comm.all_reduce(x, async_op=True),
            lambda: again(),
            comm.barrier,
            lambda: comm.split(0),
            lambda: comm.empty(3),
            lambda: comm.history(),
        ]
        if work is not None:
            ways.append(work.wait)
        os.write(write_end, "\n".join(tried(way) for way in ways).encode())
        os.close(write_end)
        comm.abort()
        comm.close()
        rubbish = [mmap.mmap(-1, 400_000) for _ in range(50)]  # lies where the parent has shared memory
        del shared, again, sub, work
        comm._regions = None  # the last that knows of the array
        gc.collect()
        assert all(piece[:] == bytes(400_000) for piece in rubbish)
        raise SystemExit(code)
    os.close(write_end)
    os.set_blocking(read_end, True)
    text = b""
    while piece := os.read(read_end, 65536):
        text += piece
    os.close(read_end)
    status = waited(pid)
    for i in range(20):
        assert (comm.all_reduce(x + i) == (1 + i) * comm.size).all()
    got = (work or sub.all_reduce(x, async_op=True)).wait()
    assert (got == comm.size).all()
    return status, text.decode().split("\n")


def waited(pid: int) -> int:
    """The exit code of a child, which gets ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGABRT)
    os.waitpid(pid, 0)
    return -999


@pytest.mark.parametrize("pending", [False, True])
def test_fork(fresh: Any, pending: bool) -> None:
    for status, errors in fresh(2).run(fork, pending, 3):
        assert status == 3
        assert not [
            text
            for text in errors
            if not text.startswith("BootstrapError: this communicator was made before")
        ]


def fork_in_a_thread(comm: Any) -> int:
    """A fork while other threads are inside calls."""
    if comm.rank == 0:
        pid = os.fork()
        if pid == 0:
            os._exit(5)
        code = waited(pid)
    else:
        code = 5
    comm.barrier()
    return code


def test_fork_beside_ranks_that_wait() -> None:
    assert ranks.threads(3, fork_in_a_thread) == [5] * 3


def test_shared_memory_is_not_needed_by_name(fresh: Any) -> None:
    """Nothing is left in /dev/shm and the temporary folder when all ranks are killed."""
    before = sorted(os.listdir("/dev/shm")), sorted(p.name for p in Path("/tmp").glob("*pycollectives*"))
    for _ in range(3):
        job = fresh(2)
        job.start(many_small, 10_000_000)
        for pid in job.pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ranks.RankFailed):
            job.finish(timeout=10)
        job.close()
        assert not [pid for pid in job.pids if Path(f"/proc/{pid}").exists()]
    assert (
        sorted(os.listdir("/dev/shm")),
        sorted(p.name for p in Path("/tmp").glob("*pycollectives*")),
    ) == before
