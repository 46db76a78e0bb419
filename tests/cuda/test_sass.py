"""What nvcc made of the kernels: nothing spilled, 16 bytes at a time, and no more fences than releases."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "gpu"))

import sass

RELEASES = {"Simple": 2, "LL": 1, "LL128": 0}  # the cell and the credit; the credit after a wipe; none


@lru_cache(maxsize=1)
def kernels() -> list[sass.Kernel]:
    if importlib.util.find_spec("pycollectives._cuda") is None:
        pytest.skip("optional: the extension _cuda was not built")
    try:
        return sass.kernels(sass.extension())
    except FileNotFoundError as tool:
        pytest.skip(f"optional: {tool} is not installed")


def interpreters() -> list[sass.Kernel]:
    return [kernel for kernel in kernels() if kernel.name.split()[0] in RELEASES]


def test_all_are_there() -> None:
    assert len(interpreters()) >= 3 * 14
    assert {kernel.name.split()[0] for kernel in interpreters()} == RELEASES.keys()


def test_no_hot_kernel_spills() -> None:
    for kernel in kernels():
        if "Any" not in kernel.name:
            assert kernel.stack == 0 and kernel.count("(LDL|STL).*") == 0, kernel


def test_a_block_of_512_threads_fits() -> None:
    assert all(kernel.registers <= 128 for kernel in kernels())


def test_sixteen_bytes_at_a_time() -> None:
    """Local arrays, slots and lines: each kernel loads and stores vectors for both."""
    for kernel in interpreters():
        assert kernel.count(r"LDG\.E.*128.*") >= 2 and kernel.count(r"STG\.E.*128.*") >= 2, kernel


def test_no_fence_too_many() -> None:
    for kernel in interpreters():
        assert kernel.count(r"MEMBAR.*SYS.*") == RELEASES[kernel.name.split()[0]], kernel
        assert kernel.count(r"MEMBAR.*") == kernel.count(r"MEMBAR.*SYS.*"), kernel
