"""Jobs without our launcher: the broker lives in rank 0's process, behind an abstract socket."""

from __future__ import annotations

import atexit
import errno
import os
import secrets
import socket
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pycollectives.bootstrap.broker import Broker
from pycollectives.bootstrap.client import Connection, SocketRendezvous
from pycollectives.bootstrap.handshake import introduce
from pycollectives.bootstrap.settings import seconds
from pycollectives.bootstrap.wire import Channel
from pycollectives.errors import BootstrapError

if TYPE_CHECKING:
    from pycollectives.bootstrap.addresses import Door

_SETTLE_SECONDS = 1.0
_serving: weakref.WeakSet[Broker] = weakref.WeakSet()


@atexit.register
def _settle() -> None:
    """Rank 0 may end right after an exchange; the others must still get their answers."""
    for broker in list(_serving):
        broker.settle(_SETTLE_SECONDS)


@dataclass(frozen=True)
class Host:
    """Where a rank runs. Ranks of equal ``boot`` and ``network`` see each other's abstract sockets."""

    name: str
    boot: str
    network: int

    @classmethod
    def here(cls) -> Host:
        """The calling process's."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(socket.gethostname(), boot, os.stat("/proc/self/ns/net").st_ino)

    def sees(self, other: Host) -> bool:
        """Whether the two can meet at an abstract socket."""
        return (self.boot, self.network) == (other.boot, other.network)


def watch_way(sock: socket.socket) -> None:
    """Let the end of a host, or of the way to it, be the end of a TCP connection within the time that lifelines have."""
    from pycollectives.bootstrap.addresses import keep_watch

    limit = seconds("PYCOLLECTIVES_LIFELINE_SECONDS", 10.0)
    keep_watch(sock, limit)
    # The kernel does not look after a connection on which something has not been acknowledged yet.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * limit))


def random_name() -> str:
    """The name of an abstract socket that nobody can guess."""
    return f"pycollectives-{secrets.token_hex(16)}"


class HostedRendezvous(SocketRendezvous):
    """The rendezvous of the rank whose process holds the broker; the others are served beyond its close."""

    def __init__(self, connection: Connection, size: int, kind: str, broker: Broker) -> None:
        super().__init__(connection, size, kind, on_close=self._finish)
        self._broker = broker

    def abandon(self) -> None:
        """See `SocketRendezvous.abandon`."""
        super().abandon()
        self._broker.close()

    def _finish(self) -> None:
        self._connection.close()
        self._broker.finish()


def host(
    name: str, secret: bytes, size: int, kind: str, *, rank: int = 0, members: Sequence[int] | None = None
) -> HostedRendezvous:
    """Serve a job of ``size`` ranks at ``name``, as one of them. Raises BootstrapError when the name is taken.

    ``members``: the ranks that are left of the job (default: all).
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"\0{name}")
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise BootstrapError(
            f"the abstract socket {name!r} is taken: another job uses the same name", rank=rank
        ) from error
    listener.listen(size + 16)
    return serve(listener, secret, size, kind, rank=rank, members=members)


def serve(
    listener: socket.socket,
    secret: bytes,
    size: int,
    kind: str,
    *,
    rank: int = 0,
    members: Sequence[int] | None = None,
) -> HostedRendezvous:
    """The same at a socket that listens. What is accepted there over TCP is watched, as its options are inherited."""
    if listener.family != socket.AF_UNIX:
        watch_way(listener)
    broker = Broker(size, keep=True, listener=listener, secret=secret)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    broker.attach(rank, theirs)
    for lost in set(range(size)) - set(range(size) if members is None else members):
        broker.leave(lost, "was lost before")
    broker.start()
    _serving.add(broker)
    connection = Connection(Channel(ours, trusted=True), rank, f"rank {rank}")
    return HostedRendezvous(connection, size, kind, broker)


def join(
    name: str, secret: bytes, rank: int, size: int, kind: str, timeout: float, *, host: int = 0
) -> SocketRendezvous:
    """Come to the job at ``name`` as ``rank``; rank ``host``, which serves it, may be late. Raises BootstrapError."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            sock.connect(f"\0{name}")
            channel = introduce(sock, secret, rank, size, deadline)
            return SocketRendezvous(
                Connection(channel, rank, f"rank {host}, which serves the exchanges,"), size, kind
            )
        except (ConnectionRefusedError, BlockingIOError, TimeoutError) as error:
            sock.close()
            if time.monotonic() + pause > deadline:
                raise BootstrapError(
                    f"rank {host} did not open its socket {name!r} within {timeout:g} s", rank=rank, peer=host
                ) from error
        except BaseException:
            sock.close()
            raise
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def join_over_tcp(
    door: Door, secret: bytes, rank: int, size: int, kind: str, timeout: float, *, host: int = 0
) -> SocketRendezvous:
    """Come to the job that rank ``host`` serves at ``door``, on another host. Raises BootstrapError."""
    from pycollectives.bootstrap.addresses import connect

    deadline = time.monotonic() + timeout
    try:
        sock = connect(door, timeout)
    except OSError as error:
        tried = ", ".join(door.addresses()) or "no address"
        raise BootstrapError(
            f"rank {host}, on {door.host.name}, cannot be reached at port {door.port} of {tried}: {error}; "
            "the hosts of a job need TCP connections between them",
            rank=rank,
            peer=host,
        ) from error
    try:
        watch_way(sock)
        channel = introduce(sock, secret, rank, size, deadline)
    except BaseException:
        sock.close()
        raise
    connection = Connection(channel, rank, f"rank {host}, which serves the exchanges,")
    return SocketRendezvous(connection, size, kind)
