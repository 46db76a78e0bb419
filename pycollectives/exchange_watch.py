"""What a rank does while it waits for others in an exchange of the bootstrap: a collective may have failed meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import settings
from .bootstrap.rendezvous import ExchangeError
from .errors import BootstrapError, CollectiveError, CollectiveTimeoutError, PeerError
from .waiting import warn

if TYPE_CHECKING:
    from .communicator import Communicator

_GRACE = 0.5  # seconds: an answer to all may be on its way to this rank, while another one has gone on
_DEATH = 0.1  # seconds from the end of a connection to that of its process
_PAUSE = 0.005


class Watch:
    """One exchange. `core`: of a communicator whose members include those of `comm`, or None if there is none.

    `left_of`: the communicator of whose ranks those of `comm` are left. It is broken, but knows who has died, also by a cable
    that is cut, of which the broker learns nothing.
    """

    def __init__(self, comm: Communicator, what: str, core: Any, left_of: Communicator | None = None) -> None:
        self._comm, self._what, self._core, self._left_of = comm, what, core, left_of
        self._lost: float | None = None
        self._patience = settings.warn_seconds() or float("inf")
        self._due = time.monotonic() + self._patience
        self._shrinks: float | None = None

    def look(self) -> None:
        """Called some times a second. Raises what ends the wait."""
        now = time.monotonic()
        if self._core is not None:
            self._core.check()
            self._look_for_shrink(now)
        if self._left_of is not None:
            self._look_for_dead(self._left_of, now)
        if now > self._due:
            warn(
                f"rank {self._comm.rank} waits for other ranks of {self._comm.name!r} for {self._patience:g} s, "
                f"to exchange {self._what}"
            )
            self._due, self._patience = self._due + self._patience, 2 * self._patience

    def explain(self, error: ExchangeError, ranks: Sequence[int]) -> CollectiveError:
        """What the program is told. `ranks`: those of the job, as the communicator of `core` numbers them."""
        peer = self._comm.world_ranks[error.missing[0]] if error.missing else error.peer
        peer = ranks.index(peer) if peer in ranks else None
        text = str(error)
        if error.cause == "gone" and peer is not None and self._has_gone(peer):
            peer = self._first_to_go(len(ranks))
            text = f"{self._core.gone(peer)}; needed for {self._what} of {self._comm.name!r}"
        kind = {"gone": PeerError, "late": CollectiveTimeoutError}.get(error.cause, BootstrapError)
        return kind(text, rank=self._comm.rank, peer=peer, collective=self._what)

    def _look_for_shrink(self, now: float) -> None:
        peer = self._core.shrinking()
        if peer < 0:
            self._shrinks = None
        elif self._shrinks is None:
            self._shrinks = now
        elif now - self._shrinks > _GRACE:
            raise PeerError(f"rank {peer} shrinks the communicator", rank=self._comm.rank, peer=peer)

    def _look_for_dead(self, before: Communicator, now: float) -> None:
        core = before._native()
        for peer, rank in enumerate(self._comm.world_ranks):
            if rank == self._comm.world_ranks[self._comm.rank] or not core.died(
                before.world_ranks.index(rank)
            ):
                continue
            self._lost = now if self._lost is None else self._lost
            if now - self._lost > _GRACE:
                text = core.gone(before.world_ranks.index(rank))
                raise PeerError(text, rank=self._comm.rank, peer=peer, collective=self._what)
            return
        self._lost = None

    def _has_gone(self, peer: int) -> bool:
        deadline = time.monotonic() + (0.0 if self._core is None else _DEATH)
        while self._core is not None and not self._core.gone(peer):
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE)
        return self._core is not None

    def _first_to_go(self, size: int) -> int:
        """Others may have left since that one did. The dead have not said when."""
        gone = [rank for rank in range(size) if self._core.gone(rank)]
        return min(gone, key=lambda rank: int(self._core.state(rank)["left_ns"]))
