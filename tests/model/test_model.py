"""The protocols of csrc/shm on a machine with weak memory, explored exhaustively (machine.hpp says how)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The explorer, compiled."""
    program = tmp_path_factory.mktemp("model") / "model"
    command = ["g++", "-std=c++20", "-O1", *map(str, sorted(HERE.glob("*.cpp"))), "-o", str(program)]
    subprocess.run(command, check=True, timeout=100)
    return str(program)


def explored(program: str, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_protocol_holds_and_every_mutant_is_caught(model: str) -> None:
    lines = explored(model).splitlines()
    assert lines[-1].endswith(" 0 wrong")
    held = [line for line in lines if line.endswith("no violation")]
    assert len(held) >= 23 and len(lines) - 1 - len(held) >= 98, lines


@pytest.mark.slow
@pytest.mark.timeout(390)
def test_longer_runs(model: str) -> None:
    explored(model, "--slow")
