"""Ranks that are threads, whose collectives are the kernels on a GPU: all on one device, or one on each."""

from __future__ import annotations

import gc
import os
import threading
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
TIMEOUT = float(os.environ.get("GPU_CHECK_CALL", "25"))  # seconds of a call: kernels that wait in vain end
one_at_a_time = threading.Lock()
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


def run(
    n: int, fn: Callable[..., Result], *args: Any, spread: int = 0, meets: bool = True, **changes: Any
) -> list[Result]:
    """`fn(comm, *args)` on `n` ranks. Arrays in host memory go through the device.

    `spread`: over all devices, or so many. `meets`: all ranks are there at the end.
    """
    options = replace(emulated() if EMULATED else Options(), stages_host=True, **changes)

    def make(rendezvous: Any) -> Communicator:
        if spread:
            native(EMULATED).use_device(rendezvous.rank % (devices() if spread is True else spread))
        comm = Communicator(rendezvous, device=options)
        comm.timeout = TIMEOUT
        return comm

    def whole(comm: Any) -> Result:
        try:
            found = fn(comm, *args)
            if meets:
                comm._exchange("end of the test", b"")
            return found
        finally:
            comm.close()

    try:
        return run_threads(n, whole, make=make)
    finally:
        gc.collect()  # streams and memory of the ranks are for the next test
