"""The native extension of devices."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import DeviceError


def native(emulated: bool) -> Any:
    """The extension. Raises DeviceError where it was not built."""
    name = "_cuda_emulated" if emulated else "_cuda"
    try:
        return importlib.import_module(f"pycollectives.{name}")
    except ImportError as error:
        how = "PYCOLLECTIVES_EMULATOR=1" if emulated else "nvcc"
        raise DeviceError(
            f"the extension {name} was not built (it needs {how} at build time): {error}"
        ) from error


@contextmanager
def chosen_device(module: Any, number: int) -> Iterator[None]:
    """Device `number` is this thread's current one: others than the extension look there. Raises DeviceError."""
    before = module.current_device()
    module.use_device(number)
    try:
        yield
    finally:
        module.use_device(before)
