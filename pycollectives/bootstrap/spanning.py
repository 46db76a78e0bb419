"""Jobs on several hosts.

world    a broker in rank 0's process, behind a TCP port: payloads of all ranks
local    a broker in the process of each host's first rank, behind an abstract socket: descriptors, which only the ranks
         of one host can pass to each other
MPI      the data, see csrc/mpi
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pycollectives.bootstrap import hosted
from pycollectives.bootstrap.addresses import Door, listen
from pycollectives.bootstrap.agreement import Decision
from pycollectives.bootstrap.client import SocketRendezvous
from pycollectives.bootstrap.hosted import Host
from pycollectives.bootstrap.lifelines import Lifelines
from pycollectives.bootstrap.places import Gather
from pycollectives.bootstrap.rendezvous import Rendezvous, SingleRendezvous
from pycollectives.bootstrap.reunion import Reunion
from pycollectives.bootstrap.settings import connect_timeout
from pycollectives.errors import BootstrapError, TransportError

_HEAD = struct.Struct("<II")  # the rank, its descriptors
_AGAIN_SECONDS = 10.0  # that whoever serves the others may take to answer one of them


@dataclass
class Network:
    """How the ranks of a job reach those on other hosts. `hosts[r]`: the number of world rank r's host."""

    hosts: tuple[int, ...]
    names: tuple[str, ...]  # of the hosts
    library: Any  # _core.MpiLibrary
    comm: Any  # mpi4py's communicator, of this library alone; its ranks are the world's
    handle: int
    tags: int  # the largest tag
    lifelines: Lifelines
    reunion: Reunion
    groups: int = 0  # communicators made so far, as far as this rank knows

    def neighbours(self, world_ranks: Sequence[int], rank: int) -> list[int]:
        """Those of `world_ranks` that are on the host of `rank`, itself included."""
        return [each for each in world_ranks if self.hosts[each] == self.hosts[rank]]

    def connect(self, core: Any, world_ranks: Sequence[int], number: int, longest_message: int) -> int:
        """Connect a native communicator to its members on other hosts; `number` is the largest of their `groups`.

        Any two ranks so have tags of their own for every communicator that both are in; returns the first of them.
        """
        from pycollectives import _core

        self.groups = number + 1
        first: int = number * _core.MPI_TAGS
        if first + _core.MPI_TAGS > self.tags:
            raise TransportError(
                f"this MPI library has tags for {self.tags // _core.MPI_TAGS} communicators only"
            )
        _core.connect(core, self.library, self.handle, list(world_ranks), first, longest_message)
        return first


def network_of(rendezvous: Rendezvous, world_ranks: Sequence[int]) -> Network | None:
    """The network between `world_ranks`, or None where they all share memory."""
    network: Network | None = getattr(rendezvous, "network", None)
    if network is None or len({network.hosts[rank] for rank in world_ranks}) == 1:
        return None
    return network


class SpanningRendezvous:
    """The rendezvous of a rank whose job has several hosts."""

    def __init__(
        self, world: SocketRendezvous, local: SocketRendezvous | SingleRendezvous, network: Network, kind: str
    ) -> None:
        self.rank, self.size, self.kind = world.rank, world.size, kind
        self.network = network
        self._world, self._local = world, local

    def exchange(
        self,
        key: str,
        index: int,
        count: int,
        payload: bytes,
        fds: Sequence[int],
        timeout: float,
        members: Sequence[int] | None = None,
        look: Callable[[], None] | None = None,
    ) -> list[tuple[bytes, list[int]]]:
        """See `Rendezvous.exchange`. Descriptors come from ranks of this host only; others' lists are empty."""
        deadline = time.monotonic() + timeout
        head = _HEAD.pack(self.rank, len(fds))
        parts = self._world.exchange(key, index, count, head + payload, [], timeout, members, look)
        heads = [_HEAD.unpack_from(part) for part, _ in parts]
        found: list[tuple[bytes, list[int]]] = [(part[_HEAD.size :], []) for part, _ in parts]
        if not any(number for _, number in heads):
            return found
        hosts = self.network.hosts
        near = [i for i, (rank, _) in enumerate(heads) if hosts[rank] == hosts[self.rank]]
        left = max(0.0, deadline - time.monotonic())
        neighbours = [rank for rank, host in enumerate(hosts) if host == hosts[self.rank]]
        there = [neighbours.index(heads[i][0]) for i in near]
        passed = self._local.exchange(key, near.index(index), len(near), b"", fds, left, there, look)
        for place, (_, descriptors) in zip(near, passed, strict=True):
            found[place][1].extend(descriptors)
        return found

    def release(self, key: str) -> None:
        """See `Rendezvous.release`. What has descriptors is kept by the local broker."""
        self._local.release(key)

    def close(self) -> None:
        """See `Rendezvous.close`. The network stays, for the communicators that still use it."""
        self._world.close()
        self._local.close()

    def abandon(self) -> None:
        """See `SocketRendezvous.abandon`."""
        self._world.abandon()
        if isinstance(self._local, SocketRendezvous):
            self._local.abandon()


@dataclass
class _Offer:
    """What a rank tells all others before they can meet."""

    host: Host
    lifeline: Door | None = None
    reunion: tuple[Door, bytes] | None = None
    door: Door | None = None  # of the world's broker
    name: str = ""  # of the local broker
    secret: bytes = b""
    problem: str = ""


def meet(
    rank: int, hosts: tuple[int, ...], gather: Gather, kind: str
) -> tuple[SocketRendezvous, SocketRendezvous | SingleRendezvous, Network]:
    """Bring the ranks of several hosts together; collective. The network's MPI part is the caller's to fill in.

    Raises BootstrapError on every rank if one cannot take part.
    """
    near = [r for r, host in enumerate(hosts) if host == hosts[rank]]
    made: list[SocketRendezvous] = []
    offer = _Offer(Host.here())
    world: SocketRendezvous | None = None
    local: SocketRendezvous | SingleRendezvous = SingleRendezvous()
    try:
        lifelines = Lifelines()
        offer.lifeline = lifelines.door
        reunion = Reunion()
        offer.reunion = reunion.door, reunion.secret
        if rank == near[0] or rank == 0:
            offer.secret = secrets.token_bytes(32)
        if rank == near[0] and len(near) > 1:
            offer.name = hosted.random_name()
            made.append(local := hosted.host(offer.name, offer.secret, len(near), kind))
        if rank == 0:
            listener = listen(len(hosts) + 16)
            offer.door = Door.of(listener)
            made.append(world := hosted.serve(listener, offer.secret, len(hosts), kind))
    except (OSError, BootstrapError) as error:
        offer.problem = str(error)
    try:
        offers: list[_Offer] = gather(offer)
        for each, other in enumerate(offers):
            if other.problem:
                raise BootstrapError(f"rank {each} cannot take part: {other.problem}", rank=rank, peer=each)
        timeout = connect_timeout()
        if world is None:
            assert offers[0].door is not None
            world = hosted.join_over_tcp(offers[0].door, offers[0].secret, rank, len(hosts), kind, timeout)
            made.append(world)
        if rank != near[0]:
            leader = offers[near[0]]
            local = hosted.join(leader.name, leader.secret, near.index(rank), len(near), kind, timeout)
            made.append(local)
        lifelines.connect({r: o.lifeline for r, o in enumerate(offers) if r not in near and o.lifeline})
        reunion.others = {r: o.reunion for r, o in enumerate(offers) if r != rank and o.reunion}
    except BaseException:
        for place in made:
            place.abandon()
        raise
    names = tuple(offers[hosts.index(host)].host.name for host in range(max(hosts) + 1))
    return world, local, Network(hosts, names, None, None, 0, 0, lifelines, reunion)


def meet_again(
    old: Rendezvous,
    found: Decision,
    listener: socket.socket | None,
    members: Sequence[int],
    timeout: float,
    gone: Callable[[int], str],
) -> SpanningRendezvous:
    """Bring together what is left of a job; collective. Names and secrets follow from the decision.

    `members`: their ranks in the job; `listener`: of the first of them; `gone(r)`: why rank r of the job is not there any more,
    or "". Raises BootstrapError on those that cannot come.
    """
    assert isinstance(old, SpanningRendezvous)
    network, rank, size, kind, first = old.network, old.rank, old.size, old.kind, members[0]
    deadline = time.monotonic() + timeout
    secret = network.reunion.derive(first, f"world {found.nonce}")
    made: list[SocketRendezvous] = []
    try:
        if listener is not None:
            world: SocketRendezvous = hosted.serve(listener, secret, size, kind, rank=rank, members=members)
        else:
            door = replace(network.reunion.others[first][0], port=found.port)
            left = min(_AGAIN_SECONDS, timeout)
            world = hosted.join_over_tcp(door, secret, rank, size, kind, left, host=first)
        made.append(world)
        everyone = [r for r, host in enumerate(network.hosts) if host == network.hosts[rank]]
        near = [r for r in members if r in everyone]
        local: SocketRendezvous | SingleRendezvous = SingleRendezvous()
        if len(near) > 1:
            here = f"host {network.hosts[rank]} {found.nonce}"
            name = f"pycollectives-{network.reunion.derive(first, f'name of {here}').hex()[:32]}"
            secret, mine = network.reunion.derive(first, here), everyone.index(rank)
            if rank == near[0]:
                there = [everyone.index(r) for r in near]
                local = hosted.host(name, secret, len(everyone), kind, rank=mine, members=there)
            else:
                lead = everyone.index(near[0])
                local = _join(name, secret, mine, len(everyone), kind, deadline, lead, lambda: gone(near[0]))
    except BaseException:
        for each in made:
            each.abandon()
        raise
    return SpanningRendezvous(world, local, network, kind)


def _join(
    name: str,
    secret: bytes,
    rank: int,
    size: int,
    kind: str,
    deadline: float,
    host: int,
    gone: Callable[[], str],
) -> SocketRendezvous:
    """Come to the first rank of this host, as long as it is there."""
    while True:
        left = deadline - time.monotonic()
        try:
            return hosted.join(name, secret, rank, size, kind, min(_AGAIN_SECONDS, left), host=host)
        except BootstrapError:
            if gone() or time.monotonic() > deadline:
                raise
