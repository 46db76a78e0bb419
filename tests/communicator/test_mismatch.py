"""Ranks that call different things: MismatchError on every rank, soon, and no output has changed."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from ranks import Pools

import pycollectives as pc

# name -> (what most ranks call, what one rank calls, words that every rank's text must have)
Step = tuple[str, int, str, dict[str, Any]]  # verb, elements, dtype, options
CASES: dict[str, tuple[list[Step], list[Step], list[str]]] = {
    "count": ([("all_reduce", 409600, "float32", {})], [("all_reduce", 409598, "float32", {})], ["[409600]", "[409598]"]),
    "small count": ([("all_reduce", 3, "float32", {})], [("all_reduce", 2, "float32", {})], ["float32[3]", "float32[2]"]),
    "no elements": ([("all_reduce", 0, "int8", {})], [("all_reduce", 1, "int8", {})], ["int8[0]", "int8[1]"]),
    "dtype": ([("all_reduce", 100, "float32", {})], [("all_reduce", 100, "float16", {})], ["float32[100]", "float16[100]"]),
    "operator": ([("all_reduce", 100, "float32", {})], [("all_reduce", 100, "float32", {"op": "max"})], ["sum", "max"]),
    "factor": (
        [("all_reduce", 9, "float32", {"op": pc.scaled_sum(2)})],
        [("all_reduce", 9, "float32", {"op": pc.scaled_sum(3)})],
        ["scaled_sum"],
    ),
    "root of a broadcast": ([("broadcast", 8, "int64", {})], [("broadcast", 8, "int64", {"root": 1})], ["root=0", "root=1"]),
    "root of a reduction": ([("reduce", 8, "int64", {})], [("reduce", 8, "int64", {"root": 1})], ["root=0", "root=1"]),
    "verb": ([("all_reduce", 64, "float64", {})], [("broadcast", 64, "float64", {})], ["all_reduce(", "broadcast("]),
    "barrier": ([("barrier", 0, "uint8", {})], [("all_reduce", 64, "float64", {})], ["barrier(", "all_reduce("]),
    "gather and scatter": (
        [("all_gather", 48, "float64", {})],
        [("reduce_scatter", 48, "float64", {})],
        ["all_gather(", "reduce_scatter("],
    ),
    "algorithm": (
        [("all_reduce", 64, "float64", {"algorithm": "ring"})],
        [("all_reduce", 64, "float64", {"algorithm": "two_shot"})],
        ["all_reduce("],
    ),
    "deterministic": (
        [("all_reduce", 64, "float64", {"algorithm": "two_shot"})],
        [("all_reduce", 64, "float64", {"algorithm": "two_shot", "deterministic": True})],
        ["deterministic"],
    ),
    "order": (
        [("all_reduce", 8, "int32", {}), ("broadcast", 8, "int32", {})],
        [("broadcast", 8, "int32", {}), ("all_reduce", 8, "int32", {})],
        ["all_reduce(", "broadcast("],
    ),
    "one call more": (
        [("all_reduce", 8, "int32", {}), ("barrier", 0, "uint8", {})],
        [("barrier", 0, "uint8", {})],
        ["all_reduce(", "barrier("],
    ),
}  # fmt: skip


def make(comm: Any, step: Step, odd: bool) -> None:
    """Makes a call; nothing has been written if it fails."""
    verb, count, dtype, options = step
    x = (np.arange(count) + comm.rank).astype(dtype)
    results = {"all_gather": count * comm.size, "reduce_scatter": count // comm.size}.get(verb, count)
    before = np.full(results, 77, dtype)
    out = before.copy()
    arguments = {} if verb == "barrier" else {"x": x, "out": out, **options}
    try:
        if odd:
            getattr(comm, verb)(**arguments)
        else:
            getattr(comm, verb)(**arguments)
    except pc.CollectiveError:
        # A broadcast waits for the root alone, whose data may have come when another rank calls something else.
        came = verb == "broadcast" and np.array_equal(out, np.arange(count) + options.get("root", 0))
        assert came or np.array_equal(out, before), "the output has changed"
        raise


def disagree(comm: Any, name: str, odd: int) -> tuple[float, str, Any, float]:
    most, one, _ = CASES[name]
    sub = comm.split(0)
    start = time.monotonic()
    with pytest.raises(pc.MismatchError) as caught:
        for step in one if comm.rank == odd else most:
            make(sub, step, comm.rank == odd)
        for _ in range(4):  # a rank that waits for nobody learns of it in its next calls
            sub.barrier()
    seconds = time.monotonic() - start
    start = time.monotonic()
    with pytest.raises(pc.MismatchError):
        sub.all_reduce(np.ones(3))
    again = time.monotonic() - start
    comm.barrier()  # the parent is unharmed
    sub.close()
    return seconds, str(caught.value), caught.value.sequence, again


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_rank_raises(pools: Pools, size: int, name: str) -> None:
    for odd in range(size):
        for seconds, text, _sequence, again in pools(size).run(disagree, name, odd):
            assert seconds < 1.0, text
            assert all(word in text for word in CASES[name][2]), text
            assert f"rank {odd} called" in text, text
            assert len(set(re.findall(r"test_mismatch\.py:(\d+)", text))) == 2, text
            assert again < 1


def from_code_that_is_gone(comm: Any) -> str:
    """Calls issued by functions that exist no more when the calls run."""
    sub, works = comm.split(0), []
    comm.barrier()
    if comm.rank == 0:
        time.sleep(0.2)
    for i in range(400):
        names: dict[str, Any] = {}
        text = "def issue(comm, x):\n    return comm.all_reduce(x, async_op=True)\n"
        exec(compile(text, f"generated_{i}.py", "exec"), names)
        works.append(names["issue"](sub, np.ones(5 + (comm.rank if i == 3 else 0))))
    with pytest.raises(pc.MismatchError) as caught:
        works[3].wait()
    comm.barrier()
    return str(caught.value)


def test_the_site_of_a_call_whose_code_is_gone(pools: Pools) -> None:
    for text in pools(2).run(from_code_that_is_gone):
        assert "call 4" in text and set(re.findall(r"generated_\d+\.py", text)) == {"generated_3.py"}, text


def no_false_alarm(comm: Any) -> None:
    """Different ranks of different communicators call different things."""
    pair, all_of_us, mirrored = comm.split(comm.rank % 2), comm.split(0), comm.split(0, -comm.rank)
    rng = np.random.default_rng(5)
    for i in range(1000):
        which = rng.integers(3)
        n = int(rng.integers(1, 300))
        if which == 0:
            n += 1000 * (comm.rank % 2)  # the two pairs need not agree
        sub = (pair, all_of_us, mirrored)[which]
        got = sub.all_reduce(np.full(n, sub.rank + i))
        assert (got == sum(range(sub.size)) + i * sub.size).all()
    for sub in (pair, all_of_us, mirrored):
        sub.close()


def test_no_false_alarm_over_interleaved_communicators(pools: Pools) -> None:
    pools(4).run(no_false_alarm)
