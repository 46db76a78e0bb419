"""The extension for devices beside the emulated one, and where there is no driver."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

BOTH = """
from pycollectives import _cuda, _cuda_emulated
assert _cuda.Rank is not _cuda_emulated.Rank
assert _cuda.PROTOCOLS == _cuda_emulated.PROTOCOLS
"""


def test_one_process_may_load_both() -> None:
    for name in ("_cuda", "_cuda_emulated"):
        if importlib.util.find_spec(f"pycollectives.{name}") is None:
            pytest.skip(f"optional: the extension {name} was not built")
    subprocess.run([sys.executable, "-c", BOTH], check=True, timeout=60)
