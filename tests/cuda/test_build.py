"""For which architectures nvcc is asked to compile."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
cuda_build = importlib.import_module("cuda_build")
FLAG = re.compile(r"-gencode=arch=compute_(\d+),code=(sm|compute|lto)_(\d+)")


def codes(text: str, *, linkable: bool = False) -> list[str]:
    found = [FLAG.fullmatch(flag) for flag in cuda_build.code_for(text, linkable=linkable)]
    assert all(one and one[1] == one[3] for one in found)
    return [f"{one[2]} {one[3]}" for one in found if one]


def test_code_for() -> None:
    assert codes("90") == codes(";90;") == ["sm 90"]
    assert codes("80;90") == codes("80,90") == ["sm 80", "sm 90"]
    assert codes("90+PTX") == ["sm 90", "compute 90"]
    assert codes(cuda_build.WHEELS) == ["sm 80", "sm 90", "sm 100", "sm 120", "compute 120"]
    # nvJitLink links for later devices, too, what was made for the ones before.
    assert codes(cuda_build.WHEELS, linkable=True) == ["lto 80", "lto 90", "lto 100", "lto 120"]


@pytest.mark.parametrize(
    ("command", "wish", "found"),
    [
        (["build_ext", "--inplace"], None, "90"),
        (["editable_wheel"], None, "90"),
        (["bdist_wheel", "--dist-dir", "dist"], None, cuda_build.WHEELS),
        (["bdist_wheel"], "100", "100"),
        (["bdist_wheel"], "", cuda_build.WHEELS),
    ],
)
def test_a_wheel_is_for_any_device(
    monkeypatch: pytest.MonkeyPatch, command: list[str], wish: str | None, found: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["setup.py", *command])
    monkeypatch.delenv("PYCOLLECTIVES_CUDA_ARCHS", raising=False)
    if wish is not None:
        monkeypatch.setenv("PYCOLLECTIVES_CUDA_ARCHS", wish)
    assert cuda_build.architectures() == found


def test_nvcc_knows_them(tmp_path: Path) -> None:
    nvcc = cuda_build.find_nvcc()
    if nvcc is None:
        pytest.skip("optional: there is no nvcc")
    source = tmp_path / "empty.cu"
    source.write_text("")
    command = [nvcc, "-dryrun", "-c", str(source), "-o", str(tmp_path / "empty.o")]
    done = subprocess.run([*command, *cuda_build.code_for(cuda_build.WHEELS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for code in ("sm_80", "sm_90", "sm_100", "sm_120", "compute_120"):
        assert code in done.stderr


def test_ptx_is_in_one_header() -> None:
    """kernels/ptx.cuh; that is what the emulated device stands in for."""
    folder = ROOT / "csrc" / "cuda" / "kernels"
    with_ptx = {path.name for path in folder.iterdir() if re.search(r"\b(asm|__asm__|__asm)\b", code(path))}
    assert with_ptx == {"ptx.cuh"}


def test_one_header_knows_the_compiler() -> None:
    folder = ROOT / "csrc" / "cuda" / "kernels"
    asking = {path.name for path in folder.iterdir() if re.search(r"__CUDACC__|__CUDA_ARCH__", code(path))}
    assert asking == {"ptx.cuh"}


def code(path: Path) -> str:
    """Without comments."""
    return re.sub(r"//.*", "", path.read_text())
