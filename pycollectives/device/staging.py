"""Calls on device memory by the CPU of all hosts: copied to pinned host memory, moved as host arrays, copied back, in pieces.

to the host      [ 0 ][ 1 ]     [ 2 ]
ranks               [ 0     ][ 1     ][ 2     ]       the call of the piece on the host communicator
to the device                [ 0 ]    [ 1 ]   [ 2 ]   two buffers for each way
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..calls import Kind
from ..errors import CollectiveTimeoutError, InvalidArgumentError
from .pieces import Piece, cut, merged

if TYPE_CHECKING:
    from ..communicator import Communicator

LOOK = 0.05  # seconds between two looks at the other ranks while the host waits for the device


class Staging:
    """The pinned memory and the streams of one rank, for its calls between hosts.

    Raises DeviceError where there is no device, or no memory.
    """

    def __init__(self, module: Any, number: int, piece_bytes: int) -> None:
        self.piece_bytes = piece_bytes
        self._way, self.copies = module.Way, module.Copies(number)
        self._stored: list[Any] = [None, None]  # when the last copies from the buffers of outputs are over
        for which in range(4):
            self.copies.buffer(which, piece_bytes)

    def call(
        self, comm: Communicator, kind: Kind, source: int, target: int, ready: list[Any], deadline: float
    ) -> Any:
        """Make the call on the ranks of `comm` when the events `ready` have come; returns the event of its end.

        `source`, `target`: addresses in device memory (0: none). Call it in the order of the calls of `comm`.
        """
        pieces, item = cut(comm._calls, kind, self.piece_bytes), kind.dtype.itemsize
        for event in ready:
            self.copies.follow(self._way.TO_HOST, event)
            self.copies.follow(self._way.TO_DEVICE, event)
        core, end = comm._native(), None
        loaded = self._load(pieces[0], 0, source, item)
        for i, piece in enumerate(pieces):
            later = self._load(pieces[i + 1], i + 1, source, item) if i + 1 < len(pieces) else None
            wait_for(loaded[1], comm, deadline)
            if (before := self._stored[i % 2]) is not None:
                wait_for(before, comm, deadline)
            given = sum(n for _, n in piece.gives) * item
            into = self.copies.buffer(2 + i % 2, max(given, 1))
            core.run(comm._calls.find(piece.kind), loaded[0], into if target else 0, left(deadline))
            self._stored[i % 2] = end = self._store(piece, into, target, item)
            if later is not None:
                loaded = later
        return end

    def _load(self, piece: Piece, i: int, source: int, item: int) -> tuple[int, Any]:
        """Queue the copies of a piece's input; where it will be, and the event."""
        nbytes = sum(n for _, n in piece.takes) * item
        at = into = self.copies.buffer(i % 2, max(nbytes, 1))
        copies = []
        for first, n in merged(piece.takes):
            copies.append((at, source + first * item, n * item))
            at += n * item
        return into, self.copies.copy(self._way.TO_HOST, copies)

    def _store(self, piece: Piece, at: int, target: int, item: int) -> Any:
        copies = []
        for first, n in merged(piece.gives if target else ()):
            copies.append((target + first * item, at, n * item))
            at += n * item
        return self.copies.copy(self._way.TO_DEVICE, copies)


def left(deadline: float) -> float:
    """Seconds until then."""
    return max(0.0, deadline - time.monotonic())


def wait_for(event: Any, comm: Communicator, deadline: float) -> None:
    """The host waits for the device. Raises what has ended `comm` meanwhile, CollectiveTimeoutError, DeviceError."""
    while not event.wait_for(LOOK):
        comm._native().check()
        if time.monotonic() > deadline:
            raise CollectiveTimeoutError(
                "the device did not come so far in time: what was queued on the stream before the call counts",
                rank=comm.rank,
            )


def check_number(arrays: list[Any], number: int) -> None:
    """InvalidArgumentError for an array of another device than the rank's."""
    for x in arrays:
        if getattr(x, "number", -1) not in (-1, number):
            raise InvalidArgumentError(
                f"an array is on device {x.number}, but this rank's calls are made on device {number}"
            )
