"""The flight recorder: it outlives a killed rank, and tells who kept the others waiting."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import flight_ranks
import pytest
from ranks import FOREIGN, ROOT

from pycollectives import flight
from pycollectives.bootstrap.inspector import ask
from pycollectives.errors import BootstrapError

AS_ANOTHER = """
import os, sys
from pycollectives.bootstrap import inspector  # before it: the interpreter may be another user's
os.setgid(65534)
os.setuid(65534)
if len(sys.argv) > 2:  # does not mind whom it talks to
    inspector.refusal_of_user = lambda sock: None
    print(inspector._ask(next(name for name in inspector._names() if f"-{sys.argv[1]}-" in name)))
else:
    inspector.ask(int(sys.argv[1]))
"""
SCRIPT = Path(__file__).with_name("flight_ranks.py")
LINE = next(i for i, line in enumerate(SCRIPT.read_text().splitlines(), 1) if 'algorithm="ring"' in line)
CALL = f"call 6 all_reduce(float64[250000], sum) at flight_ranks.py:{LINE}"


class Job:
    """`pycollectives run` of flight_ranks.py."""

    def __init__(self, n: int, what: str, *options: str, launcher: bool = True) -> None:
        self.n = n
        env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)} | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "pycollectives", "run", "-n", str(n), *options, str(SCRIPT), what]
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def pids(self) -> list[int]:
        """Of the ranks, once all are there."""
        assert self.process.stdout is not None
        found = dict(map(int, self.process.stdout.readline().split()) for _ in range(self.n))
        return [found[rank] for rank in range(self.n)]

    def finish(self) -> tuple[int, str]:
        """Exit code and standard error."""
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


@pytest.fixture
def job() -> Iterator[Any]:
    made: list[Job] = []

    def make(*args: Any) -> Job:
        made.append(Job(*args))
        return made[-1]

    yield make
    for each in made:
        with suppress(ProcessLookupError):
            each.process.kill()
        each.process.communicate(timeout=30)


def said(err: str) -> list[str]:
    return [
        line.removeprefix("pycollectives: ")
        for line in err.splitlines()
        if line.startswith("pycollectives: ")
    ]


def until(condition: Any, seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return result


@pytest.mark.parametrize(
    ("what", "code", "first", "where"),
    [
        (
            "killed",
            137,
            "rank 1 died of SIGKILL (signal 9)",
            "has not come; its last call was 5 barrier() at",
        ),
        ("killed inside", 137, "rank 1 died of SIGKILL (signal 9)", f"was in {CALL}"),
        (
            "raised",
            1,
            "rank 1 exited with code 1",
            "has not come; its last call was 5 barrier() at",
        ),
    ],
)
def test_the_launcher_names_the_straggler(
    job: Any, tmp_path: Path, what: str, code: int, first: str, where: str
) -> None:
    failed = job(4, what, "--report", str(tmp_path / "reports"))
    pids = failed.pids()
    returned, err = failed.finish()
    lines = said(err)
    assert returned == code and lines[0].removesuffix("; ending the job") == first, err
    assert lines[1].startswith(f"world: rank 1 (process {pids[1]}, ") and where in lines[1], err
    assert re.fullmatch(
        rf"world: ranks 0, 2, 3 wait for it in {re.escape(CALL)}, for [\d.]+ [mu]?s", lines[2]
    ), err
    text = Path(lines[3].removeprefix("the last calls of all ranks are in "))
    assert "ring" in text.read_text() and "communicator world, 4 ranks" in text.read_text()
    # Ranks that end in order close what they have: a communicator in which nobody failed may be gone by now.
    assert what == "raised" or "communicator world/1.0, 4 ranks" in text.read_text()
    snapshot = json.loads(text.with_suffix(".json").read_text())
    world = snapshot["communicators"][0]
    calls = world["ranks"][1]["calls"]  # of the dead
    assert [each["sequence"] for each in calls][:5] == [1, 2, 3, 4, 5]
    assert [each["collective"] for each in calls][:5] == ["all_reduce"] * 3 + ["all_gather", "barrier"]
    assert calls[0]["nbytes"] == 4000 and calls[0]["algorithm"] and "flight_ranks.py:" in calls[0]["site"]
    assert all(each["state"] == "done" and each["ended_ns"] > each["started_ns"] > 0 for each in calls[:5])
    assert snapshot["ended"]["1"] == first.removeprefix("rank 1 ")


@pytest.mark.parametrize("whom", ["launcher", "rank"])
def test_inspect_a_job_that_hangs(job: Any, whom: str) -> None:
    hung = job(3, "stopped")
    pids = hung.pids()
    pid = hung.process.pid if whom == "launcher" else pids[2]

    def inspect(*options: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pycollectives", "inspect", str(pid), *options],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    until(lambda: CALL in inspect())
    text = inspect("--calls", "4")
    assert f"world: rank 1 (process {pids[1]}, stopped) has not come; its last call was 5 barrier()" in text
    assert f"world: ranks 0, 2 wait for it in {CALL}" in text
    assert text.count("all_reduce(float32[1000], sum)") == 4 and "world/1.0" in text, text
    snapshot = json.loads(inspect("--json"))
    assert snapshot["processes"]["1"] == {"pid": pids[1], "state": "stopped"}
    assert flight.findings(snapshot) and "nobody keeps" not in text
    os.kill(pids[1], signal.SIGCONT)


@pytest.mark.skipif(os.geteuid() != 0, reason="optional: only root can act as another user")
def test_another_user_gets_no_answer(job: Any) -> None:
    hung = job(2, "late")
    hung.pids()

    def another(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", AS_ANOTHER, str(hung.process.pid), *more]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)

    assert "no job of this user" in another().stderr
    assert another("anyhow").stdout == "None\n"
    assert ask(hung.process.pid)["size"] == 2


def test_inspect_finds_no_job() -> None:
    with pytest.raises(BootstrapError, match="no job of this user"):
        ask(os.getpid())


def test_the_recorder_of_a_closed_communicator_is_let_go(job: Any) -> None:
    open_job = job(2, "closed")
    open_job.pids()
    names = until(lambda: len(ask(open_job.process.pid)["communicators"]) == 1 and ask(open_job.process.pid))
    assert [each["name"] for each in names["communicators"]] == ["world"]
    assert flight.findings(names) == []


def test_an_end_by_the_clock_names_the_straggler(job: Any) -> None:
    code, err = job(2, "late", "--timeout", "3").finish()
    assert code == 124
    assert any("rank 1 (process" in line and "has not come" in line for line in said(err)), err


def test_without_a_launcher_every_rank_reports(fresh: Any, tmp_path: Path) -> None:
    env = {"TEST_RENDEZVOUS": "torchrun", "PYCOLLECTIVES_REPORT": str(tmp_path)}
    job = fresh(3, env)
    text, _, _ = job.run(flight_ranks.lose_one, died=[1])
    assert "rank 1 (process" in text
    for rank in (0, 2):
        found = json.loads((tmp_path / f"pycollectives-{job.pids[rank]}.json").read_text())
        assert found["processes"]["1"]["pid"] == job.pids[1]
        assert [each["call"] for each in found["communicators"][0]["ranks"][1]["calls"]] == ["barrier()"]
        assert any(f"rank 1 (process {job.pids[1]}" in line for line in flight.findings(found)), found


def test_inspect_without_a_launcher(fresh: Any) -> None:
    """Rank 0 answers for all, though its main thread waits in native code."""
    job = fresh(3, {"TEST_RENDEZVOUS": "torchrun"})
    job.start(flight_ranks.wait_for_one)
    expected = f"rank 1 (process {job.pids[1]}, stopped) has not come; its last call was 1 barrier()"
    until(lambda: [line for line in flight.findings(ask(job.pids[2])) if expected in line])
    os.kill(job.pids[1], signal.SIGCONT)
    job.finish(timeout=20)
