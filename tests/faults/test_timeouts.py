"""`timeout=` of every single call: it ends in time, and the error says which call waited for whom."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ranks import threads

import pycollectives as pc

SECONDS = 0.15
X = np.arange(6.0)
COUNTS = [2, 4]

# What rank 1 calls. In each of them it needs rank 0, which does not come.
CALLS: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda sub: sub.all_reduce(X, timeout=SECONDS),
    "reduce": lambda sub: sub.reduce(X, root=1, timeout=SECONDS),
    "broadcast": lambda sub: sub.broadcast(X, root=0, timeout=SECONDS),
    "all_gather": lambda sub: sub.all_gather(X, timeout=SECONDS),
    "reduce_scatter": lambda sub: sub.reduce_scatter(X, timeout=SECONDS),
    "gather": lambda sub: sub.gather(X, root=1, timeout=SECONDS),
    "scatter": lambda sub: sub.scatter(X, root=0, timeout=SECONDS),
    "all_to_all": lambda sub: sub.all_to_all(X, timeout=SECONDS),
    "scan": lambda sub: sub.scan(X, timeout=SECONDS),
    "exscan": lambda sub: sub.exscan(X, timeout=SECONDS),
    "barrier": lambda sub: sub.barrier(timeout=SECONDS),
}
OTHER_WAYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "plan": ("all_reduce", lambda sub: sub.plan("all_reduce", X, timeout=SECONDS)()),
    "async": ("all_gather", lambda sub: sub.all_gather(X, async_op=True, timeout=SECONDS).wait()),
    "group": ("all_reduce", lambda sub: _in_a_group(sub)),
    "counts": ("reduce_scatter", lambda sub: sub.reduce_scatterv(X, COUNTS, timeout=SECONDS)),
    "objects": ("all_gather", lambda sub: sub.all_gather_object({"x": 1}, timeout=SECONDS)),
}


def _in_a_group(sub: Any) -> None:
    with sub.group():
        sub.all_reduce(X, timeout=SECONDS)
        sub.all_reduce(X[:2], timeout=SECONDS)


def give_up(comm: Any) -> dict[str, tuple[str, Any, float]]:
    """Seconds, error and verb of every call."""
    calls = {name: (name, call) for name, call in CALLS.items()} | OTHER_WAYS
    subs = {name: comm.split(0) for name in calls}
    found: dict[str, tuple[str, Any, float]] = {}
    if comm.rank == 1:
        for name, (verb, call) in calls.items():
            start = time.monotonic()
            try:
                call(subs[name])
            except pc.CollectiveTimeoutError as error:
                found[name] = verb, error, time.monotonic() - start
    comm.barrier()
    for sub in subs.values():
        sub.close()
    return found


def test_every_call_gives_up_in_its_own_time() -> None:
    found = threads(2, give_up)[1]
    assert found.keys() == CALLS.keys() | OTHER_WAYS.keys()
    for name, (verb, error, seconds) in found.items():
        assert SECONDS <= seconds < SECONDS + 1.0, (name, seconds)
        assert error.collective == verb and error.sequence == 1, (name, error.collective, error.sequence)
        assert error.rank == 1 and error.peer == 0, (name, error.rank, error.peer)
        text = str(error)
        assert text.startswith(f"call 1 {verb}("), text
        assert f"timed out after {SECONDS} s, waiting for rank 0 before its first call" in text, text


def test_a_call_without_its_own_time_has_that_of_the_communicator() -> None:
    def fn(comm: Any) -> float:
        sub = comm.split(0)
        sub.timeout = SECONDS
        start = time.monotonic()
        if comm.rank == 1:
            try:
                sub.barrier(timeout=4 * SECONDS)
            except pc.CollectiveTimeoutError as error:
                assert "after 0.6 s" in str(error), error
        comm.barrier()
        return time.monotonic() - start

    assert min(threads(2, fn)) >= 4 * SECONDS
