"""The tests of the kernels on a GPU share their calls with those of the communicator and of the emulated device.

PYCOLLECTIVES_GPU=emulated runs them on the emulated device: so that they are known to work before there is a GPU. With `required`
it is an error that there is none.
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("communicator", "emulator", "device", ".")]
