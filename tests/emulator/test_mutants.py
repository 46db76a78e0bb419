"""A test of the tests: whatever piece of synchronisation is taken out of the kernels, somebody notices.

Random schedules find what changes results; ThreadSanitizer finds a missing order even where the result happens to be right. What
each of them misses the other one finds, so both run. LL and LL128 need no order of memory: every line is looked at.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import emulated
import pytest

HERE = Path(__file__).parent
ALL = ("simple", "ll", "ll128")
EVERY = (*ALL, "native", "multicast", "in-place", "ring", "fused")
BY_RESULTS = {
    "none": EVERY,
    "no_credit_wait": (*ALL, "ring"),
    "credit_never_given": (*ALL, "ring"),
    "credit_too_early": ALL,
    "no_barrier_at_begin": ALL,
    "no_barrier_before_work": (*ALL, "ring"),
    "no_barrier_after_work": (*ALL, "ring"),
    "no_barrier_behind_part": ("fused",),
    "counters_not_saved": (*ALL, "native", "multicast", "ring"),
    "abort_ignored": (*ALL, "ring"),
    "cell_gpu_scope": ("simple", "ring"),
    "cell_constant": ("simple", "ring"),
    "cell_not_checked": ("simple", "ring"),
    "first_flag_unchecked": ("ll",),
    "second_flag_unchecked": ("ll",),
    "no_wipe": ("ll",),
    "no_barrier_in_wipe": ("ll",),
    "wipe_not_released": ("ll",),
    "flag_constant": ("ll", "ll128"),
    "flag_without_call": ("ll", "ll128"),
    "line_flag_unchecked": ("ll128",),
    "second_line_flag_unchecked": ("ll128",),
    "no_vote": ("ll128",),
    "no_split": ("ll128",),
    "gate_before_work": ("native", "multicast"),
    "gate_not_awaited": ("native", "multicast"),
    "gate_not_checked": ("native", "multicast"),
    "gate_not_released": ("multicast",),
    "gate_gpu_scope": ("native", "multicast"),
    "no_barrier_behind_gate": ("native", "multicast"),
    "no_alias_fence": ("multicast",),
    "places_not_compared": ("in-place",),
    "gate_not_opened_again": ("in-place",),
    "inputs_compared_alone": ("in-place",),
    "outputs_compared_alone": ("in-place",),
}
BY_RACES = {
    "none": EVERY,
    "credit_not_acquired": ("simple", "ring"),
    "credit_not_released": ("simple", "ring"),
    "cell_not_released": ("simple", "ring"),
    "cell_not_acquired": ("simple", "ring"),
    "end_moves_on": ("simple",),
    "no_barrier_after_work": ("simple",),
    "gate_not_released": ("native", "multicast"),
    "gate_not_acquired": ("native", "multicast"),
}
BY_PROCESSES = {"host_abort_ignored"}  # test_processes.py
SANITIZED = "PYCOLLECTIVES_EMULATED_THREAD"  # the folder of a build with ThreadSanitizer


def pairs(table: dict[str, tuple[str, ...]]) -> list[str]:
    return [f"{name}:{protocol}" for name, protocols in table.items() for protocol in protocols]


def verdicts(*arguments: str, env: dict[str, str] | None = None) -> dict[str, str]:
    """What is noticed of each mutant."""
    done = subprocess.run(
        [sys.executable, str(HERE / "mutants.py"), *arguments],
        env=os.environ | (env or {}),
        text=True,
        capture_output=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


def library(name: str) -> str:
    return subprocess.run(
        ["g++", f"-print-file-name={name}"], text=True, capture_output=True, check=True
    ).stdout.strip()


def check(found: dict[str, str], table: dict[str, tuple[str, ...]]) -> None:
    assert list(found) == pairs(table)
    alarms = {pair: what for pair, what in found.items() if pair.startswith("none:") and what != "nothing"}
    assert not alarms, f"false alarms: {alarms}"
    missed = [
        f"{pair} ({what})"
        for pair, what in found.items()
        if not pair.startswith("none:") and what in ("nothing", "late", "error")
    ]
    assert not missed, f"nobody noticed: {missed}"


def test_every_mutant_has_a_hunter() -> None:
    assert set(emulated.mutants()) == BY_RESULTS.keys() | BY_RACES.keys() | BY_PROCESSES


def test_mutants_change_results() -> None:
    check(verdicts(*pairs(BY_RESULTS)), BY_RESULTS)


@pytest.mark.timeout(300)
def test_mutants_race() -> None:
    folder = os.environ.get(SANITIZED)
    if not folder:
        pytest.skip(f"optional: {SANITIZED} names no build with ThreadSanitizer")
    with tempfile.TemporaryDirectory() as logs:
        sanitizer = {
            "LD_PRELOAD": f"{library('libtsan.so')} {library('libstdc++.so.6')}",
            "TSAN_OPTIONS": f"log_path={logs}/race exitcode=0 halt_on_error=1",
        }
        few = ["--extension", folder, "--races", f"{logs}/race", "--seeds", "3", "--calls", "9"]
        found = verdicts(*few, *pairs(BY_RACES), env=sanitizer)
    check(found, BY_RACES)
    assert {what for pair, what in found.items() if not pair.startswith("none:")} == {"race"}
