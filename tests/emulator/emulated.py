"""Ranks whose collectives are the CUDA kernels, on the emulated device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pycollectives.bootstrap.threads import run_threads
from pycollectives.communicator import Communicator
from pycollectives.device import Options, emulated
from pycollectives.device.extension import native

Result = TypeVar("Result")


def device() -> Any:
    """The emulated device's extension."""
    return native(emulated=True)


def run(
    n: int,
    fn: Callable[..., Result],
    *args: Any,
    options: Options | None = None,
    seed: int = 1,
    patience: int = 400_000,
    spread: bool = False,
    **limits: int,
) -> list[Result]:
    """`fn(comm, *args)` on `n` ranks that are threads. `patience`: polls in vain before a run is called a hang. `limits`: the
    `processors` of a device, and the `resident_threads` that one holds. `spread`: over devices.
    """
    chosen = emulated() if options is None else options
    device().configure(seed=seed, patience=patience, **limits)

    def make(rendezvous: Any) -> Communicator:
        device().use_device(rendezvous.rank if spread else 0)
        return Communicator(rendezvous, device=chosen)

    return run_threads(n, fn, *args, make=make)


def mutants() -> list[str]:
    """The pieces of synchronisation that the kernels can do without, for a test of the tests; the first is none."""
    names: list[str] = device().MUTANTS
    return names
