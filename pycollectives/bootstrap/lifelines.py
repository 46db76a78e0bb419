"""How a rank learns that one on another host has died: by a TCP connection on which nothing is ever said.

    rank 0 ---- connects to the listening socket of ----> rank 5, which never looks at it

The kernel of the other host answers for a process as long as it lives, also while it computes or is stopped. When the
process ends its kernel resets the connection; when the host or the way to it is gone, the keep-alive of this end
notices. Either makes the socket readable, like a pidfd on one host. A connection that could not be made says nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from pycollectives.bootstrap import forking
from pycollectives.bootstrap.addresses import Door, connect_all, keep_watch, listen
from pycollectives.bootstrap.settings import seconds

MOST = 512  # connections; ranks beyond are watched by their other peers only
_CONNECT_SECONDS = 5.0


class Lifelines:
    """This rank's listening socket, and its connections to those of others."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = listen(4096)
        self.door = Door.of(self._listener)
        self._lines: dict[int, socket.socket] = {}
        forking.watch(self)

    def connect(self, doors: Mapping[int, Door]) -> None:
        """Watch the ranks behind these doors."""
        self._lines = connect_all(dict(list(doors.items())[:MOST]), _CONNECT_SECONDS)
        for line in self._lines.values():
            keep_watch(line, seconds("PYCOLLECTIVES_LIFELINE_SECONDS", 10.0))

    def descriptor(self, rank: int) -> int:
        """A new descriptor that can be read when the rank is gone; -1 where it is not watched."""
        line = self._lines.get(rank)
        return -1 if line is None else os.dup(line.fileno())

    def close(self) -> None:
        """Hang up: the others see this process as gone."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    def after_fork_in_child(self) -> None:
        """A child must not answer for its parent."""
        self.close()

    def __del__(self) -> None:  # no communicator uses them any more
        if hasattr(self, "_lines"):
            self.close()
