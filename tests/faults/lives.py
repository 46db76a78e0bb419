"""The program of a rank, and the fault that happens to one of them."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import time
import traceback

import numpy as np
from catalogue import check
from judgement import Outcome
from scenarios import PATIENCE, Scenario, options

import pycollectives as pc
from pycollectives import _core
from pycollectives.bootstrap.client import Connection, SocketRendezvous
from pycollectives.bootstrap.wire import Channel


def live(comm: pc.Communicator, plan: Scenario, outcome: Outcome) -> None:
    """The program of a rank. Raises what the library raises."""
    mine = comm.rank == plan.victim
    for i, call in enumerate(plan.calls):
        if i == plan.at and plan.fault == "stop":
            comm.barrier()  # all begin to lose their patience at the same time
            comm.timeout = PATIENCE if not mine else 10.0
        if i == plan.at and (mine or plan.fault == "jitter"):
            outcome.fault = time.monotonic()
            begin(comm, plan)
        changed = options(call)
        if plan.fault == "disagree" and mine and i == plan.at:
            changed["count"] += 1
        check(comm, **changed)
        if plan.mixed:
            mix(comm, i, outcome)
    if mine and plan.fault in (
        "kill",
        "stop",
        "raise",
        "interrupt",
    ):  # the fault may have had too few instructions
        _core.inject_fault("none")
        outcome.fault, outcome.outside = time.monotonic(), True
        if plan.fault == "raise":
            raise pc.TransportError("an injected fault")
        os.kill(
            os.getpid(),
            {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "interrupt": signal.SIGINT}[plan.fault],
        )
    if plan.fault == "leave" and mine:
        return
    for _ in range(4):
        comm.barrier()
    while plan.fault in ("abort", "killed", "massacre"):
        comm.barrier()


def begin(comm: pc.Communicator, plan: Scenario) -> None:
    """Let the fault happen, soon."""
    if plan.fault in ("kill", "stop", "raise", "interrupt", "delay"):
        _core.inject_fault(plan.fault, after=plan.after, seconds=0.2)
    elif plan.fault == "jitter":
        _core.inject_fault("jitter", seconds=1e-4, seed=plan.seed * 64 + comm.rank)
    elif plan.fault == "leave":
        comm.close()
    elif plan.fault == "abort":
        threading.Timer(plan.seconds, comm.abort).start()


def mix(comm: pc.Communicator, i: int, outcome: Outcome) -> None:
    """What is not in the catalogue."""
    sub = comm.split(comm.rank % 2, comm.rank)
    assert sub is not None
    outcome.members = sub.world_ranks
    assert sub.all_gather_object(comm.rank) == list(range(comm.rank % 2, comm.size, 2))
    outcome.members = ()
    sub.close()
    x = comm.empty(5000 + i, "float64")
    x[:] = comm.rank
    assert (comm.all_reduce(x) == sum(range(comm.size))).all()
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    assert comm.sendrecv(np.full(i * 3000, comm.rank), dest=right, source=left).tolist() == [left] * (
        i * 3000
    )


def rank(number: int, plan: Scenario, sock: socket.socket, pipe: int) -> None:
    """The life of a rank."""
    outcome = Outcome()
    try:
        connection = Connection(Channel(sock, trusted=True), number, "the launcher")
        comm = pc.Communicator(SocketRendezvous(connection, plan.size, "launcher"))
        os.write(pipe, b"r")
        try:
            live(comm, plan, outcome)
        except (pc.CollectiveError, KeyboardInterrupt) as error:
            outcome.error, outcome.text, outcome.when = type(error).__name__, str(error), time.monotonic()
            outcome.peer, outcome.trace = getattr(error, "peer", None), traceback.format_exc()
        _core.inject_fault("none")
        if (
            plan.shrinks
            and outcome.error
            and not (number == plan.victim and plan.fault in ("interrupt", "leave"))
        ):
            go_on(comm, plan)
        comm.close()
    except BaseException:
        outcome.problem = traceback.format_exc()
    data = pickle.dumps(outcome)
    while data:
        data = data[os.write(pipe, data) :]


def go_on(comm: pc.Communicator, plan: Scenario) -> None:
    """The survivors shrink the communicator, and it works."""
    gone = plan.fault in ("kill", "killed", "leave", "interrupt", "stop")
    left = [each for each in range(plan.size) if not (gone and each == plan.victim)]
    try:
        small = comm.shrink(timeout=PATIENCE if plan.fault == "stop" else 10.0)
    except pc.PeerError as error:
        if plan.fault == "stop" and comm.rank == plan.victim and "without this one" in str(error):
            return
        raise
    assert small.size == len(left) and left[small.rank] == comm.rank, (small.size, left)
    small.timeout = 10.0
    x = np.arange(1000) * (comm.rank + 1)
    assert (small.all_reduce(x) == np.arange(1000) * sum(each + 1 for each in left)).all()
    assert small.all_gather_object(comm.rank) == left
    small.close()
