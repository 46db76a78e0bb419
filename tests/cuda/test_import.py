"""The extension for devices beside the emulated one, and where there is no driver."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "csrc/cuda/kernels"

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


def test_one_file_knows_which_compiler_reads_it() -> None:
    """All others are the same text for nvcc and for the emulated device."""
    files = [file for file in KERNELS.iterdir() if file.is_file()]
    knowing = [
        file.name
        for file in files
        if any(
            line.startswith("#") and ("__CUDACC__" in line or "PC_EMULATED" in line)
            for line in file.read_text().splitlines()
        )
    ]
    assert knowing == ["ptx.cuh"]
