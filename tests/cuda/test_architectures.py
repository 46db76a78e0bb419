"""What nvcc makes of the kernels for each architecture that wheels are for: as test_sass.py, but compiled here, in minutes.

pytest tests/cuda/test_architectures.py [-k 120]
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_sass import (  # noqa: F401 - run with the kernels below
    disassembled,
    sass,
    test_all_are_there,
    test_no_fence_too_many,
    test_no_hot_kernel_spills,
    test_sixteen_bytes_at_a_time,
    test_the_largest_block_fits,
)

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
cuda_build = importlib.import_module("cuda_build")
ARCHITECTURES = [name.removesuffix("+PTX") for name in cuda_build.WHEELS.split(";")]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(390)]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def kernels(request: pytest.FixtureRequest) -> list[sass.Kernel]:
    """Of an extension for one architecture."""
    if cuda_build.find_nvcc() is None:
        pytest.skip("optional: there is no nvcc")
    if not sass.tool("cuobjdump"):
        pytest.skip("optional: cuobjdump is not installed")
    folder = ROOT / "build" / f"sm_{request.param}"
    wish = {
        "PYCOLLECTIVES_CUDA": "only",
        "PYCOLLECTIVES_EMULATOR": "0",
        "PYCOLLECTIVES_CUDA_ARCHS": request.param,
    }
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        f"--build-lib={folder}",
        f"--build-temp={folder}",
    ]
    subprocess.run(command, cwd=ROOT, env=os.environ | wish, check=True)
    (extension,) = folder.glob("pycollectives/_cuda.*.so")
    found = disassembled(extension)
    assert {kernel.architecture for kernel in found} == {f"sm_{request.param}"}
    return found
