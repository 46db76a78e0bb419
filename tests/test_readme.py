"""The README is true: its table is the code's, its program runs, its refusal is what the library says."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_table_of_algorithms_is_the_code_s() -> None:
    tables = runpy.run_path(str(ROOT / "docs" / "tables.py"))
    assert tables["rewritten"](README) == README, "run: python docs/tables.py --write"


def run(script: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pycollectives", "run", "-n", "4", str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)


def test_the_program_runs(tmp_path: Path) -> None:
    first = next(code for code in re.findall(r"```python\n(.*?)```", README, re.S) if "pc.init()" in code)
    (tmp_path / "first.py").write_text(first)
    done = run(tmp_path / "first.py")
    assert done.returncode == 0, done.stderr
    assert "all_reduce of 1048576 bytes on 4 ranks" in done.stdout


def test_the_program_runs_by_mpiexec(tmp_path: Path) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists():
        pytest.skip("no MPI beside this Python: pip install mpi4py mpich")
    first = next(code for code in re.findall(r"```python\n(.*?)```", README, re.S) if "pc.init()" in code)
    (tmp_path / "first.py").write_text(first)
    command = [mpiexec, "-n", "4", sys.executable, tmp_path / "first.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "all_reduce of 1048576 bytes on 4 ranks" in done.stdout


def test_the_own_algorithm_runs_and_the_wrong_one_is_refused() -> None:
    done = run(ROOT / "examples" / "own_algorithm.py")
    assert done.returncode == 0, done.stderr
    assert "star: [ 0. 10. 20. 30. 40. 50.]" in done.stdout
    refusal = re.search(r"ScheduleError: (.*?)```", README, re.S)
    assert refusal is not None
    assert " ".join(refusal.group(1).split()) in done.stdout
