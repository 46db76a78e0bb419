"""Which ranks can share memory: tried, not guessed from names.

Every rank opens an abstract socket with a random name and tells all others. Whom it can reach there, it asks for a piece of
memory. Two ranks share a host if that works, whatever their hosts are called: containers of one name may be two hosts,
and one host may have two names.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import select
import socket
from collections.abc import Callable
from typing import Any

from pycollectives.bootstrap.handshake import refusal_of_user
from pycollectives.bootstrap.hosted import random_name
from pycollectives.errors import BootstrapError

PLACEMENT = "PYCOLLECTIVES_PLACEMENT"
_PATIENCE_MS = 5000.0
_TOKEN_BYTES = 32

Gather = Callable[[Any], list[Any]]  # everybody's value in rank order; collective


def find_hosts(rank: int, size: int, gather: Gather) -> tuple[int, ...]:
    """The host of every rank, numbered in the order of their first ranks. Collective.

    The environment variable PYCOLLECTIVES_PLACEMENT keeps ranks apart that could share memory: a label for every rank, as
    in "a,a,b,b"; only ranks of one label may share it. Raises BootstrapError where it is wrong.
    """
    label, token, name = _label(rank, size), secrets.token_bytes(_TOKEN_BYTES), random_name()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door, contextlib.ExitStack() as stack:
        door.bind(f"\0{name}")
        door.listen(size)
        door.setblocking(False)
        everyone = gather((name, token, label))
        way = None
        leader = rank
        for lower in range(rank):
            if everyone[lower][2] == label and (way := _reach(everyone[lower][0])) is not None:
                stack.enter_context(way)
                leader = lower
                break
        gather(None)  # all have knocked
        if leader == rank:
            _lend(door, token)
        gather(None)  # all have answered
        if way is not None and not _is_shared(way, everyone[leader][1]):
            leader = rank
        leaders = gather(leader)
    order = {first: number for number, first in enumerate(sorted(set(leaders)))}
    return tuple(order[first] for first in leaders)


def _label(rank: int, size: int) -> str:
    text = os.environ.get(PLACEMENT)
    if not text:
        return ""
    labels = text.split(",")
    if len(labels) != size:
        raise BootstrapError(f"{PLACEMENT}={text!r} has {len(labels)} labels for {size} ranks", rank=rank)
    return labels[rank]


def _reach(name: str) -> socket.socket | None:
    """A connection to the socket of that name, if there is one in this network namespace."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(f"\0{name}")
    except OSError:
        sock.close()
        return None
    return sock


def _lend(door: socket.socket, token: bytes) -> None:
    """Give everybody at the door a piece of memory with the token in it."""
    fd = os.memfd_create("pycollectives-place", os.MFD_CLOEXEC)
    try:
        os.write(fd, token)
        while True:
            try:
                guest, _ = door.accept()
            except BlockingIOError:
                return
            with guest:
                if refusal_of_user(guest) is None:
                    with contextlib.suppress(OSError):
                        socket.send_fds(guest, [b"!"], [fd])
    finally:
        os.close(fd)


def _is_shared(way: socket.socket, token: bytes) -> bool:
    """Can the memory that comes this way be mapped, and is it the leader's?"""
    poll = select.poll()
    poll.register(way, select.POLLIN)
    if not poll.poll(_PATIENCE_MS):
        return False
    try:
        _, fds, _, _ = socket.recv_fds(way, 1, 1)
    except OSError:
        return False
    try:
        if not fds:
            return False
        with mmap.mmap(fds[0], _TOKEN_BYTES, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
            return memory[:_TOKEN_BYTES] == token
    except (OSError, ValueError):
        return False
    finally:
        for fd in fds:
            os.close(fd)
