"""What a communicator has in common with those made from it: where the ranks meet, their processes, their symmetric memory."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence

from .bootstrap import forking
from .bootstrap.rendezvous import Rendezvous, close_all
from .regions import Regions


class Processes:
    """The processes of the ranks of a job, by their numbers there, as descriptors (pidfds) that they have given each other.

    A pidfd tells of a death at once, across containers too, and never means another process that has got the same number.
    """

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        forking.watch(self)

    @staticmethod
    def own() -> list[int]:
        """A new descriptor of this process, to give away; none where the kernel has no such thing."""
        with contextlib.suppress(OSError):
            return [os.pidfd_open(os.getpid())]
        return []

    @staticmethod
    def namespace() -> int:
        """Numbers of processes mean the same where this is the same."""
        return os.stat("/proc/self/ns/pid").st_ino

    def add(self, rank: int, pid: int, namespace: int, fds: Sequence[int]) -> None:
        """Another rank; the first of `fds`, if there is any, becomes this object's."""
        if namespace == self.namespace():
            self._pids[rank] = pid
            if pid == os.getpid():  # a thread of this process
                close_all(fds)
                return
        if fds:
            self._fds[rank] = fds[0]

    def watched(self, rank: int) -> tuple[int, int]:
        """How to watch the process of a rank: (pidfd or -1, pid or 0). (-1, 0) is a thread of this process."""
        pid = self._pids.get(rank, 0)
        return self._fds.get(rank, -1), 0 if pid == os.getpid() else pid

    def after_fork_in_child(self) -> None:
        """Close the child's copies."""
        close_all(self._fds.values())
        self._fds.clear()

    def __del__(self) -> None:
        self.after_fork_in_child()


class Family:
    """Shared by a communicator, all that were split off it, and what is left of it after a failure.

    Those that were not split off another one hold the rendezvous; the last of them closes it.
    """

    def __init__(self, rendezvous: Rendezvous, ancestor: Family | None = None) -> None:
        self.rendezvous = rendezvous
        self.regions: Regions = Regions() if ancestor is None else ancestor.regions
        self.processes: Processes = Processes() if ancestor is None else ancestor.processes
        # The most ranks of one communicator that have met on a device, by its bus: device/sharing.py.
        self.ranks_on: dict[str, int] = {} if ancestor is None else ancestor.ranks_on
        self._holders = 0
        self._lock = threading.Lock()

    def hold(self) -> None:
        """One more communicator needs the rendezvous."""
        with self._lock:
            self._holders += 1

    def let_go(self) -> None:
        """One less; the last one closes it."""
        with self._lock:
            self._holders -= 1
            last = self._holders == 0
        if last:
            self.rendezvous.close()
