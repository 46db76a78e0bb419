"""`make gpu-check` on the emulated device: that it works when a GPU is at hand, and says so when something fails."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pycollectives as pc

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.gpu.summary import goals, markdown  # noqa: E402 - not a package that is installed


def check(folder: Path, *arguments: str, emulated: bool = True) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "bench.gpu", "--out", str(folder), *arguments]
    command += ["--emulated"] if emulated else []
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (folder / "gpu-check.json").exists(), done.stdout + done.stderr
    found = json.loads((folder / "gpu-check.json").read_text())
    return done.returncode, found, (folder / "gpu-check.md").read_text()


@pytest.mark.skipif(len(pc.__path__) > 1, reason="optional: another build of the device is in use")
def test_measurements(tmp_path: Path) -> None:
    """Every kind of row is made, with a right result; the goals are looked for in rows that exist."""
    status, found, text = check(tmp_path, "--steps", "memcheck,measure", "--minutes", "2")
    assert status == 0, text
    assert [step["result"] for step in found["steps"]] == ["skipped", "passed"]
    rows = found["measured"]["rows"]
    assert not [row for row in rows if row["error"]] and found["measured"]["left_out"] == 0
    kinds = {row["what"] for row in rows}
    assert {"copy kernel", "n-ary reduction kernel", "native two-shot", "ring", "double_binary_tree"} <= kinds
    assert {"8 bytes, native one-shot", "8 bytes, native one-shot, in a graph"} <= kinds
    assert all(row["microseconds"] > 0 for row in rows)
    assert "| ring | 3 | 2 KiB |" in text and "Not compared: nccl" in text
    unmeasured = [goal for goal, measured, _ in goals(rows) if measured.startswith("not measured")]
    assert len(unmeasured) == 1  # 8 ranks are too many here


@pytest.mark.skipif(len(pc.__path__) > 1, reason="optional: another build of the device is in use")
def test_a_step_that_fails(tmp_path: Path) -> None:
    """Its time is over: it is stopped with all its children, and the report says so."""
    status, found, text = check(tmp_path, "--steps", "tests", "--minutes", "0.03")
    assert status == 1 and found["steps"][0]["result"] == "failed" and "time" in found["steps"][0]["note"]
    assert "| tests | failed |" in text


def test_without_a_gpu(tmp_path: Path) -> None:
    """Nothing that is skipped or missing passes for checked."""
    if importlib.util.find_spec("cupy") and importlib.util.find_spec("pycollectives._cuda"):
        pytest.skip("optional: there may be a GPU")
    status, found, text = check(tmp_path, "--steps", "tests,measure", "--minutes", "1.5", emulated=False)
    assert status == 1 and [step["result"] for step in found["steps"]] == ["failed", "failed"], text
    assert found["measured"] is None and "| measure | failed |" in text


def test_goals() -> None:
    def row(what: str, ranks: int, microseconds: float, share: float) -> dict[str, Any]:
        return {
            "what": what,
            "ranks": ranks,
            "microseconds": microseconds,
            "share": share,
            "error": "",
            "nbytes": 8,
            "traffic": 1,
        }

    rows = [
        row("copy kernel", 1, 5, 0.95),
        row("native two-shot", 4, 5, 0.2),
        row("native two-shot", 8, 5, 0.84),
        row("8 bytes, native one-shot", 2, 7.9, 0),
        row("8 bytes, native one-shot", 8, 8.1, 0),
        row("8 bytes, native one-shot, in a graph", 2, 3, 0),
        row("interpreted ring", 4, 104, 0),
        row("hand-written ring", 4, 100, 0),
        row("interpreted ring", 8, 500, 0),
    ]
    assert [reached for *_, reached in goals(rows)] == ["yes", "?", "no", "no", "yes", "yes"]
    found = {"device": "x", "when": "", "commit": "", "emulated": False, "steps": []}
    measured = {"rows": [row("copy kernel", 1, 5, 0.95) | {"error": "DeviceError: lost"}], "left_out": 3}
    text = markdown(
        found | {"measured": measured | {"copy_bytes_per_second": 4.3e12, "not_compared": {"nccl": "absent"}}}
    )
    assert "4.3 TB/s" in text and "DeviceError: lost" in text and "3 rows" in text
