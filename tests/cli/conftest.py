"""The real command, with a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import pycollectives as pc

Command = Callable[..., "subprocess.CompletedProcess[str]"]
FOREIGN = ("PYCOLLECTIVES_", "PMI", "OMPI_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "FORCE_COLOR")


@pytest.fixture
def command(tmp_path: object) -> Command:
    """`command("trace", "all_reduce")` runs it in an empty folder; `code=` is the expected exit code."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(pc.__file__)))
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, env.get("PYTHONPATH")]))
    env["COLUMNS"] = "120"

    def run(
        *arguments: str, code: int | None = 0, launcher: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*launcher, sys.executable, "-m", "pycollectives", *arguments],
            capture_output=True,
            text=True,
            timeout=90,
            cwd=str(tmp_path),
            env={**env, **variables},
            stdin=subprocess.DEVNULL,
        )
        if code is not None:
            assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
