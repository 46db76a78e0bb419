"""Ranks that are bound to cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pycollectives.bootstrap.binding import cores_of


@pytest.mark.parametrize(
    ("size", "cores", "found"),
    [
        (2, [0, 1], [{0}, {1}]),
        (4, [0, 1], [{0}, {0}, {1}, {1}]),
        (3, [0, 1], [{0}, {0}, {1}]),
        (3, list(range(8)), [{0, 1}, {2, 3, 4}, {5, 6, 7}]),
        (1, [3, 5], [{3, 5}]),
        (2, [7], [{7}, {7}]),
    ],
)
def test_shares(size: int, cores: list[int], found: list[set[int]]) -> None:
    assert [cores_of(rank, size, cores) for rank in range(size)] == found


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 64])
def test_every_core_has_a_rank_and_no_share_is_much_larger(n: int) -> None:
    for size in range(1, 70):
        shares = [cores_of(rank, size, range(n)) for rank in range(size)]
        if size >= n:
            held = [sum(core in share for share in shares) for core in range(n)]
            assert max(held) - min(held) <= 1 and all(len(share) == 1 for share in shares)
        else:
            assert sorted(core for share in shares for core in share) == list(range(n))


def test_the_launcher_binds() -> None:
    script = "import json, os; print(json.dumps(sorted(os.sched_getaffinity(0))))"
    start = [sys.executable, "-m", "pycollectives", "run", "-n", "2", "--bind"]
    done = subprocess.run(
        [*start, sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    cores = sorted(os.sched_getaffinity(0))
    want = [sorted(cores_of(rank, 2, cores)) for rank in range(2)]
    assert sorted(map(json.loads, done.stdout.splitlines())) == sorted(want)
