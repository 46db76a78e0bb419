"""A rank that our launcher started: it inherits one end of a socketpair, whose other end the broker holds."""

from __future__ import annotations

import os
import socket
import stat

from pycollectives.bootstrap.client import Connection, SocketRendezvous
from pycollectives.bootstrap.rendezvous import Rendezvous, SingleRendezvous
from pycollectives.bootstrap.settings import number
from pycollectives.bootstrap.wire import Channel, Kind
from pycollectives.errors import BootstrapError

RANK = "PYCOLLECTIVES_RANK"
SIZE = "PYCOLLECTIVES_SIZE"
FD = "PYCOLLECTIVES_FD"
INODE = "PYCOLLECTIVES_FD_INODE"  # tells the inherited socket from another file of the same number

_connection: Connection | None = None
_epoch = 0


def present() -> bool:
    """Whether the launcher's variables are set."""
    return RANK in os.environ


def discover() -> Rendezvous:
    """A new rendezvous of this process with those that the others open, each its n-th with the others' n-th.

    Raises BootstrapError.
    """
    global _connection, _epoch
    rank, size = number(RANK), number(SIZE)
    if rank is None or size is None or rank >= size:
        raise BootstrapError(f"{RANK} is {os.environ.get(RANK)!r} and {SIZE} is {os.environ.get(SIZE)!r}")
    if size == 1:
        return SingleRendezvous()
    if _connection is None or _connection.pid != os.getpid():
        connection = Connection(Channel(_inherited_socket(rank), trusted=True), rank, "the launcher")
        connection.tell(Kind.HELLO, {"pid": os.getpid()})
        _connection, _epoch = connection, 0
    _epoch += 1
    return SocketRendezvous(_connection, size, "launcher", epoch=_epoch, on_close=_keep_connected)


def _keep_connected() -> None:
    """The connection serves this process's next rendezvous; the launcher sees the process end by itself."""


def _inherited_socket(rank: int) -> socket.socket:
    fd = number(FD)
    try:
        status = os.fstat(-1 if fd is None else fd)
    except OSError:
        status = None
    if fd is None or status is None or not stat.S_ISSOCK(status.st_mode) or status.st_ino != number(INODE):
        raise BootstrapError(
            f"the launcher's variables say rank {rank}, but its socket (descriptor {os.environ.get(FD)}) is "
            f"not in this process (pid {os.getpid()}): only the process that the launcher started is a rank. "
            f"Unset {RANK} to run without the launcher",
            rank=rank,
        )
    return socket.socket(fileno=fd)
