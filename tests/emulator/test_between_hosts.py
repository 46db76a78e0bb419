"""What goes to other hosts: staged through pinned memory, combined on the device. On real hosts: tests/cluster/test_devices.py."""

from __future__ import annotations

import emulated
import numpy as np
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


def test_default_streams_are_the_device_s() -> None:
    """Of the rank's device, not of the one that is the thread's current one."""
    module = emulated.device()
    module.configure(seed=7)
    copies = module.Copies(3)
    source, target = np.arange(100, dtype=np.int32), np.zeros(100, np.int32)
    for stream in (1, 2):  # of all threads, and of each
        target[:] = 0
        module.use_device(3)
        module.copy_on(stream, [(target.ctypes.data, source.ctypes.data, target.nbytes)])
        module.use_device(0)
        here, there = module.record(0, stream), module.record(3, stream)
        assert here.done and not there.done
        assert there.wait_for(5.0) and np.array_equal(target, source)
        copies.copy(module.Way.TO_HOST, [(target.ctypes.data, source.ctypes.data, target.nbytes)]).hold(
            stream
        )
        here, there = module.record(0, stream), module.record(3, stream)
        assert here.done and not there.done, "the stream of that device waits"
        assert there.wait_for(5.0) and module.current_device() == 0
