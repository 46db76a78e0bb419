"""A job that goes on when it loses ranks: examples/elastic.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn", reason="optional: scikit-learn is not installed")
pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]


def train(folder: Path, ranks: int, *options: str, code: int) -> dict[str, Any]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYCOLLECTIVES_", "PMI", "OMPI_"))}
    script = str(ROOT / "examples" / "elastic.py")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pycollectives",
            "run",
            "-n",
            str(ranks),
            "--keep-going",
            script,
            "--json",
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_curve_is_the_same_with_and_without_losses(tmp_path: Path) -> None:
    whole = train(tmp_path, 2, "--epochs", "6", code=0)
    assert (whole["ranks"], whole["lost"]) == (2, 0)
    # Rank 2 first; then rank 0, which has written the checkpoints.
    disturbed = train(tmp_path, 4, "--epochs", "6", "--lose", "2", "0", "--in-epoch", "2", code=137)
    assert (disturbed["ranks"], disturbed["lost"]) == (2, 2)
    assert disturbed["loss"] == pytest.approx(whole["loss"], rel=0, abs=1e-9)
    assert whole["loss"][-1] < whole["loss"][0] / 3
