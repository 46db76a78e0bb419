"""Symmetric memory: arrays that all members of a communicator have mapped, so that peers can read them in place."""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from .arrays import Array

if TYPE_CHECKING:
    from .communicator import Communicator


class Regions:
    """The symmetric memory of one rank's job; shared by a communicator and all that were split off it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._regions: dict[int, tuple[dict[int, int], int]] = {}  # number -> (address by world rank, bytes)
        self._mappings: dict[int, list[Any]] = {}
        self._dropped: list[int] = []
        self._users: weakref.WeakSet[Communicator] = weakref.WeakSet()

    def join(self, comm: Communicator) -> None:
        """Tell a communicator of all regions that its members have mapped, now and later."""
        with self._lock:
            self._users.add(comm)
            for number in self._regions:
                self._announce(comm, number)

    def _announce(self, comm: Communicator, number: int) -> None:
        addresses, nbytes = self._regions[number]
        if all(rank in addresses for rank in comm.world_ranks):
            comm._native().add_region(number, [addresses[rank] for rank in comm.world_ranks], nbytes)

    def empty(self, comm: Communicator, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Collective: new memory on every rank, mapped by all."""
        self._collect()
        count = int(np.prod(shape, dtype=np.int64))
        nbytes = max(4096, count * dtype.itemsize)
        own = _core.Mapping.create(nbytes, "pycollectives-array")
        parts = comm._exchange(name, nbytes.to_bytes(8, "little"), [own.fd])
        own.close_fd()
        mappings = []
        addresses = {}
        for rank, (payload, fds) in enumerate(parts):
            if rank == comm.rank:
                mapping = own
            else:
                mapping = _core.Mapping.attach(fds[0], int.from_bytes(payload, "little"))
            for fd in fds:
                os.close(fd)
            mappings.append(mapping)
            addresses[comm.world_ranks[rank]] = mapping.address
        number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little") >> 2
        with self._lock:
            self._regions[number] = (addresses, nbytes)
            self._mappings[number] = mappings
            for user in list(self._users):
                if not user.closed:
                    self._announce(user, number)
        holder = np.frombuffer(own, dtype=np.uint8)
        weakref.finalize(holder, self._dropped.append, number)
        return holder[: count * dtype.itemsize].view(dtype).reshape(shape)

    def _collect(self) -> None:
        """Give back the memory of arrays that nobody here uses any more; peers keep their mappings until they drop theirs."""
        while self._dropped:
            number = self._dropped.pop()
            with self._lock:
                for user in list(self._users):
                    if not user.closed:
                        user._native().remove_region(number)
                self._regions.pop(number, None)
                self._mappings.pop(number, None)
