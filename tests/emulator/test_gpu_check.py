"""`make gpu-check` on the emulated device: that it works when a GPU is at hand, and says so when something fails."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

import pycollectives as pc

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.gpu import __main__ as gpu_check  # noqa: E402 - not a package that is installed
from bench.gpu import others  # noqa: E402
from bench.gpu.limits import append  # noqa: E402
from bench.gpu.plan import guarded  # noqa: E402
from bench.gpu.rows import collected  # noqa: E402
from bench.gpu.summary import goals, markdown  # noqa: E402


def check(
    folder: Path, *arguments: str, emulated: bool = True, root: Path = ROOT
) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "bench.gpu", "--out", str(folder), *arguments]
    command += ["--emulated"] if emulated else []
    done = subprocess.run(
        command,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=110,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert (folder / "gpu-check.json").exists(), done.stdout + done.stderr
    found = json.loads((folder / "gpu-check.json").read_text())
    return done.returncode, found, (folder / "gpu-check.md").read_text()


@pytest.mark.skipif(len(pc.__path__) > 1, reason="optional: another build of the device is in use")
def test_measurements(tmp_path: Path) -> None:
    """Every kind of row is made, with a right result; the goals are looked for in rows that exist."""
    status, found, text = check(tmp_path, "--steps", "memcheck,measure", "--minutes", "2")
    assert status == 0, text
    results = {step["name"]: step["result"] for step in found["steps"]}
    assert results == {"measure": "passed", "memcheck": "skipped"}
    rows = found["measured"]["rows"]
    assert not [row for row in rows if row["error"]] and found["measured"]["left_out"] == 0
    kinds = {row["what"] for row in rows}
    assert {"copy kernel", "n-ary reduction kernel", "native two-shot", "ring", "double_binary_tree"} <= kinds
    for what in ("launch of one rank, native", "8 bytes, native one-shot", "8 bytes, interpreted one-shot"):
        assert {f"{what}, {way}" for way in ("call and wait", "calls in a row", "in a graph")} <= kinds
    assert {"8 bytes, one launch, native one-shot, call and wait", "one launch, native two-shot"} <= kinds
    ways = ("by the switch, in place", "by the switch, copied", "not by the switch", "interpreted")
    assert {f"{verb} on 3 devices, {way}" for verb in ("all_reduce", "broadcast") for way in ways} <= kinds
    for verb in ("broadcast", "all-gather"):
        assert {f"native {verb}", f"interpreted {verb}"} <= kinds
    assert {"LL, ring", "LL128, ring", "Simple, one_shot", "native two-shot of bfloat16"} <= kinds
    assert {"all_to_all direct", "reduce binomial", "scan linear", "reduce_scatter ring"} <= kinds
    assert all(row["microseconds"] > 0 for row in rows)
    assert "| ring | 3 | 2 KiB |" in text and "Not compared: nccl" in text
    unmeasured = [goal for goal, measured, _ in goals(rows) if measured.startswith("not measured")]
    assert len(unmeasured) == 1  # 8 ranks are too many here


@pytest.mark.skipif(len(pc.__path__) > 1, reason="optional: another build of the device is in use")
def test_a_step_that_takes_too_long(tmp_path: Path) -> None:
    """Its time is over: it is stopped with all its children, and the report says so."""
    status, found, text = check(tmp_path, "--steps", "tests", "--minutes", "0.03")
    step = found["steps"][0]
    assert (
        status == 1 and step["result"] in ("failed", "incomplete") and "time" in step["note"]
    )  # or before the first test
    assert f"| tests | {step['result']} |" in text


TESTS = """
import os, time, pytest
def test_right(): pass
@pytest.mark.parametrize("size", [8, 2])
def test_sizes(size): pass
def test_wrong(): assert 1 == 2, "no such thing"
def test_hangs(): time.sleep(60)
def test_dies(): os._exit(11)
def test_skipped(): pytest.skip("no reason")
def test_last(): pass
"""


def test_a_checkout_that_was_never_built(tmp_path: Path) -> None:
    """Building is a step like others, and what it gave is in the report: nothing before it needs what it builds."""
    fresh = tmp_path / "fresh"
    shutil.copytree(ROOT / "bench", fresh / "bench", ignore=shutil.ignore_patterns("__pycache__", "results"))
    shutil.copy(ROOT / "cuda_build.py", fresh)
    (fresh / "pycollectives").mkdir()
    (fresh / "pycollectives/__init__.py").write_text("raise ImportError('there is no extension')")
    for steps, expected in (("machine-code", (0, "skipped")), ("build", (1, "failed"))):
        status, found, text = check(tmp_path / steps, "--steps", steps, "--minutes", "1", root=fresh)
        (step,) = found["steps"]
        assert (status, step["result"]) == expected, text
    assert "setup.py" in step["note"] and "| build | failed |" in text, "there is none"


def test_a_test_that_hangs_costs_its_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that fails, or ends its process, nothing but a new process; all results are there."""
    file = tmp_path / "test_made_up.py"
    file.write_text(TESTS)
    monkeypatch.setattr(gpu_check, "TEST_SECONDS", 1.0)
    step = gpu_check.Check(True, 1.0, tmp_path).tests(str(file), limit=50)
    found = {test["test"].rpartition("::")[2]: test for test in step.tests}
    assert {name: test["result"] for name, test in found.items()} == {
        "test_right": "passed",
        "test_wrong": "failed",
        "test_hangs": "failed",
        "test_dies": "failed",
        "test_skipped": "skipped",
        "test_last": "passed",
        "test_sizes[2]": "passed",
        "test_sizes[8]": "passed",
    }
    assert [name for name in found if "sizes" in name] == ["test_sizes[2]", "test_sizes[8]"], (
        "few ranks first"
    )
    assert "no such thing" in found["test_wrong"]["text"] and "did not end" in found["test_hangs"]["text"]
    assert "no reason" in found["test_skipped"]["text"] and step.result == "failed"
    assert step.note.startswith("4 passed, 3 failed, 1 skipped")


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """A process with a session of its own neither."""
    pid = tmp_path / "pid"
    sleeper = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    starter = (
        "import subprocess, sys, os, time;"
        f"subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=True);"
        f"[time.sleep(0.01) for _ in range(1000) if not os.path.exists({str(pid)!r})]"
    )
    status, text = gpu_check.Check(True, 1.0, tmp_path).run(sys.executable, "-c", starter, limit=30)
    assert status == 0, text
    state = Path("/proc", pid.read_text(), "stat")
    deadline = time.monotonic() + 10
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_tests_that_cannot_be_collected(tmp_path: Path) -> None:
    file = tmp_path / "test_made_up.py"
    file.write_text("import no_such_module")
    step = gpu_check.Check(True, 1.0, tmp_path).tests(str(file), limit=30)
    assert step.result == "failed" and "no_such_module" in step.note


def test_the_report_is_written_after_each_step(tmp_path: Path) -> None:
    """Also after one that raises."""
    check = gpu_check.Check(True, 1.0, tmp_path)
    seen = []

    def raises() -> gpu_check.Step:
        raise OSError("no such program")

    for name, work in (("one", lambda: gpu_check.Step("", note="a|b")), ("two", raises)):
        check.step(name, work)
        text = (tmp_path / "gpu-check.md").read_text()
        seen.append(
            (len(json.loads((tmp_path / "gpu-check.json").read_text())["steps"]), "no such program" in text)
        )
    assert seen == [(1, False), (2, True)] and "| one | passed | 0 | a/b |" in text


def test_rows_that_hang(tmp_path: Path) -> None:
    """A row that was begun and is not there is an error; what is there is not measured again."""
    file = tmp_path / "rows"
    append(file, copy_bytes_per_second=2.0)
    append(file, begin="ring, 8 ranks, 64 bytes")
    append(file, begin="8 bytes, native one-shot, 2 ranks, 8 bytes")
    append(file, none="8 bytes, native one-shot, 2 ranks, 8 bytes")
    with file.open("a") as cut_off:
        cut_off.write('{"row": {"what"')
    found = collected(file)
    assert found is not None and found["copy_bytes_per_second"] == 2.0
    (row,) = found["rows"]
    assert (row["what"], row["ranks"], row["nbytes"]) == ("ring", 8, 64) and "did not end" in row["error"]
    assert collected(tmp_path / "none") is None


def test_rows_end_with_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each row ends its process: none begins when the time of all is over, and the report says so."""
    check, clock, begun = gpu_check.Check(True, 3.2, tmp_path), [time.monotonic()], []

    def run(*command: str, limit: float) -> tuple[int, str]:
        begun.append(limit)
        row = {"what": "ring", "verb": "", "ranks": len(begun), "nbytes": 8, "error": "DeviceError: lost"}
        append(Path(command[3]), row=row)
        clock[0] += 60
        return 4, ""

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr(gpu_check, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    step = check.measure()
    assert len(begun) == 2 and step.result == "failed" and step.note.endswith("; not all were begun")
    assert check.measured is not None and check.measured["left_out"] is None


def test_tests_that_the_time_was_not_enough_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step has not passed; the test that was running has not failed."""

    def run(*command: str, limit: float, **env: str) -> tuple[int, str]:
        file = Path(env["GPU_CHECK_RESULTS"])
        append(file, begin="test_right")
        append(file, end="test_right", result="passed", seconds=0.1, text="")
        append(file, begin="test_long")
        return -9, ""

    check = gpu_check.Check(True, 1.0, tmp_path)
    monkeypatch.setattr(check, "run", run)
    step = check.tests("tests", limit=4)
    assert (
        step.result == "incomplete"
        and step.note == "1 passed, 0 failed, 0 skipped; the time was not enough for all"
    )
    assert [test["test"] for test in step.tests] == ["test_right"]


def test_rows_that_the_time_was_not_enough_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = gpu_check.Check(True, 1.0, tmp_path)
    for left_out, result in ((7, "incomplete"), (0, "passed")):

        def run(*command: str, limit: float, left_out: int = left_out) -> tuple[int, str]:
            append(Path(command[3]), row={"what": "ring", "verb": "", "ranks": 2, "nbytes": 8, "error": ""})
            append(Path(command[3]), left_out=left_out)
            return 0, ""

        monkeypatch.setattr(check, "run", run)
        step = check.measure()
        assert step.result == result and ("not enough for 7 more" in step.note) == bool(left_out), step.note


def test_a_device_that_compute_sanitizer_does_not_know(tmp_path: Path) -> None:
    says = "print('========= Error: Device not supported.'); raise SystemExit(1)"
    under = (sys.executable, "-c", says)
    step = gpu_check.Check(True, 1.0, tmp_path).tests("tests", limit=20, under=under)
    assert step.result == "skipped" and step.note == "Error: Device not supported."


def test_without_a_gpu(tmp_path: Path) -> None:
    """Nothing that is skipped or missing passes for checked."""
    if importlib.util.find_spec("cupy") and importlib.util.find_spec("pycollectives._cuda"):
        pytest.skip("optional: there may be a GPU")
    status, found, text = check(tmp_path, "--steps", "tests,measure", "--minutes", "1.5", emulated=False)
    assert status == 1 and [step["result"] for step in found["steps"]] == ["failed", "failed"], text
    assert found["measured"] is None and "| measure | failed |" in text


def test_a_library_that_fails() -> None:
    """Is a row, and the end of no other."""

    def rows() -> Any:
        yield "a row"
        raise RuntimeError("out of memory")

    first, (row, run) = guarded("CuPy", rows)
    assert first == "a row" and row.what == "CuPy: making its arrays"
    with pytest.raises(RuntimeError, match="out of memory"):
        run()


def test_a_library_without_its_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy where NCCL is not found: the other measurements are made."""
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    assert others.nccl_module() is None


def test_goals() -> None:
    def row(what: str, ranks: int, microseconds: float, share: float) -> dict[str, Any]:
        return {
            "what": what,
            "verb": "",
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
        row("8 bytes, native one-shot, calls in a row", 2, 5, 0),
        row("8 bytes, native one-shot, call and wait", 2, 7.9, 0),
        row("8 bytes, native one-shot, call and wait", 8, 8.1, 0),
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
