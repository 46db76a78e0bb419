"""Ranks whose collectives are the CUDA kernels, on the emulated device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pycollectives.bootstrap.threads import run_threads
from pycollectives.communicator import Communicator
from pycollectives.device import Options, emulated
from pycollectives.device.device import native

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
) -> list[Result]:
    """`fn(comm, *args)` on `n` ranks that are threads. `patience`: polls in vain before a run is called a hang."""
    chosen = emulated() if options is None else options
    device().configure(seed=seed, patience=patience)
    return run_threads(n, fn, *args, make=lambda rendezvous: Communicator(rendezvous, device=chosen))


def mutants() -> list[str]:
    """The pieces of synchronisation that the kernels can do without, for a test of the tests; the first is none."""
    names: list[str] = device().MUTANTS
    return names
