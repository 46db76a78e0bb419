"""Whom the report of the last calls blames, in situations that a job reaches only by chance."""

from __future__ import annotations

from typing import Any

import pytest

from pycollectives import flight


def call(sequence: int, state: str) -> dict[str, Any]:
    ended = 0 if state == "running" else 2000
    return {
        "sequence": sequence,
        "call": "all_reduce(float32[8], sum)",
        "collective": "all_reduce",
        "site": "train.py:88",
        "state": state,
        "started_ns": 1000,
        "ended_ns": ended,
    }


def snapshot(*calls: tuple[int, str], dead: int) -> dict[str, Any]:
    """Each rank's last call; rank `dead` was killed."""
    ranks = [
        {
            "rank": i,
            "job_rank": i,
            "pid": 100 + i,
            "left_ns": 0,
            "error": "",
            "awaits": (0, 0),
            "calls": [call(*last)],
        }
        for i, last in enumerate(calls)
    ]
    return {
        "communicators": [{"name": "world", "ranks": ranks}],
        "clock_ns": 5000,
        "processes": {str(dead): {"state": "dead"}},
        "ended": {str(dead): "died of SIGKILL (signal 9)"},
    }


@pytest.mark.parametrize(
    ("calls", "dead", "blamed"),
    [
        ([(6, "running"), (6, "running"), (6, "running")], 1, [1]),
        ([(6, "running"), (5, "done"), (6, "running")], 1, [1]),
        ([(6, "running"), (6, "running"), (5, "done")], 1, [1, 2]),  # rank 2 has not come yet
        ([(5, "done"), (6, "running"), (5, "done")], 2, [2, 0]),
        ([(6, "failed"), (6, "running"), (6, "failed")], 1, [1]),
    ],
)
def test_the_dead_are_named_first(calls: list[tuple[int, str]], dead: int, blamed: list[int]) -> None:
    found = flight.findings(snapshot(*calls, dead=dead))
    assert [int(line.split("rank ")[1].split()[0]) for line in found[: len(blamed)]] == blamed
    assert "for it in call 6 all_reduce(float32[8], sum)" in found[len(blamed)]
