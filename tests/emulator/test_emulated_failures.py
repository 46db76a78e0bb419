"""What the device does when ranks disagree, leave, or hang."""

from __future__ import annotations

from typing import Any

import emulated
import numpy as np
import pytest

import pycollectives as pc
from pycollectives import device


@pytest.mark.parametrize("protocol", ["simple", "ll", "ll128"])
def test_disagreement(protocol: str) -> None:
    """Ranks that call with other counts: the first message tells."""

    def fn(comm: Any) -> str:
        try:
            comm.all_reduce(np.ones(64 if comm.rank else 72, np.float32), algorithm="one_shot")
        except (pc.MismatchError, pc.AbortedError) as error:
            return type(error).__name__
        return "nothing"

    found = emulated.run(3, fn, options=device.emulated(protocol))
    assert "MismatchError" in found and "nothing" not in found


def test_the_peer_is_named() -> None:
    def fn(comm: Any) -> int | None:
        with pytest.raises((pc.MismatchError, pc.AbortedError)) as found:
            comm.all_reduce(np.ones(3, np.int32 if comm.rank == 1 else np.int64), algorithm="one_shot")
        return found.value.peer if isinstance(found.value, pc.MismatchError) else None

    peers = emulated.run(2, fn, options=device.emulated("ll"))
    assert {peer for peer in peers if peer is not None} <= {0, 1} and any(peer is not None for peer in peers)


def test_a_rank_that_raises_aborts_the_others() -> None:
    def fn(comm: Any) -> None:
        comm.all_reduce(np.ones(5))
        if comm.rank == 1:
            raise KeyError("on purpose")
        comm.all_reduce(np.ones(5))

    with pytest.raises(KeyError):
        emulated.run(3, fn)


def test_a_failed_communicator_refuses_calls() -> None:
    def fn(comm: Any) -> None:
        for _ in range(2):
            with pytest.raises((pc.MismatchError, pc.AbortedError)):
                comm.all_reduce(np.ones(3 + comm.rank))

    emulated.run(2, fn)


@pytest.mark.parametrize("native", [False, True])
def test_a_call_that_others_ended_has_no_result(native: bool) -> None:
    """Every rank disagrees with every other one. Who is ended before he sees it himself must not return as if all were well."""

    def fn(comm: Any) -> bool:
        with pytest.raises((pc.MismatchError, pc.AbortedError)):
            comm.all_reduce(np.ones(640 + 8 * comm.rank, np.float32), algorithm="one_shot")
        return True

    for seed in range(1, 9):
        assert emulated.run(3, fn, options=device.emulated(native=native), seed=seed) == [True] * 3


@pytest.mark.parametrize("protocol", ["simple", "ll", "ll128"])
def test_a_barrier_waits(protocol: str) -> None:
    """Its messages are empty, and must be waited for all the same: here they never come."""

    def fn(comm: Any) -> None:
        comm.barrier()
        if comm.rank == 1:
            comm.close()
        else:
            with pytest.raises(pc.DeviceError, match="no thread moves"):
                comm.barrier()

    emulated.run(2, fn, options=device.emulated(protocol))


def test_a_hang_is_reported_with_its_threads() -> None:
    """A mutant that never gives credit: the report says who waits for what."""
    module = emulated.device()
    module.set_mutant(emulated.mutants().index("credit_never_given"))
    try:
        with pytest.raises(pc.DeviceError, match=r"rank \d block \d thread \d+: credit of rank \d"):
            emulated.run(
                2,
                lambda comm: comm.all_reduce(np.ones(3000), algorithm="ring"),
                options=device.emulated("simple", blocks=1),
            )
    finally:
        module.set_mutant(0)
