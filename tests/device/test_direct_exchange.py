"""Messages of device memory by MPI. Between hosts: tests/cluster/test_devices.py."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import ranks


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="optional: needs mpi4py")
def test_what_was_given_up_is_not_written() -> None:
    """A message that comes after the error of a call does not find the memory of its caller."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith(ranks.FOREIGN)}
    job = [sys.executable, str(Path(__file__).with_name("direct_exchange.py"))]
    env = clean | {"PYTHONPATH": str(ranks.ROOT)}
    made = subprocess.run(job, env=env, timeout=60, capture_output=True, text=True, check=False)
    assert made.returncode == 0 and "the later one has it" in made.stdout, made.stderr
