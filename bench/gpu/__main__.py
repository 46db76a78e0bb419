"""Everything to do in the hour that a GPU is at hand: `make gpu-check`.

    python -m bench.gpu [--emulated] [--out FOLDER] [--steps build,tests,memcheck,racecheck,measure] [--minutes 8]

Builds for the GPU that is present, runs the tests of the kernels on it with 2, 4 and 8 ranks, some of them under compute-sanitizer,
and measures. Installs nothing. Writes FOLDER/gpu-check.json and .md, also when a step fails; the exit status is 1 then. --emulated
does the same on the emulated device: to know that the command works.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .summary import markdown

ROOT = Path(__file__).parents[2]
SANITIZED = "test_every_algorithm and 2-simple or test_a_disagreement or test_every_operator and float32"


@dataclass
class Step:
    name: str
    result: str = "passed"  # or failed, skipped
    seconds: float = 0.0
    note: str = ""


class Check:
    """The steps, each with a time limit of its own, within the minutes of all."""

    def __init__(self, emulated: bool, minutes: float) -> None:
        self.emulated, self.steps = emulated, []  # type: bool, list[Step]
        self.end = time.monotonic() + 60 * minutes
        self.measured: dict[str, Any] | None = None
        self.env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def run(self, *command: str, limit: float, **env: str) -> tuple[int, str]:
        """The exit status and the end of the output; -9 where the time was not enough."""
        left = min(limit, self.end - time.monotonic())
        if left <= 1:
            return -9, "no time was left"
        print("$", *command, flush=True)
        with tempfile.TemporaryFile("w+") as output:
            child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.env | env,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = child.wait(left)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
                status = -9
            output.seek(0)
            text = output.read()
        print(text[-4000:], flush=True)
        return status, text

    def step(self, name: str, work: Callable[[], tuple[str, str]]) -> None:
        """`work` returns the result and a note."""
        begin = time.monotonic()
        result, note = work()
        self.steps.append(Step(name, result, time.monotonic() - begin, note.replace("|", "/")))
        print(f"==> {name}: {result} {note}", flush=True)

    # -- the steps ---------------------------------------------------------------------------------------------------

    def build(self) -> tuple[str, str]:
        wish = {"PYCOLLECTIVES_EMULATOR": "1", "PYCOLLECTIVES_CUDA": "0"}
        note = "the emulated device"
        if not self.emulated:
            note = architecture()
            wish = {"PYCOLLECTIVES_CUDA": "1", "PYCOLLECTIVES_CUDA_ARCHS": note}
        status, text = self.run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", limit=200, **wish)
        return ("passed", note) if status == 0 else ("failed", last_line(text))

    def pytest(self, *arguments: str, limit: float, under: tuple[str, ...] = ()) -> tuple[str, str]:
        env = {"PYCOLLECTIVES_GPU": "emulated" if self.emulated else "required"}
        # That Python need not have the plugins that the project's options are for.
        plain = ("-o", "addopts=", "-o", f"faulthandler_timeout={limit - 5:.0f}", "-p", "no:cacheprovider")
        command = (sys.executable, "-m", "pytest", "-q", "--maxfail=3", *plain, *arguments)
        status, text = self.run(*under, *command, limit=limit, **env)
        note = last_line(text)
        if under and status == 0:
            errors = [
                line for line in text.splitlines() if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line
            ]
            note = f"{note}; {errors[-1].strip('= ')}" if errors else note
        return ("passed" if status == 0 else "failed"), note if status != -9 else f"time limit; {note}"

    def tests(self) -> tuple[str, str]:
        return self.pytest(
            "tests/cuda",
            "--ignore=tests/cuda/test_linking.py",
            *(("-k", "2 or links") if self.emulated else ()),
            limit=130,
        )

    def sanitizer(self, tool: str) -> tuple[str, str]:
        program = shutil.which("compute-sanitizer")
        if self.emulated or program is None:
            return "skipped", "the emulated device" if self.emulated else "compute-sanitizer is not installed"
        under = (program, "--tool", tool, "--error-exitcode", "9", "--target-processes", "all")
        return self.pytest("tests/cuda/test_gpu.py", "-k", SANITIZED, limit=60, under=under)

    def measure(self) -> tuple[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.json")
            seconds = max(5.0, min(80.0, self.end - time.monotonic() - 20))
            more = ["--emulated"] if self.emulated else []
            module = ("-m", "bench.gpu.measure", str(file), "--seconds", f"{seconds:.0f}")
            status, text = self.run(sys.executable, *module, *more, limit=seconds + 60)
            if not file.exists():
                return "failed", last_line(text)
            self.measured = json.loads(file.read_text())
        wrong = sum(bool(row["error"]) for row in self.measured["rows"])
        note = f"{len(self.measured['rows'])} rows, {wrong} of them failed"
        return ("passed" if status == 0 and not wrong else "failed"), note


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


def query(what: str) -> str:
    """What nvidia-smi says of the first device, "" where it says nothing."""
    try:
        text = subprocess.run(
            ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return text.splitlines()[0].strip() if text.strip() else ""


def architecture() -> str:
    """The compute capability to build for, as in "90"."""
    return query("compute_cap").replace(".", "") or "90"


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", default="build,tests,memcheck,racecheck,measure")
    parser.add_argument("--minutes", type=float, default=7.8)
    given = parser.parse_args()
    check = Check(given.emulated, given.minutes)
    every: dict[str, Callable[[], tuple[str, str]]] = {
        "build": check.build,
        "tests": check.tests,
        "memcheck": lambda: check.sanitizer("memcheck"),
        "racecheck": lambda: check.sanitizer("racecheck"),
        "measure": check.measure,
    }
    wanted = given.steps.split(",")
    if unknown := set(wanted) - every.keys():
        parser.error(f"unknown steps {sorted(unknown)}; known are {', '.join(every)}")
    for name, work in every.items():
        if name in wanted:
            check.step(name, work)
    found = {
        "device": "the emulated device" if given.emulated else query("name") or "no device",
        "driver": "" if given.emulated else query("driver_version"),
        "emulated": given.emulated,
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "steps": [asdict(step) for step in check.steps],
        "measured": check.measured,
    }
    out = given.out or ROOT / ("build/gpu-check" if given.emulated else "bench/results/gpu")
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu-check.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / "gpu-check.md").write_text(markdown(found))
    print(f"==> {out}/gpu-check.md")
    return int(any(step.result == "failed" for step in check.steps))


if __name__ == "__main__":
    sys.exit(main())
