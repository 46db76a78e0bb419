"""Calls whose data go from device to device. Here memory moves inside the process; by MPI: tests/cluster/test_devices.py."""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import emulated
import numpy as np
import on_device
import pytest
from ranks import threads

from pycollectives import device
from pycollectives.device import direct
from pycollectives.device.combining import Combiner
from pycollectives.device.staging import wait_for

NUMBER = 2  # of the ranks' device; the current one of their threads is another


class Exchanger:
    """Moves messages as _core.DirectExchange does, between threads. `places`: on which device they were posted."""

    def __init__(self, rank: int, lines: Any) -> None:
        self._rank, self._lines = rank, lines
        self._receives: list[tuple[int, int, int]] = []
        self._sent: list[threading.Event] = []
        self.places: set[int] = set()

    def start(self, receives: list[tuple[int, int, int]], sends: list[tuple[int, int, int]]) -> None:
        self.places.add(emulated.device().current_device())
        self._receives, self._sent = [one for one in receives if one[2]], []
        for peer, address, nbytes in sends:
            if nbytes:
                self._sent.append(threading.Event())
                self._lines[self._rank, peer].put((address, nbytes, self._sent[-1]))

    def wait(self, seconds: float) -> bool:
        while self._receives:
            peer, address, nbytes = self._receives[0]
            try:
                source, sent, over = self._lines[peer, self._rank].get(timeout=seconds)
            except queue.Empty:
                return False
            assert sent == nbytes
            ctypes.memmove(address, source, nbytes)
            over.set()
            del self._receives[0]
        return all(over.wait(seconds) for over in self._sent)

    def give_up(self) -> None:
        """Nothing is kept."""


def on_ranks(n: int, fn: Callable[[Any, direct.Direct], Any]) -> list[Any]:
    """`fn(comm, calls)` on threads."""
    module, options, lines = emulated.device(), device.emulated(), defaultdict(queue.SimpleQueue)
    module.configure(seed=13)

    def rank(comm: Any) -> Any:
        calls = direct.Direct.__new__(direct.Direct)
        calls.comm, calls._others = comm, [(comm.rank + i) % n for i in range(1, n)]
        calls._copies, calls._combiner = module.Copies(NUMBER), Combiner(comm, options, NUMBER)
        calls._exchanger = Exchanger(comm.rank, lines)
        try:
            return fn(comm, calls)
        finally:
            calls._combiner.close()

    return threads(n, rank)


def call(comm: Any, calls: direct.Direct, verb: str, x: Any, expected: Any, **options: Any) -> bool:
    """A call on device memory, which the emulated device shares with the host."""
    given = [options.get(name) for name in ("op", "root", "counts")]
    arguments = comm._resolve(verb, x, *given, None, None, False)
    out, deadline = arguments.buffers.out, time.monotonic() + 60
    if out is not None:
        out[...] = 7
    target = 0 if out is None else out.ctypes.data
    end = calls.call(arguments.kind, arguments.buffers.x.ctypes.data, target, [], deadline)
    wait_for(end, comm, deadline)
    return (out is None) == (expected is None) and (out is None or np.array_equal(out, expected))


@pytest.mark.parametrize("piece_bytes", [4096, 1 << 20])
def test_every_verb(piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the rank's device, whatever the thread's current one is: MPI works on that one."""
    monkeypatch.setattr(direct, "PIECE", piece_bytes)

    def fn(comm: Any, calls: direct.Direct) -> set[int]:
        for verb, x, options in on_device.cases(comm):
            if verb.removesuffix("v") in direct.VERBS:
                expected = comm._now(verb, x, **options)
                assert call(comm, calls, verb, x, expected, **options), (verb, x.shape, x.dtype)
        return calls._exchanger.places

    assert on_ranks(3, fn) == [{NUMBER}] * 3


def test_memory_is_taken_again_after_its_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece may be longer than the one whose memory it takes, so that this is replaced."""
    monkeypatch.setattr(direct, "PIECE", 4096)

    def fn(comm: Any, calls: direct.Direct) -> int:
        copies, combine, ends, taken = calls._copies, calls._combiner.combine, [], []

        class Watched:
            def scratch(self, which: int, nbytes: int) -> int:
                if which in direct.RECEIVED:
                    taken.append(which)
                    assert all(end.done for end in ends[: len(taken) - 2]), "a kernel still reads it"
                return int(copies.scratch(which, nbytes))

        def watched(*args: Any, **options: Any) -> Any:
            ends.append(combine(*args, **options))
            return ends[-1]

        calls._copies, calls._combiner.combine = Watched(), watched
        x = np.arange(6000.0) * (comm.rank + 1)
        assert call(comm, calls, "reduce_scatter", x, comm.reduce_scatter(x, "sum"), op="sum")
        return len(ends)

    assert min(on_ranks(3, fn)) > 4
