"""What goes to other hosts: staged through pinned memory, combined on the device. On real hosts: tests/cluster/test_devices.py."""

from __future__ import annotations

import emulated
import on_device
import pytest
from ranks import threads

from pycollectives import device


@pytest.mark.parametrize("piece_bytes", [4096, 1 << 20])
def test_every_verb_staged(piece_bytes: int) -> None:
    emulated.device().configure(seed=3)
    assert min(threads(3, on_device.staged, True, piece_bytes)) > 100


def test_combined_in_rank_order() -> None:
    emulated.device().configure(seed=5)
    assert threads(1, on_device.combined, device.emulated()) == [36]
