"""Ranks that are threads, whose collectives are the kernels on a GPU: all on one device, or one on each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import pytest

import pycollectives as pc
from pycollectives.bootstrap.threads import run_threads
from pycollectives.communicator import Communicator
from pycollectives.device import Options, emulated
from pycollectives.device.extension import native
from pycollectives.device.sharing import QUEUES

Result = TypeVar("Result")
os.environ.setdefault(QUEUES, "32")  # for eight ranks on a device
EMULATED = os.environ.get("PYCOLLECTIVES_GPU") == "emulated"


@lru_cache(maxsize=1)
def devices() -> int:
    """How many there are."""
    try:
        return int(native(EMULATED).device_count())
    except pc.DeviceError:
        if os.environ.get("PYCOLLECTIVES_GPU") == "required":
            raise
        return 0


needs_gpu = [
    pytest.mark.cuda,
    pytest.mark.skipif("on_gpu.devices() == 0", reason="optional: no CUDA device, or no extension _cuda"),
]


def run(n: int, fn: Callable[..., Result], *args: Any, spread: int = 0, **changes: Any) -> list[Result]:
    """`fn(comm, *args)` on `n` ranks. Arrays in host memory go through the device. `spread`: over all devices, or so many."""
    options = replace(emulated() if EMULATED else Options(), stages_host=True, **changes)

    def make(rendezvous: Any) -> Communicator:
        if spread:
            native(EMULATED).use_device(rendezvous.rank % (devices() if spread is True else spread))
        return Communicator(rendezvous, device=options)

    return run_threads(n, fn, *args, make=make)
