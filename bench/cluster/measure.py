"""A rank of run.py: times pycollectives and the MPI library beside each other, in one job, in turns.

measure.py JSON    {"sizes": [...], "rounds": n, "algorithms": [...], "seconds": s}

Every round makes one call of each contender at each size. All hosts are namespaces of one machine and have one clock: the ranks
begin a call at a time that rank 0 has named, and its time is that from then until the slowest rank has returned. (A barrier
lets its ranks go up to a round of messages apart, or a slice of the scheduler's.) Results of both are compared with what they
must be. Rank 0 prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import pycollectives as pc


def goodput(world: Any, there: int, nbytes: int) -> float:
    """Seconds per byte of a plain transfer from rank 0 to `there`, one of another host, with an answer."""
    data, answer = np.zeros(nbytes, np.uint8), np.zeros(1, np.uint8)
    world.Barrier()
    start = time.perf_counter()
    if world.rank == 0:
        world.Send(data, there)
        world.Recv(answer, there)
    elif world.rank == there:
        world.Recv(data, 0)
        world.Send(answer, 0)
    took = time.perf_counter() - start
    return float(world.bcast(took, 0)) / nbytes


def slowest(comm: Any, call: Callable[[], Any], margin: float) -> float:
    """The time of one call, from a common start until the slowest rank has returned; `margin`: seconds until the start."""
    start = float(comm.broadcast(np.array([time.monotonic() + margin]))[0])
    time.sleep(max(0.0, start - time.monotonic() - 300e-6))
    while time.monotonic() < start:
        os.sched_yield()
    call()
    return float(comm.all_reduce(np.array([time.monotonic() - start]), "max")[0])


def contenders(
    world: Any, comm: Any, x: Any, out: Any, algorithms: list[str]
) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    found: dict[str, Callable[[], Any]] = {"MPI": lambda: world.Allreduce(x, out)}
    for name in algorithms:
        chosen = None if name == "auto" else name
        found[name] = comm.plan("all_reduce", x, out=out, algorithm=chosen)
    return found


def main() -> None:
    """All sizes."""
    asked = json.loads(sys.argv[1])
    comm = pc.init()
    world = MPI.COMM_WORLD
    there = next((rank for rank, host in enumerate(comm.hosts) if host != comm.hosts[0]), 0)
    report: dict[str, Any] = {"hosts": comm.hosts, "library": MPI.get_vendor()[0], "rows": []}
    if there:
        goodput(world, there, 1 << 16)
        report["goodput"] = sorted(goodput(world, there, asked["pair"]) for _ in range(3))[1]
        report["round_trip"] = sorted(goodput(world, there, 1) for _ in range(9))[4]
    margin = 2e-3 + 3 * float(world.bcast(report.get("round_trip", 0.0), 0))
    for nbytes in asked["sizes"]:
        count = max(1, nbytes // 4)
        x = (np.arange(count) % 977 + comm.rank).astype(np.float32)
        want = (np.arange(count) % 977 * comm.size + sum(range(comm.size))).astype(np.float32)
        out = np.empty_like(x)
        calls = contenders(world, comm, x, out, asked["algorithms"])
        times: dict[str, list[float]] = {name: [] for name in calls}
        for name, call in calls.items():
            out[:] = -1
            call()
            assert np.array_equal(out, want), f"{name} is wrong at {nbytes} bytes"
        until = time.perf_counter() + asked["seconds"]
        rounds = 0
        while rounds < asked["rounds"] and bool(world.bcast(time.perf_counter() < until or rounds < 3, 0)):
            for name, call in calls.items():
                times[name].append(slowest(comm, call, margin))
            rounds += 1
        chosen = comm.explain("all_reduce", nbytes=nbytes).chosen
        report["rows"].append({"nbytes": nbytes, "auto": chosen, "times": times})
    if comm.rank == 0:
        print(json.dumps(report), flush=True)
    comm.close()


if __name__ == "__main__":
    main()
