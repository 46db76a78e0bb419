"""Going on without the ranks that are lost: `Communicator.shrink`.

agree who is left -> meet again -> a new communicator; if one is lost on the way, from the start

On one host they agree in shared memory (csrc/shm/survivors.hpp), between hosts over TCP (bootstrap/agreement.py).
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from typing import TYPE_CHECKING

from .bootstrap import hosted, spanning
from .bootstrap.agreement import Agreement, Decision
from .bootstrap.client import SocketRendezvous
from .errors import BootstrapError, CollectiveTimeoutError, PeerError, TransportError
from .family import Family

if TYPE_CHECKING:
    from .communicator import Communicator

_PAUSE = 0.001
_ENDURING = ("launcher", "threads", "single")  # the meeting places that do not end with a rank


def shrink(comm: Communicator, timeout: float) -> Communicator:
    """See `Communicator.shrink`."""
    core = comm._native()
    for last in [False] * comm.size + [True]:  # an attempt fails only if one more rank is lost
        found, listener = None, None
        if comm._network is None:
            attempt, ranks = core.survivors(timeout)
        else:
            found, listener = _agree(comm, timeout)
            attempt, ranks = found.attempt, list(found.ranks)
        world = [comm.world_ranks[rank] for rank in ranks]
        place: SocketRendezvous | spanning.SpanningRendezvous | None = None
        try:
            if found is not None:
                place = _meet_between_hosts(comm, found, listener, world, timeout)
            elif comm._rendezvous.kind not in _ENDURING:
                place = _meet_anew(comm, attempt, ranks, timeout)
            return type(comm)._of_family(
                comm._family if place is None else Family(place, comm._family),
                f"{comm.name}/shrink.{attempt}",
                world,
                timeout=timeout,
                holds=comm._holds or place is not None,
                device=comm._device_options(),
                left_of=comm,
            )
        except BaseException as error:
            if place is not None:
                place.abandon()
            # Between hosts MPI may be the first to notice a loss.
            lost = (BootstrapError, PeerError, CollectiveTimeoutError, TransportError)
            if last or not isinstance(error, lost):
                raise
    raise AssertionError


def _agree(comm: Communicator, timeout: float) -> tuple[Decision, socket.socket | None]:
    """Between hosts; the first one that is left gets the socket at which it has to serve the others."""
    core, network = comm._native(), comm._network
    assert network is not None
    attempt, decided = core.begin_shrink(), 0
    try:
        one = Agreement(
            network.reunion, comm.name, attempt, comm.rank, comm.world_ranks, timeout, core.gone, core.look
        )
        found, listener = one.reach()
        decided = found.attempt
        core.note_absent([rank for rank in range(comm.size) if rank not in found.ranks])
        return found, listener
    except PeerError:  # the others have gone on without this rank
        core.note_absent([rank for rank in range(comm.size) if rank != comm.rank])
        raise
    finally:
        core.end_shrink(decided)


def _meet_between_hosts(
    comm: Communicator, found: Decision, listener: socket.socket | None, world: list[int], timeout: float
) -> spanning.SpanningRendezvous:
    def gone(rank: int) -> str:
        return str(comm._native().gone(comm.world_ranks.index(rank)))

    return spanning.meet_again(comm._rendezvous, found, listener, world, timeout, gone)


def _meet_anew(comm: Communicator, attempt: int, ranks: list[int], timeout: float) -> SocketRendezvous:
    """Rank 0, which served the exchanges, may be lost: the first survivor serves. Shared memory tells the others where."""
    old, core, first = comm._rendezvous, comm._native(), ranks[0]
    host = comm.world_ranks[first]
    if comm.rank == first:
        name, secret = hosted.random_name(), secrets.token_bytes(32)
        members = [comm.world_ranks[rank] for rank in ranks]
        core.open_door(attempt, json.dumps([name, secret.hex()]))  # whoever comes too early tries again
        return hosted.host(name, secret, old.size, old.kind, rank=host, members=members)
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
