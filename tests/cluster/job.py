"""What the ranks of the tests' jobs do: job.py FUNCTION [JSON]. Every function gets the communicator of all ranks.

What a rank has to say to its test goes into the file that JOB_SAYS names: mpiexec may be cut off.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "communicator"))
sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import catalogue
import numpy as np
import reference
import shrink_ranks

import pycollectives as pc
from pycollectives import _core
from pycollectives.bootstrap import spanning
from pycollectives.cost.crossing import crossing
from pycollectives.schedule import COLLECTIVES, find, names


def say(**what: Any) -> None:
    with open(os.environ["JOB_SAYS"], "ab", buffering=0) as file:
        file.write((json.dumps(what) + "\n").encode())


def catch(call: Callable[[], Any]) -> dict[str, Any]:
    """What a call raises, and after how long."""
    start = time.monotonic()
    try:
        call()
    except pc.CollectiveError as error:
        return {
            "error": type(error).__name__,
            "text": str(error),
            "peer": error.peer,
            "seconds": time.monotonic() - start,
        }
    return {"error": "", "text": "", "peer": None, "seconds": time.monotonic() - start}


def everything(comm: Any, counts: list[int], dtypes: list[str]) -> None:
    """Every verb by every algorithm at every root, point-to-point messages, objects, splits, symmetric memory."""
    made = catalogue.every_algorithm(comm, counts, dtypes)
    made += aware(comm, counts, dtypes)
    for verb in ("barrier",):
        for name in names(verb):
            if not find(verb, name).on(comm.hosts).obstacle(comm.size):
                comm.barrier(algorithm=name)
                made += 1
    messages(comm)
    symmetric(comm)
    for key in (comm.rank % 2, 0):
        part = comm.split(key, key=-comm.rank)
        made += catalogue.every_algorithm(part, counts[:2], dtypes[:1])
        part.close()
    comm.barrier()
    say(rank=comm.rank, hosts=comm.hosts, made=made)


LAYOUTS = {2: ("2x1",), 3: ("2+1",), 4: ("2x2", "0,1,0,1", "3+1"), 8: ("2x4", "4x2", "5+3")}
GRIDS = {
    4: ("torus(2x2)", "blueconnect(2x2)"),
    8: ("torus(2x4)", "torus(4x2)", "blueconnect(4x2)", "blueconnect(2x2x2)"),
}


def aware(comm: Any, counts: list[int], dtypes: list[str]) -> int:
    """Algorithms with a placement, a grid or levels of their own, as a user names them."""
    made = 0
    for verb in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"):
        placed = [
            name for name in names(verb) if getattr(find(verb, name).parameter, "form", "") == "HOSTSxRANKS"
        ]
        wanted = [f"{name}({text})" for name in placed for text in LAYOUTS.get(comm.size, ())]
        wanted += [text for text in GRIDS.get(comm.size, ()) if text.partition("(")[0] in names(verb)]
        for text in wanted:
            if find(verb, text).obstacle(comm.size):  # one that takes hosts of equally many ranks only
                assert "+" in text or "," in text, text
                continue
            for root in range(comm.size if COLLECTIVES[verb].rooted else 1):
                for count in counts:
                    catalogue.check(comm, verb, text, count, dtypes[made % len(dtypes)], root, "call", made)
                    made += 1
    return made


def levels(comm: Any) -> None:
    """Compositions of several levels on several ranks of several hosts."""
    assert comm.size == 8 and aware(comm, [1000], ["float32", "int64"]) > 50
    say(rank=comm.rank, hosts=comm.hosts)


def messages(comm: Any) -> None:
    """Point-to-point messages of every pair, all sizes, and objects."""
    me, n = comm.rank, comm.size
    for count in (0, 1, 1000, 100_000, 1_500_000):
        for shift in range(1, n):
            to, source = (me + shift) % n, (me - shift) % n
            got = comm.sendrecv(np.arange(count) * (me + 1), to, source, tag=shift)
            assert np.array_equal(got, np.arange(count) * (source + 1)), (count, shift)
    if me == 0:
        found = {comm.recv_from(tag=3).source for _ in range(n - 1)}
        assert found == set(range(1, n))
    else:
        comm.send(np.full(10, me), 0, tag=3)
    work = [comm.recv(source=peer, tag=9, async_op=True) for peer in range(n) if peer != me]
    for peer in range(n):
        if peer != me:
            comm.send(np.full(50_000, me), peer, tag=9)
    assert sorted(int(each.wait()[0]) for each in work) == [peer for peer in range(n) if peer != me]
    assert comm.all_gather_object({"rank": me}) == [{"rank": r} for r in range(n)]
    assert comm.broadcast_object("x" * 100_000 if me == 1 else None, root=1) == "x" * 100_000


def symmetric(comm: Any) -> None:
    """Arrays in symmetric memory are shared inside a host and right everywhere."""
    x, y = comm.empty(300_000), comm.empty((7, 1000), "int64")
    for turn in range(3):
        x[:] = comm.rank + turn
        comm.all_reduce(x, out=x)
        assert (x == sum(range(comm.size)) + turn * comm.size).all()
        y[:] = comm.rank * 7 + turn
        got = comm.all_gather(y)
        assert all((got[r] == r * 7 + turn).all() for r in range(comm.size))
    del x
    z = comm.empty(10)
    z[:] = 1
    assert (comm.all_reduce(z) == comm.size).all()


def numbers(comm: Any) -> None:
    """Sums of small floats are rounded once, and every rank has the same bits."""
    for dtype in ("bfloat16", "float16", "float8_e4m3fn", "float32"):
        xs = [
            reference.values(dtype, (5000,), np.random.default_rng([7, r]), exact=False)
            for r in range(comm.size)
        ]
        for name in names("all_reduce"):
            if find("all_reduce", name).on(comm.hosts).obstacle(comm.size):
                continue
            got = comm.all_reduce(xs[comm.rank], algorithm=name)
            assert reference.close("sum", got, xs), (dtype, name)
            digests = comm.all_gather_object(got.tobytes())
            assert all(each == digests[0] for each in digests), (dtype, name)


def training(comm: Any) -> None:
    """The example learns the same on all hosts together as on each rank alone."""
    import data_parallel  # and scikit-learn, which takes a second: the other functions do without

    alone = comm.split(comm.rank)
    curves = [data_parallel.train(each, 4, 128, 0.1, True) for each in (alone, comm)]
    assert [each["ranks"] for each in curves] == [1, comm.size]
    assert np.allclose(curves[0]["loss"], curves[1]["loss"], rtol=0, atol=1e-9), curves
    assert curves[0]["accuracy"] == curves[1]["accuracy"] > 0.5, curves
    alone.close()


def choices(comm: Any) -> None:
    """Where ranks share hosts the choice for short data sends fewer messages between hosts than all to all."""
    found = comm.explain("all_reduce", nbytes=8)
    chosen = find("all_reduce", found.chosen).on(comm.hosts)
    direct = crossing(find("all_reduce", "one_shot"), comm.size, comm.hosts)
    assert crossing(chosen, comm.size, comm.hosts).crowded < direct.crowded, str(found)
    assert "cannot be run" not in str(found), str(found)


def traffic(comm: Any) -> None:
    """The user's own messages and those of collectives do not meet, though the user's receives take any tag from anybody."""
    from mpi4py import MPI

    world, me, n = MPI.COMM_WORLD, comm.rank, comm.size
    got = [np.zeros(1000) for _ in range(n - 1)]
    waiting = [world.Irecv(each, MPI.ANY_SOURCE, MPI.ANY_TAG) for each in got]
    for count in (1, 1000, 100_000):
        assert (comm.all_reduce(np.full(count, me + 1.0)) == n * (n + 1) / 2).all()
        assert comm.all_gather_object(me) == list(range(n))
    assert not any(each.Test() for each in waiting)
    comm.barrier()
    for shift in range(1, n):
        world.Send(np.full(1000, 10.0 + me), (me + shift) % n, tag=shift)
        comm.all_reduce(np.ones(2000))
    MPI.Request.Waitall(waiting)
    assert sorted(each[0] for each in got) == [10 + rank for rank in range(n) if rank != me]
    assert all((each == each[0]).all() for each in got)


def mpi_errors(comm: Any) -> None:
    """What MPI refuses is an error with MPI's own words, and the communicator goes on."""
    network = comm._network
    try:
        network.library.round_trips(network.handle, comm.rank, comm.size + 7, 1, 8, 1)
    except pc.TransportError as error:
        assert "rank" in str(error).lower() and ("MPI_Isend: " in str(error) or "MPI_Irecv: " in str(error))
    else:
        raise AssertionError("MPI has sent to a rank that does not exist")
    assert comm.all_reduce(np.ones(10))[0] == comm.size


def library(comm: Any) -> None:
    """What the data travels by."""
    from mpi4py import MPI

    what = {"vendor": MPI.get_vendor()[0], "handle_bytes": MPI._sizeof(MPI.Comm)}
    say(rank=comm.rank, path=comm._network.library.path, **what)


def large(comm: Any, nbytes: int) -> None:
    """More than 2^31 bytes in one call, and in one exchange as of device memory."""
    network, peer = comm._network, 1 - comm.rank
    x, y = np.full(nbytes, comm.rank + 1, np.int8), np.zeros(nbytes, np.int8)
    x[-1] = 50 + comm.rank
    exchange = _core.DirectExchange(
        comm._native(), network.library, network.handle, list(comm.world_ranks), comm._first_tag
    )
    exchange.start([(peer, y.ctypes.data, nbytes)], [(peer, x.ctypes.data, nbytes)])
    assert exchange.wait(100.0)
    assert y[0] == y[1 << 30] == y[1 << 31] == peer + 1 and y[-1] == 50 + peer
    del y
    comm.all_reduce(x, out=x)
    assert x[0] == x[nbytes // 2] == x[-2] == 3 and x[-1] == 101
    say(rank=comm.rank, done=nbytes)


def soak(comm: Any, operations: int, seed: int) -> None:
    """Random operations on random communicators."""
    say(rank=comm.rank, made=catalogue.soak(comm, operations, seed))


def disagreements(comm: Any) -> None:
    """One after the other, on a communicator each; the communicator that they were made from goes on."""
    for what in ("verb", "count", "algorithm", "op"):
        part = comm.split(0)
        disagree(part, what)
        assert int(comm.all_reduce(np.ones(1))[0]) == comm.size
        part.close()


def disagree(comm: Any, what: str) -> None:
    """Rank 1 calls something else; nobody's output changes."""
    out = np.full(comm.size * 1000, 7.0)
    x = np.ones(1000)

    def call() -> None:
        odd = comm.rank == 1
        if what == "verb":
            comm.broadcast(x, root=0) if odd else comm.all_reduce(np.ones(comm.size * 1000), out=out)
        elif what == "count":
            comm.all_gather(
                np.ones(999), out=out[: comm.size * 999].reshape(comm.size, 999)
            ) if odd else comm.all_gather(x, out=out.reshape(comm.size, 1000))
        elif what == "algorithm":
            comm.all_reduce(np.ones(out.size), out=out, algorithm="recursive_doubling" if odd else "ring")
        elif what == "op":
            comm.all_reduce(
                np.ones(out.size), "max" if odd else "sum", out=out, algorithm="recursive_doubling"
            )

    caught = catch(call)
    again = catch(comm.barrier)
    told = {"what": what, "again": again["error"], "untouched": bool((out == 7.0).all())}
    say(rank=comm.rank, **caught, **told)


def several(comm: Any, functions: list[str]) -> None:
    """Some functions, one after the other, in one job: starting one takes seconds."""
    for name in functions:
        globals()[name](comm)
    say(rank=comm.rank, done=functions)


def fail(comm: Any, how: str, rank: int, dtype: str = "float64", algorithm: str | None = None) -> None:
    """One rank ends in the middle; the others say what they notice."""
    x = np.ones(200_000, dtype)
    comm.all_reduce(x, algorithm=algorithm)
    comm.barrier()
    if comm.rank == rank:
        time.sleep(0.3)  # the others are in the next call
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "exits":
            os._exit(0)
        elif how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "leaves":
            comm.close()
            time.sleep(3)
            os._exit(0)
        elif how == "aborts":
            comm.abort()
            time.sleep(3)
            os._exit(0)

    def go_on() -> None:
        while True:
            comm.all_reduce(x, algorithm=algorithm, timeout=4.0 if how == "stopped" else None)

    caught = catch(go_on)
    say(**{"rank": comm.rank, **caught, "again": catch(lambda: comm.all_reduce(x))["error"]})
    time.sleep(1.0)
    os._exit(0)


def outlive(comm: Any, rank: int) -> None:
    """One rank dies; the others notice, and come to the ordinary end of their script."""
    x = np.ones(1000)
    comm.all_reduce(x)
    comm.barrier()
    if comm.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)

    def go_on() -> None:
        while True:
            comm.all_reduce(x)

    say(rank=comm.rank, **catch(go_on))


def regroup(
    comm: Any,
    victims: list[list[int]],
    late: list[int] = (),  # type: ignore[assignment]
    later: list[int] = (),  # type: ignore[assignment]
) -> None:
    """Some ranks die in a collective, again and again (`late`: while the others shrink; `later`: when they have agreed, also
    with it, before they meet again); what is left goes on as before, and of attempts that have failed nothing is left.

    `victims` are ranks of the job. Those that live long enough say "ready" before each loss.
    """
    me, left, before = comm.rank, list(range(comm.size)), servers()
    kept, pairs = comm.empty(5000, "int64"), comm.split(comm.rank // 2)
    kept[:] = me
    for number, lost in enumerate(victims):
        comm.barrier()
        say(rank=me, ready=number)
        if me in lost:
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        caught = catch(lambda comm=comm: [comm.all_reduce(np.ones(50_000)) for _ in range(1_000_000)])
        if me in late:
            os.kill(os.getpid(), signal.SIGKILL)
        if me in later:
            spanning.meet_again = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        start = time.monotonic()
        left = [rank for rank in left if rank not in (*lost, *late, *later)]
        broken, comm = comm, comm.shrink(timeout=20)
        broken.close()
        shrink_ranks.check(comm, left)
        say(rank=me, left=len(left), hosts=comm.hosts, took=time.monotonic() - start, **caught)
    assert (kept == me).all()
    comm.all_reduce(kept, out=kept)
    assert (kept == sum(left)).all()
    if {2 * (me // 2), 2 * (me // 2) + 1} <= {*left}:  # a communicator of others goes on
        assert pairs.all_gather_object(me) == [2 * (me // 2), 2 * (me // 2) + 1]
    comm.barrier()
    if len(set(comm.hosts)) == comm.size:  # nobody serves the ranks of a host
        want = [comm.rank == 0, before[1] - (me == 0) + (comm.rank == 0)]  # as at the start
        until = time.monotonic() + 5  # a broker ends when all have left it
        while (now := servers()) != want and time.monotonic() < until:
            time.sleep(0.02)
        assert now == want, (before, now, want)
    comm.barrier()
    say(rank=me, ended=True)
    comm.close()


def servers() -> list[int]:
    """Threads that serve exchanges, and TCP sockets of this process that listen."""
    threads = [each for each in threading.enumerate() if each.name == "pycollectives-broker"]
    listen = {
        f"socket:[{fields[9]}]"
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()
        if (fields := line.split())[3] == "0A"
    }
    mine = set()
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself
            mine.add(os.readlink(f"/proc/self/fd/{each}"))
    return [len(threads), len(listen & mine)]


def come_late(comm: Any, victim: int) -> None:
    """`victim` is stopped for longer than the others wait for it, twice; then it goes on and is told so."""
    comm.barrier()
    if comm.rank == victim:
        say(rank=comm.rank, pid=os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)
    first = catch(lambda: comm.all_reduce(np.ones(3), timeout=1.0))
    made: list[Any] = []
    caught = catch(lambda: made.append(comm.shrink(timeout=1.0)))
    if made:
        shrink_ranks.check(made[0], [rank for rank in range(comm.size) if rank != victim])
    say(rank=comm.rank, first=first["error"], **caught)
    if made:
        time.sleep(3)  # rank 0's process is needed by the one that is late
    os._exit(0)


def shrink_while_others_wait(comm: Any) -> None:
    """The last rank shrinks a communicator that nobody has left; the others wait for it in a call, and hear of it."""
    comm.barrier()
    caught = {} if comm.rank == comm.size - 1 else catch(comm.barrier)
    small = comm.shrink(timeout=20)
    shrink_ranks.check(small, list(range(comm.size)))
    say(rank=comm.rank, **caught)


def divided(comm: Any) -> None:
    """All-reduces until something happens; then on with those that can be reached. Nobody serves those that cannot."""
    comm.all_reduce(np.ones(3))
    say(rank=comm.rank, ready=True)
    caught = catch(lambda: [comm.all_reduce(np.ones(100_000)) for _ in range(1_000_000)])
    small = comm.shrink(timeout=20)
    assert small.all_gather_object(comm.rank) == [comm.world_ranks.index(r) for r in small.world_ranks]
    assert (small.all_reduce(np.ones(100_000)) == small.size).all()
    comm.close()
    until = time.monotonic() + 10
    while len(set(small.hosts)) == small.size and servers()[0] != (small.rank == 0):
        assert time.monotonic() < until, servers()
        time.sleep(0.05)
    say(rank=comm.rank, left=small.size, **caught)
    os._exit(0)


def endless(comm: Any) -> None:
    """All-reduces until something happens."""
    x = np.ones(300_000, np.float32)
    comm.all_reduce(x)
    say(rank=comm.rank, ready=True)

    def go_on() -> None:
        while True:
            comm.all_reduce(x)

    caught = catch(go_on)
    say(rank=comm.rank, **caught)
    os._exit(0)


if __name__ == "__main__":
    faulthandler.enable()
    arguments = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    faulthandler.dump_traceback_later(float(os.environ.get("JOB_SECONDS", "100")), exit=True)
    world = pc.init()
    globals()[sys.argv[1]](world, **arguments)
    world.close()
