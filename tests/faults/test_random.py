"""Random faults at random points of random programs: see nursery.py and scenarios.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import FOREIGN

NURSERY = Path(__file__).with_name("nursery.py")


def try_seeds(folder: Path, first: int, count: int, seconds: float, *fault: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    done = subprocess.run(
        [sys.executable, str(NURSERY), str(first), str(count), *fault],
        env=env | {"TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout[-10000:] + done.stderr[-10000:]
    assert f"{count} of {count} seeds from {first} on went well" in done.stdout
    assert not list(folder.iterdir())


def test_some_seeds(tmp_path: Path) -> None:
    try_seeds(tmp_path, 0, 44, 110)  # each fault four times


def test_a_hundred_jobs_whose_ranks_are_all_killed_leave_nothing(tmp_path: Path) -> None:
    try_seeds(tmp_path, 0, 100, 100, "massacre")


@pytest.mark.slow
@pytest.mark.timeout(390)
@pytest.mark.parametrize("first", range(1000, 4000, 300))
def test_many_seeds(tmp_path: Path, first: int) -> None:
    try_seeds(tmp_path, first, 300, 380)
