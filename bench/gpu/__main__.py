"""Everything to do in the hour that a GPU is at hand: `make gpu-check`.

    python -m bench.gpu [--emulated] [--out FOLDER] [--steps build,first,tests,measure,...] [--minutes 7.8]

Builds for the GPU that is present, runs the tests of the kernels on it with 2, 4 and 8 ranks, some of them under compute-sanitizer,
and measures. Installs nothing. FOLDER/gpu-check.json and .md are written after each step, whatever it gave; the exit status is 1
where one failed, or had not the time for all that it should do. A test, or a row of the measurements, that hangs is ended and costs
its own time. --emulated does the same on the emulated device: to know that the command works.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cuda_build

# Nothing here imports pycollectives, which cannot be imported before the first step has built it.
from .limits import UNENDED, results
from .rows import collected
from .summary import markdown

ROOT = Path(__file__).parents[2]
STEPS = ("build", "first", "tests", "measure", "memcheck", "racecheck", "machine-code")
MOST_FAILURES = 12  # of tests, each of which costs a process
TEST_SECONDS = 40.0
BEHIND = 110.0  # seconds for the steps after the measurements, which may have what others left
MARK = "GPU_CHECK_MARK"


@dataclass
class Step:
    name: str
    result: str = "passed"  # or failed, skipped; incomplete where the time was over before something failed
    seconds: float = 0.0
    note: str = ""
    tests: list[dict[str, Any]] = field(default_factory=list)


class Check:
    """The steps, each with a time limit of its own, within the minutes of all."""

    def __init__(self, emulated: bool, minutes: float, out: Path) -> None:
        self.emulated, self.out = emulated, out
        self.steps: list[Step] = []
        self.end = time.monotonic() + 60 * minutes
        self.mark = f"{os.getpid()} {time.time_ns()}"  # of all processes that are started here
        self.measured: dict[str, Any] | None = None
        # Before the process first uses CUDA: queues for eight ranks on a device (pycollectives/device/sharing.py).
        self.env = os.environ | {
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "CUDA_DEVICE_MAX_CONNECTIONS": "32",
            "PYCOLLECTIVES_GPU": "emulated" if emulated else "required",
        }
        with contextlib.suppress(OSError):
            if not {"CUDA_HOME", "CUDA_PATH"} & os.environ.keys() and (nvcc := cuda_build.find_nvcc()):
                self.env["CUDA_HOME"] = str(
                    cuda_build.toolkit(nvcc)
                )  # where Numba finds what has no wheel here
        self.about = {
            "device": "the emulated device" if emulated else query("name") or "no device",
            "driver": "" if emulated else query("driver_version"),
            "emulated": emulated,
            "when": time.strftime("%Y-%m-%d %H:%M"),
            "commit": commit(),
        }

    def run(self, *command: str, limit: float, **env: str) -> tuple[int, str]:
        """The exit status and the end of the output; -9 where the time was not enough. Nothing that it started goes on."""
        left = min(limit, self.end - time.monotonic())
        if left <= 1:
            return -9, "no time was left"
        print("$", *command, flush=True)
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.env | {MARK: self.mark} | env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = child.wait(left)
            except subprocess.TimeoutExpired:
                status = -9
            end_all(self.mark)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may be stuck in the driver
                child.wait(10)
            output.seek(0)
            text = output.read()
        print(text[-4000:], flush=True)
        return status, text

    def step(self, name: str, work: Callable[[], Step]) -> None:
        """Do it, and write the report."""
        begin = time.monotonic()
        try:
            step = work()
        except Exception as error:  # the steps that come are worth more than this one
            step = Step(name, "failed", note=f"{type(error).__name__}: {error}")
        step.name, step.seconds = name, time.monotonic() - begin
        step.note = step.note.replace("|", "/")
        self.steps.append(step)
        print(f"==> {name}: {step.result} {step.note}", flush=True)
        self.write()

    def write(self) -> None:
        """The report on what has been done so far."""
        found = self.about | {"steps": [asdict(step) for step in self.steps], "measured": self.measured}
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "gpu-check.json").write_text(json.dumps(found, indent=1) + "\n")
        (self.out / "gpu-check.md").write_text(markdown(found))

    # -- the steps ---------------------------------------------------------------------------------------------------

    def build(self) -> Step:
        """A warning of some other compiler stops nobody here."""
        wish = {"PYCOLLECTIVES_EMULATOR": "1", "PYCOLLECTIVES_CUDA": "0"}
        note = "the emulated device"
        if not self.emulated:
            note = architecture()
            wish = {"PYCOLLECTIVES_CUDA": "1", "PYCOLLECTIVES_CUDA_ARCHS": note}
        command = (sys.executable, "setup.py", "-q", "build_ext", "--inplace")
        status, text = self.run(*command, limit=220, PYCOLLECTIVES_WARNINGS="allowed", **wish)
        if status == 0:
            return Step("", note=note)
        late = "the time was not enough: " if status == -9 else ""
        return Step("", "failed", note=late + last_error(text))

    def tests(self, *arguments: str, limit: float, under: tuple[str, ...] = ()) -> Step:
        """All that are chosen, in as many processes as it takes: a test that fails or hangs is the last one of its process."""
        ini = (
            "-c",
            "bench/gpu/pytest.ini",
            "--confcutdir",
            str(ROOT),
            "--rootdir",
            str(ROOT),
            "-p",
            "bench.gpu.limits",
            "-p",
            "no:cacheprovider",
        )
        command = (sys.executable, "-m", "pytest", "-q", "-x", "--tb=short", *ini, *arguments)
        end, text = min(time.monotonic() + limit, self.end), ""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "tests.jsonl")
            env = {"GPU_CHECK_RESULTS": str(file), "GPU_CHECK_LIMIT": f"{limit if under else TEST_SECONDS}"}
            if under:
                env["GPU_CHECK_CALL"] = f"{limit}"  # all is slower
            while True:
                before = len(list(results(file)))
                status, text = self.run(*under, *command, limit=end - time.monotonic(), **env)
                found = list(results(file))
                bad = [test for test in found if test["result"] == "failed"]
                passed = any(test["result"] == "passed" for test in found)
                if under and (why := re.search(r".*Device not supported.*", text)):
                    return Step("", "skipped", note=why[0].strip("= "))
                if status in (0, 5, -9) or under or len(found) == before:
                    break  # over, or nothing came of it
                if len(bad) >= (MOST_FAILURES if passed else 4):
                    break
        late = status == -9  # and the last test was still running, which says nothing of it
        if late and bad and bad[-1] is found[-1] and bad[-1]["text"] == UNENDED:
            found.remove(bad.pop())
        count = {result: sum(test["result"] == result for test in found) for result in ("passed", "skipped")}
        note = f"{count['passed']} passed, {len(bad)} failed, {count['skipped']} skipped"
        if late:
            note += "; the time was not enough for all"
        elif status not in (0, 5) and not bad:
            note += f"; {last_error(text)}"
        said = [line for line in text.splitlines() if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line]
        if said:
            note += f"; {said[-1].strip('= ')}"
        if bad or not count["passed"] or not (late or status in (0, 5)):
            return Step("", "failed", note=note, tests=found)
        return Step("", "incomplete" if late else "passed", note=note, tests=found)

    def first(self) -> Step:
        """One call by each kind of kernel: if these fail, all else will."""
        return self.tests("tests/cuda/test_gpu_first.py", limit=60)

    def most(self) -> Step:
        few = ("-k", "2 or links") if self.emulated else ()
        return self.tests(
            "tests/cuda/test_gpu.py",
            "tests/cuda/test_gpu_links.py",
            "tests/cuda/test_gpu_arrays.py",
            *few,
            limit=150,
        )

    def machine_code(self) -> Step:
        if self.emulated:
            return Step("", "skipped", note="the emulated device")
        return self.tests("tests/cuda/test_sass.py", "tests/cuda/test_import.py", limit=40)

    def sanitizer(self, tool: str) -> Step:
        program = shutil.which("compute-sanitizer")
        if self.emulated or program is None:
            return Step(
                "",
                "skipped",
                note="the emulated device" if self.emulated else "compute-sanitizer is not installed",
            )
        under: tuple[str, ...] = (
            program,
            "--tool",
            tool,
            "--error-exitcode",
            "9",
            "--target-processes",
            "all",
        )
        if (
            tool == "memcheck"
        ):  # what the driver refuses is asked for on purpose: memory that others could open
            under += ("--report-api-errors", "no")
        return self.tests("tests/cuda/test_gpu_sanitized.py", limit=60, under=under)

    def measure(self) -> Step:
        """In as many processes as it takes: a row that fails or hangs is the last one of its process."""
        now, text, status = time.monotonic(), "no time was left", 0
        end = min(max(now + 90, self.end - BEHIND), self.end - 5)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.jsonl")
            more = ["--emulated"] if self.emulated else []
            for _ in range(MOST_FAILURES):
                if (seconds := end - time.monotonic()) <= 0:
                    break
                before = file.stat().st_size if file.exists() else 0
                module = ("-m", "bench.gpu.measure", str(file), "--seconds", f"{seconds:.0f}")
                status, text = self.run(sys.executable, *module, *more, limit=seconds + 35)
                if status in (0, -9) or not file.exists() or file.stat().st_size == before:
                    break
            self.measured = collected(file)
        if self.measured is None:
            return Step("", "failed", note=last_error(text))
        wrong = sum(bool(row["error"]) for row in self.measured["rows"])
        note = f"{len(self.measured['rows'])} rows, {wrong} of them failed"
        left_out = self.measured["left_out"]
        if left_out is None:
            note += "; not all were begun"
        elif left_out:
            note += f"; the time was not enough for {left_out} more"
        if wrong or status not in (0, -9):
            return Step("", "failed", note=note)
        return Step("", "passed" if left_out == 0 else "incomplete", note=note)


def end_all(mark: str) -> None:
    """The processes that have inherited the mark: ranks may have sessions of their own, and spin on the device for ever."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}\0".encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)


def last_error(text: str) -> str:
    """The last line that says error, or the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if re.search(r"Error\b|\berror:", line)]
    return (said or lines or ["no output"])[-1][:300]


def query(what: str) -> str:
    """What nvidia-smi says of the first device, "" where it says nothing."""
    try:
        text = subprocess.run(
            ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return text.splitlines()[0].strip() if text.strip() else ""


def architecture() -> str:
    """The compute capability to build for, as in "90"."""
    return query("compute_cap").replace(".", "") or "90"


def commit() -> str:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--minutes", type=float, default=7.8)
    given = parser.parse_args()
    wanted = given.steps.split(",")
    if unknown := set(wanted) - set(STEPS):
        parser.error(f"unknown steps {sorted(unknown)}; known are {', '.join(STEPS)}")
    out = given.out or ROOT / ("build/gpu-check" if given.emulated else "bench/results/gpu")
    check = Check(given.emulated, given.minutes, out)
    every: dict[str, Callable[[], Step]] = {
        "build": check.build,
        "first": check.first,
        "tests": check.most,
        "measure": check.measure,
        "memcheck": lambda: check.sanitizer("memcheck"),
        "racecheck": lambda: check.sanitizer("racecheck"),
        "machine-code": check.machine_code,
    }
    for name in STEPS:
        if name in wanted:
            check.step(name, every[name])
    print(f"==> {out}/gpu-check.md")
    return int(any(step.result in ("failed", "incomplete") for step in check.steps))


if __name__ == "__main__":
    sys.exit(main())
