"""What nvcc made of the kernels: nothing spilled, 16 bytes at a time, and no more fences than releases."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "gpu"))

import sass

# The cell and the credit; the credit after a wipe; none; two gates; the same, and three fences for aliases.
RELEASES = {"Simple": 2, "hand-written": 2, "LL": 1, "LL128": 0, "native": 2, "multicast": 5, "deliver": 0}
THREADS = {
    "Simple": 512,
    "hand-written": 512,
    "LL": 256,
    "LL128": 512,
    "native": 512,
    "multicast": 512,
    "deliver": 32,
}  # the most in a block (kernels/layout.hpp)
REGISTERS = 1 << 16  # of a multiprocessor


@pytest.fixture(scope="module")
def kernels() -> list[sass.Kernel]:
    """Of the extension, for whichever architectures it was built; test_architectures.py has others."""
    if importlib.util.find_spec("pycollectives._cuda") is None:
        pytest.skip("optional: the extension _cuda was not built")
    return disassembled(sass.extension())


def disassembled(extension: Path) -> list[sass.Kernel]:
    try:
        return sass.kernels(extension)
    except FileNotFoundError as tool:
        pytest.skip(f"optional: {tool} is not installed")


def kind(kernel: sass.Kernel) -> str:
    """Its protocol, or "native"."""
    return kernel.name.split()[0]


def test_all_are_there(kernels: list[sass.Kernel]) -> None:
    """Twelve combinations of type and operator, the copy, and the one that decides at run time, for each protocol; the last two
    again, for several ranks in one grid. One for each thing that the switch does, the ring, and the delivery of calls.
    """
    architectures = {kernel.architecture for kernel in kernels}
    assert len(kernels) == (4 * (14 + 2) + 18 + 2) * len(architectures)
    assert {kind(kernel) for kernel in kernels} == RELEASES.keys()


def test_no_hot_kernel_spills(kernels: list[sass.Kernel]) -> None:
    for kernel in kernels:
        if "Any" not in kernel.name:
            assert kernel.stack == 0 and kernel.count("(LDL|STL).*") == 0, kernel


def test_the_largest_block_fits(kernels: list[sass.Kernel]) -> None:
    for kernel in kernels:
        assert kernel.registers * THREADS[kind(kernel)] <= REGISTERS, kernel


def test_sixteen_bytes_at_a_time(kernels: list[sass.Kernel]) -> None:
    """Local arrays, slots and lines, arrays of peers: each kernel loads and stores vectors for both."""
    for kernel in kernels:
        if kind(kernel) == "deliver":
            continue  # words that others look at
        assert kernel.count(r"LDG\.E.*128.*") >= 2 and kernel.count(r"STG\.E.*128.*") >= 2, kernel


def test_no_fence_too_many(kernels: list[sass.Kernel]) -> None:
    for kernel in kernels:
        if kind(kernel) == "multicast" and kernel.architecture == "sm_80":
            continue  # traps stand in for what it does not have
        assert kernel.count(r"MEMBAR.*SYS.*") == RELEASES[kind(kernel)], kernel
        own = (
            3 if kind(kernel) == "multicast" else 0
        )  # a fence for aliases is two: of the device, and of the system
        assert kernel.count(r"MEMBAR.*") == kernel.count(r"MEMBAR.*SYS.*") + own, kernel
