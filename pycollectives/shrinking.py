"""Going on without the ranks that are lost: `Communicator.shrink`.

agree who is left (csrc/shm/survivors.hpp) -> meet again -> a new communicator; if one is lost on the way, from the start
"""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING

from .bootstrap import hosted
from .bootstrap.rendezvous import Rendezvous
from .errors import BootstrapError, CollectiveTimeoutError, PeerError
from .family import Family

if TYPE_CHECKING:
    from .communicator import Communicator

_PAUSE = 0.001
_ENDURING = ("launcher", "threads", "single")  # the meeting places that do not end with a rank


def shrink(comm: Communicator, timeout: float) -> Communicator:
    """See `Communicator.shrink`."""
    core = comm._native()
    for last in [False] * comm.size + [True]:  # an attempt fails only if one more rank is lost
        attempt, ranks = core.survivors(timeout)
        family = comm._family
        try:
            if comm._rendezvous.kind not in _ENDURING:
                family = Family(_meet_anew(comm, attempt, ranks, timeout), comm._family)
            world = [comm.world_ranks[rank] for rank in ranks]
            name = f"{comm.name}/shrink.{attempt}"
            holds = comm._holds or family is not comm._family
            return type(comm)._of_family(
                family, name, world, timeout=timeout, holds=holds, device=comm._device_options()
            )
        except (BootstrapError, PeerError, CollectiveTimeoutError):
            if family is not comm._family:
                family.rendezvous.close()
            if last:
                raise
    raise AssertionError


def _meet_anew(comm: Communicator, attempt: int, ranks: list[int], timeout: float) -> Rendezvous:
    """Rank 0, which served the exchanges, may be lost: the first survivor serves. Shared memory tells the others where."""
    old, core, first = comm._rendezvous, comm._native(), ranks[0]
    host = comm.world_ranks[first]
    if comm.rank == first:
        name, secret = hosted.random_name(), secrets.token_bytes(32)
        members = [comm.world_ranks[rank] for rank in ranks]
        made = hosted.host(name, secret, old.size, old.kind, rank=host, members=members)
        core.open_door(attempt, json.dumps([name, secret.hex()]))
        return made
    deadline = time.monotonic() + timeout
    while not (door := core.find_door(first, attempt)):
        if gone := core.gone(first):
            raise PeerError(gone, rank=comm.rank, peer=first)
        if time.monotonic() > deadline:
            raise CollectiveTimeoutError(
                f"rank {first} opened no new meeting place within {timeout:g} s", rank=comm.rank, peer=first
            )
        time.sleep(_PAUSE)
    name, secret = json.loads(door)
    left = max(0.0, deadline - time.monotonic())
    return hosted.join(name, bytes.fromhex(secret), old.rank, old.size, old.kind, left, host=host)
