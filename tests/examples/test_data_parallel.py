from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn", reason="optional: scikit-learn is not installed")
ROOT = Path(__file__).parents[2]


def train(*launcher: str) -> dict[str, Any]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYCOLLECTIVES_", "PMI", "OMPI_"))}
    done = subprocess.run(
        [sys.executable, *launcher, str(ROOT / "examples" / "data_parallel.py"), "--json"],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=ROOT,
        env={**env, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_same_curve_on_one_and_on_three_ranks() -> None:
    alone = train()
    together = train("-m", "pycollectives", "run", "-n", "3")
    assert (alone["ranks"], together["ranks"]) == (1, 3)
    assert together["loss"] == pytest.approx(alone["loss"], rel=0, abs=1e-9)
    assert together["accuracy"] == alone["accuracy"] > 0.9
    assert alone["loss"][-1] < alone["loss"][0] / 5
