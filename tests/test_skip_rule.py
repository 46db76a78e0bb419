"""The rule of conftest.py: in CI a skip is a failure unless it is marked as optional."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest

def test_needed(): pytest.skip("no MPI")
def test_optional(): pytest.skip("optional: no GPU")
@pytest.mark.skipif(True, reason="no MPI")
def test_needed_mark(): pass
@pytest.mark.skipif(True, reason="optional: no GPU")
def test_optional_mark(): pass
@pytest.mark.xfail(reason="known")
def test_xfail(): assert False
def test_runs(): pass
"""


def run_suite(folder: Path, ci: str, **files: str) -> str:
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={folder}", "."]
    environment = {**os.environ, "CI": ci}
    environment.pop("HYPOTHESIS_PROFILE", None)
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60)
    return done.stdout


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [
        ("true", "1 failed, 1 passed, 2 skipped, 1 xfailed, 1 error"),
        ("", "1 passed, 4 skipped, 1 xfailed"),
    ],
)
def test_skips_of_tests(tmp_path: Path, ci: str, outcome: str) -> None:
    assert outcome in run_suite(tmp_path, ci, test_suite=SUITE)


@pytest.mark.parametrize(
    ("reason", "ci", "outcome"),
    [("no MPI", "true", "1 error"), ("optional: no GPU", "true", "1 skipped"), ("no MPI", "", "1 skipped")],
)
def test_skips_of_modules(tmp_path: Path, reason: str, ci: str, outcome: str) -> None:
    module = f"import pytest\npytest.skip({reason!r}, allow_module_level=True)\n"
    assert outcome in run_suite(tmp_path, ci, test_module=module)


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("1", 1), ("", 0)])
def test_jobs_across_hosts_that_cannot_be(tmp_path: Path, ci: str, code: int) -> None:
    """The same of a machine that has no network namespaces."""
    root = Path(__file__).parents[1]
    if not (root / ".venv/bin/python").exists():
        pytest.skip("optional: the check takes .venv, which is not there")
    tool = tmp_path / "ip"
    tool.write_text("#!/bin/sh\necho no namespaces >&2\nexit 1\n")
    tool.chmod(0o755)
    environment = {**os.environ, "CI": ci, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([root / ".ci/check-cluster"], env=environment, capture_output=True, text=True)
    assert done.returncode == code and "nothing was run" in done.stdout, done


def test_every_file_of_tests_has_a_name_of_its_own() -> None:
    """pytest imports them by it: of two of one name only the first would run when all are collected together."""
    files = [
        path
        for path in Path(__file__).parent.rglob("*.py")
        if path.name not in ("conftest.py", "__init__.py")
    ]
    names = [path.name for path in files]
    assert sorted(names) == sorted(set(names))
