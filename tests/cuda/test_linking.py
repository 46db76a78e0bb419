"""Operators written in Python, linked into the kernels: on any machine that has nvcc and the wheels of `pycollectives[cuda13]`."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 and float8 as NumPy dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "gpu"))

import sass
from user_ops import AFFINE, LAST, MATRIX, MATRIX3, PAIR, SUM_AND_LAST, affine

import pycollectives as pc
from pycollectives.device import linking

pytest.importorskip("numba_cuda", reason="optional: numba-cuda is not installed")
_cuda = pytest.importorskip("pycollectives._cuda", reason="optional: the extension _cuda was not built")

# Operator, dtype that is computed with, items of a group, kernels: the forms of csrc/cuda/kernels/user.cu.
CASES = {
    "float32": (AFFINE, "float32", 4, "items"),
    "bool": (LAST, "bool", 16, "items"),
    "complex128": (LAST, "complex128", 1, "items"),
    "float16": (AFFINE, "float32", 8, "float16"),
    "bfloat16": (AFFINE, "float32", 8, "bfloat16"),
    "float8_e4m3fn": (AFFINE, "float32", 16, "float8_e4m3fn"),
    "2x2 bfloat16": (MATRIX, "float32", 2, "bfloat16"),
    "3x3 float64": (MATRIX3, "float64", 2, "blocks"),
    "filled record": (SUM_AND_LAST, np.dtype(PAIR.descr, align=True), 1, "items"),
}
RELEASES = {"simple": 2, "ll": 1, "ll128": 0, "direct": 2}  # as in test_sass.py


def careful(a: Any, b: Any) -> Any:
    assert a >= 0
    return a + b


def doubled(a: Any) -> Any:
    return a + a


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield


def image(
    op: Any,
    dtype: Any = "float32",
    group: int = 4,
    form: str = "items",
    capability: int = 90,
    fused: bool = False,
) -> bytes:
    kernels = _cuda.user_image()
    return linking.image(op, np.dtype(dtype), group, form, capability, kernels, fused=fused)


@lru_cache
def linked(case: str, fused: bool) -> bytes:
    operator, dtype, group, form = CASES[case]
    return image(pc.op(operator.f, shape=operator.shape or None), dtype, group, form, fused=fused)


@pytest.mark.parametrize(
    ("case", "fused"),
    [*((case, False) for case in CASES), *((case, True) for case in ("float32", "bfloat16", "3x3 float64"))],
)
def test_every_form(case: str, fused: bool, tmp_path: Path) -> None:
    """The kernels of the form are there, and the operator is inlined: nothing calls it, and it is no function any more.
    They move 16 bytes at a time, and have no more fences than kernels of ours.

    `fused`: those for ranks that share a launch."""
    file = tmp_path / "linked.cubin"
    file.write_bytes(linked(case, fused))
    try:
        kernels = sass.kernels(file)
    except FileNotFoundError as tool:
        pytest.skip(f"optional: {tool} is not installed")
    form = CASES[case][3]
    protocols = ["direct", "ll", "ll128", "simple"] if form != "blocks" else ["ll", "ll128", "simple"]
    way = "pc_user_fused_" if fused else "pc_user_"
    assert {kernel.name for kernel in kernels} == {f"{way}{protocol}_{form}" for protocol in protocols}
    assert linking.SYMBOL.encode() not in linked(case, fused)
    for kernel in kernels:
        assert kernel.count(r"LDG\.E.*128.*") >= 2 and kernel.count(r"STG\.E.*128.*") >= 2, kernel
        releases = RELEASES[kernel.name.removeprefix(way).split("_")[0]]
        assert kernel.count(r"MEMBAR.*SYS.*") == kernel.count(r"MEMBAR.*") == releases, kernel
    if not CASES[case][0].shape:  # elements and records that fill vectors stay in registers
        assert all(kernel.stack == 0 for kernel in kernels), sass.table(kernels)
    if CASES[case][0] is AFFINE:
        for kernel in kernels:
            assert kernel.count("FMUL.*") and kernel.count("FADD.*"), kernel
            assert not kernel.count("FFMA.*"), f"{kernel.name} has bits that the CPU has not"


def test_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator with the same code is not linked again, one with other code is."""
    made = []
    link = linking._linked
    monkeypatch.setattr(linking, "_linked", lambda *args: made.append(1) or link(*args))

    first = image(pc.op(affine))
    assert image(pc.op(affine)) == first and len(made) == 1
    assert image(pc.op(lambda a, b: a * np.float32(0.25) + b)) != first and len(made) == 2


def test_functions_that_numba_has_compiled() -> None:
    """Those that an operator uses are inlined, too."""
    numba = pytest.importorskip("numba")
    helper = numba.njit(doubled)
    op = pc.op(numba.njit(lambda a, b: helper(a) + b))
    assert linking.SYMBOL.encode() not in image(op)


def test_functions_in_modules() -> None:
    """Numba would ask the driver for a device, to compile what is not inlined."""
    numba = pytest.importorskip("numba")
    package = types.ModuleType("package")
    package.module = types.ModuleType("package.module")  # type: ignore[attr-defined]
    package.module.helper, package.module.package = numba.njit(doubled), package
    module = package.module
    for f in (lambda a, b: module.helper(a) + b, lambda a, b: package.module.helper(a) + np.float32(2) * b):
        assert linking.compile_operator(pc.op(f), np.dtype(np.float32), 4, 90)


def test_newer_devices() -> None:
    """LTO-IR for sm_90 serves those that came later."""
    assert image(pc.op(affine), capability=100)[:4] == b"\x7fELF"


def test_what_numba_cannot_compile() -> None:
    def fails(f: Any, error: type[Exception]) -> str:
        with pytest.raises(error) as caught:
            image(pc.op(f))
        return str(caught.value)

    assert "cannot compile op(<lambda>) for float32 on a device: " in fails(
        lambda a, b: a.missing, pc.UnsupportedError
    )
    assert re.search("on a device: .*matmul", fails(lambda a, b: a @ b, pc.UnsupportedError))
    assert "raises exceptions" in fails(careful, pc.UnsupportedError)


@pytest.mark.parametrize("package", ["numba_cuda", "cuda.bindings.nvjitlink"])
def test_what_is_missing_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert importlib.util.find_spec(package)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(pc.DeviceError, match=r"numba-cuda|nvidia-nvjitlink") as caught:
        image(pc.op(affine))
    assert "pip install 'pycollectives[cuda13]'" in str(caught.value)
