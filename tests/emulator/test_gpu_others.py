"""What the measurements do with CuPy and NCCL on a GPU, with modules that stand in for them (tests/device/fake_cupy.py)."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import emulated
import fake_cupy
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.gpu import memory, others
from bench.gpu.plan import by_others, on_devices
from bench.gpu.timing import SMALL, Wish, copy_bandwidth, ours, theirs

RANKS = 3


class ByCupy(Wish):
    """The emulated device, with the arrays and streams that a GPU has."""

    memory = memory.CupyMemory


WISH = ByCupy(True, (2, 3), (8, 2048), (8,), 8192, 2, 0.0, 3)


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """All looks like a machine with GPUs."""
    device, known = emulated.device(), others.missing
    device.configure(seed=1)
    made = fake_cupy.modules(device, RANKS)
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    for user in (memory, others):
        monkeypatch.setattr(user, "native", lambda emulated: device)
    monkeypatch.setattr(others, "devices", lambda emulated: RANKS)
    monkeypatch.setattr(others, "missing", lambda emulated: known(False))
    yield made
    device.use_device(0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("verb", ["all_reduce", "all_gather", "reduce_scatter", "reduce", "scan"])
def test_our_rows(verb: str, dtype: str) -> None:
    assert ours(WISH, verb, 2, 64, None, dtype=dtype, waits=True) > 0


def test_graphs_and_copies() -> None:
    assert ours(WISH, "all_reduce", 2, 8, "one_shot", native=True, graph=True) > 0
    assert ours(WISH, "all_reduce", 2, 8, "one_shot", fused=True) > 0
    assert copy_bandwidth(WISH) > 0


def test_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """By CuPy and by PyTorch, on the stream that is waited for."""
    torch = fake_cupy.torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    seen = set()
    for row, run in by_others(WISH):
        seen.add(row.what)
        assert run() > 0, row
        assert bool(torch.used) == row.what.startswith("PyTorch")
        assert set(torch.used) <= {sys.modules["cupy"].cuda.get_current_stream().ptr}
        torch.used.clear()
    assert seen == {"CuPy: adds and copies", "PyTorch: adds and copies"}


def test_a_wrong_sum_is_noticed(cupy: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy["cupy"], "add", lambda a, b, out: out.memory.fill(1))
    with pytest.raises(AssertionError, match="wrong result"):
        next(by_others(WISH))[1]()


@pytest.mark.parametrize("verb", others.BY_NCCL)
def test_nccl(verb: str) -> None:
    assert others.by_nccl(WISH, verb, RANKS, 96) > 0


def test_nccl_is_compared() -> None:
    """With rows of ours for the same collective, on the same ranks, of the same size."""
    rows = [row for row, _ in on_devices(WISH)]
    of = {
        way: {(r.verb, r.ranks, r.nbytes) for r in rows if r.what.endswith(way)}
        for way in ("NCCL", "interpreted")
    }
    assert of["NCCL"] == of["interpreted"] and {verb for verb, *_ in of["NCCL"]} == set(others.BY_NCCL)


@pytest.mark.parametrize("why", ["wrong result", "out of memory"])
def test_one_rank_that_fails(why: str, cupy: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is the row's, and nobody waits for it."""

    def fails(self: Any, send: int, to: int, *_: Any) -> None:
        if self.rank == 1 and why != "wrong result":
            raise MemoryError(why)
        np.frombuffer((ctypes.c_char * 4).from_address(to), np.float32)[:] = 0

    monkeypatch.setattr(fake_cupy.Communicator, "allReduce", fails)
    with pytest.raises((AssertionError, MemoryError), match=why):
        others.by_nccl(WISH, "all_reduce", RANKS, 8)


def test_an_error_says_more_than_that_another_gave_up() -> None:
    def make(rank: int, _: Any) -> Any:
        if rank == 2:
            raise OSError("no such library")
        return (lambda: None), (lambda: True)

    with pytest.raises(OSError, match="no such library"):
        theirs(SMALL, 3, make)
