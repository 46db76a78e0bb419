"""The kernels' tests need the emulated device, and share the descriptions of calls with the tests of the communicator.

PYCOLLECTIVES_EMULATED: the folder of another build of the device, with a sanitizer (see .ci/check-kernels).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

import pycollectives as pc

sys.path[:0] = [
    *(str(Path(__file__).parents[1] / name) for name in ("communicator", "device")),
    str(Path(__file__).parents[1]),
]

if folder := os.environ.get("PYCOLLECTIVES_EMULATED"):
    pc.__path__.insert(0, folder)

BUILT = importlib.util.find_spec("pycollectives._cuda_emulated") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if not BUILT and here in item.path.parents:
            item.add_marker(
                pytest.mark.skip("optional: the emulated device was not built (PYCOLLECTIVES_EMULATOR=1)")
            )
