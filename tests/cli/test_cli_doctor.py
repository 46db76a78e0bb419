from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pycollectives.cli import doctor, probes
from pycollectives.dispatch import Row, Series, Table, tuning_file
from pycollectives.dispatch.tuning_file import TuningFile


def test_findings(command: Any) -> None:
    found = {each["name"]: each for each in json.loads(command("doctor", "-n", "1", "--json").stdout)}
    named = {
        "cores",
        "cores per rank",
        "vector instructions",
        "memfd",
        "membarrier",
        "process_vm_readv",
        "memory",
    }
    assert named | {"versions", "limits", "MPI", "CUDA", "nvcc"} <= set(found)
    assert found["memfd"]["status"] == "ok"
    assert "staged through pinned host memory" in found["device pointers"]["value"], "by MPI without CUDA"
    assert found["cores"]["value"].startswith(f"{len(os.sched_getaffinity(0))} of ")
    assert all(each["advice"] for each in found.values() if each["status"] != "ok")


def test_tuning(command: Any, tmp_path: Path) -> None:
    def tuning(**variables: str) -> dict[str, str]:
        found = json.loads(command("doctor", "-n", "2", "--json", code=None, **variables).stdout)
        return next(each for each in found if each["name"] == "tuning")

    assert "has not been tuned" in tuning()["value"]
    file = tmp_path / "t.json"
    file.write_text("{")
    damaged = tuning(PYCOLLECTIVES_TUNING=str(file))
    assert damaged["status"] == "note" and "is not used" in damaged["value"]
    cores = len(os.sched_getaffinity(0))
    row = Row(8, "ring", {"ring": 1e-6})
    content = TuningFile({}, Table.of([Series("all_reduce", "float", 2, cores, (row,))]), (), "now")
    tuning_file.save(content, file)
    right = tuning(PYCOLLECTIVES_TUNING=str(file))
    assert right["status"] == "ok" and "1 collectives measured with 2 ranks" in right["value"]


@pytest.mark.parametrize(
    ("enabled", "groups", "weight", "expected"),
    [
        ("1", "0::/\n", None, True),
        ("1", "1:cpu,cpuacct:/\n0::/\n", None, True),
        ("0", "0::/\n", None, False),
        (None, "0::/\n", None, False),
        ("1", "1:cpu,cpuacct:/docker/1\n", None, False),
        ("1", "0::/user.slice\n", "user.slice/cpu.weight", False),
        ("1", "0::/user.slice/user-1.slice\n", "user.slice/cpu.weight", False),
        ("1", "0::/user.slice\n", None, True),
        ("1", "0::/\n", "cpu.weight", False),  # the root of a container
    ],
)
def test_sessions(
    tmp_path: Path, enabled: str | None, groups: str, weight: str | None, expected: bool
) -> None:
    for folder in ("proc/sys/kernel", "proc/self", "sys/fs/cgroup/user.slice"):
        (tmp_path / folder).mkdir(parents=True)
    if enabled is not None:
        (tmp_path / "proc/sys/kernel/sched_autogroup_enabled").write_text(f"{enabled}\n")
    (tmp_path / "proc/self/cgroup").write_text(groups)
    if weight is not None:
        (tmp_path / "sys/fs/cgroup" / weight).write_text("100\n")
    assert [each.name for each in probes.sessions(tmp_path)] == ["sessions"] * expected


def test_table(command: Any) -> None:
    text = command("doctor", "-n", "64").stdout
    assert "ranks take turns" in text and "versions" in text


def test_brackets_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    doctor._show([probes.Finding("MPI", "missing", "a[0]", "pip install 'pycollectives[mpich]'")])
    shown = capsys.readouterr().out
    assert "a[0]" in shown and "'pycollectives[mpich]'" in shown


def test_memory_of_a_sibling_is_read_or_the_reason_given() -> None:
    found = probes.process_vm_readv()
    assert found.status == "ok" or (found.value and found.advice)


def test_reader_notices_a_wrong_address() -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-I", "-c", probes._READ, str(os.getpid()), "4096"], capture_output=True
    )
    assert done.returncode == 1 and done.stderr.strip()


def test_mpi_is_not_loaded_here(command: Any) -> None:
    import sys

    probes.mpi()
    assert "mpi4py" not in sys.modules or "mpi4py.MPI" not in sys.modules
