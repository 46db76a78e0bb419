"""How far apart the cores of ranks 0 and 1 are: the one-way time of a flag between them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import _core

if TYPE_CHECKING:
    from ..communicator import Communicator

_TURNS = 200
_BATCHES = 5
_NEAR, _FAR = (
    120.0,
    1000.0,
)  # nanoseconds: within a cache, between caches or sockets; above: not at the same time


class Distance:
    """Collective: a pair of flags in memory that ranks 0 and 1 share."""

    def __init__(self, comm: Communicator) -> None:
        self._flags: _core.Mapping | None = None
        self._rank, self._turn = comm.rank, 0
        if comm.size == 1:
            return
        own = _core.Mapping.create(4096, "pycollectives-flags") if comm.rank == 0 else None
        parts = comm._exchange("bench/flags", b"", [] if own is None else [own.fd])
        if own is not None:
            self._flags = own
        elif comm.rank == 1:
            self._flags = _core.Mapping.attach(parts[0][1][0], 4096)
        for _, fds in parts:
            for fd in fds:
                os.close(fd)

    def measure(self) -> float | None:
        """Collective over ranks 0 and 1: nanoseconds (the best of a few batches); None elsewhere.

        Ranks are not pinned: this holds for where they are now.
        """
        if self._flags is None or self._rank > 1:
            return None
        best = float("inf")
        for _ in range(1 + _BATCHES):  # the first one waits for the other rank to come
            took = float(_core.flag_latency(self._flags, self._rank == 0, self._turn, _TURNS, 5.0))
            self._turn += _TURNS
            best = min(best, took) if took > 0 else best
        return best if best < float("inf") else None


def name(nanoseconds: float | None) -> str:
    """`near` (one cache), `far` (other cache or socket), `shared` (the two ranks take turns on a core)."""
    if nanoseconds is None:
        return "-"
    return "near" if nanoseconds < _NEAR else "far" if nanoseconds < _FAR else "shared"
