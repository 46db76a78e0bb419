"""Symmetric memory: arrays that all members of a communicator have mapped, so that peers can read them in place."""

from __future__ import annotations

import json
import math
import operator
import os
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from .arrays import Array
from .errors import InvalidArgumentError, TransportError
from .extended_dtypes import dtype_of

if TYPE_CHECKING:
    from .communicator import Communicator


MOST_BYTES, MOST_AXES = 1 << 62, 64


def shared_shape(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The checked shape and dtype of an array in symmetric memory. Raises InvalidArgumentError, TransportError."""
    try:
        kind = dtype_of(dtype)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"dtype {dtype!r}: {error}") from None
    if kind.hasobject or kind.itemsize == 0:
        raise InvalidArgumentError(f"dtype {kind} cannot be shared between processes")
    try:
        dims = tuple(map(operator.index, shape)) if np.iterable(shape) else (operator.index(shape),)
    except TypeError:
        raise InvalidArgumentError(f"shape is {shape!r}; it must be whole numbers") from None
    if any(n < 0 for n in dims):
        raise InvalidArgumentError(f"shape {dims} has a negative length")
    if len(dims) > MOST_AXES:
        raise InvalidArgumentError(f"shape {dims} has more than {MOST_AXES} axes")
    nbytes = math.prod(max(n, 1) for n in dims) * kind.itemsize
    if nbytes >= MOST_BYTES:
        raise InvalidArgumentError(f"shape {dims} of {kind} has more bytes than there are addresses")
    return dims, kind


def alone(dims: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """The array of a rank that shares with nobody. Raises TransportError."""
    nbytes, free = math.prod(dims) * kind.itemsize, _core.available_memory()
    if nbytes > free:
        raise TransportError(f"no memory for an array: needs {nbytes} bytes, {free} are available")
    return np.empty(dims, kind)


@dataclass
class _Region:
    """The memory of one symmetric array, on all ranks that have it."""

    nbytes: int
    mappings: dict[int, Any]  # by world rank; of this host only
    dropped: bool = False  # no array of this rank uses it any more

    def serves(self, comm: Communicator) -> bool:
        """Have all members of `comm` on this host mapped it?"""
        return all(rank in self.mappings for rank in comm._neighbours)


def _check_room(comm: Communicator, name: str, nbytes: int) -> None:
    """Collective, before anybody allocates: is there room for everybody's part? Every rank maps them all.

    Raises TransportError on every rank. Where the kernel runs out first, it kills a process.
    """
    mine = json.dumps([nbytes, _core.available_memory()]).encode()
    told = [json.loads(payload) for payload, _ in comm._exchange(f"{name}/room", mine)]
    free = min(room for _, room in told)
    for rank, (needed, _) in enumerate(told):
        if needed > free:
            text = f"rank {rank}: no memory for an array: needs {needed} bytes, {free} are available"
            raise TransportError(text, rank=comm.rank, peer=rank)
    if (total := sum(needed for needed, _ in told)) > free:
        text = (
            f"no memory for an array on {comm.size} ranks: needs {total} bytes in all, {free} are available"
        )
        raise TransportError(text, rank=comm.rank)


class Regions:
    """The symmetric memory of one rank's job; shared by a communicator and all that were split off it.

    All members of a communicator know the same regions: it starts with those that all of them have, gets each new one
    in a collective call, and loses one in the first collective call after all ranks have dropped their arrays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._regions: dict[int, _Region] = {}
        self._users: weakref.WeakSet[Communicator] = weakref.WeakSet()
        self._count = 0  # arrays that this rank has numbered

    def known(self, comm: Communicator) -> list[int]:
        """The numbers of the regions that a new communicator can use, as far as this rank knows."""
        with self._lock:
            self._sweep()
            return [number for number, region in self._regions.items() if region.serves(comm)]

    def join(self, comm: Communicator, numbers: set[int]) -> None:
        """Tell a new communicator of the regions that all its members know, and of those to come."""
        with self._lock:
            self._users.add(comm)
            for number in numbers:
                self._announce(comm, number, self._regions[number])

    def leave(self, comm: Communicator) -> None:
        """A communicator is closed."""
        with self._lock:
            self._users.discard(comm)
            self._sweep()

    def _sweep(self) -> None:
        """Forget the regions that no open communicator can use."""
        for number, region in list(self._regions.items()):
            if not any(region.serves(user) for user in self._users):
                del self._regions[number]

    @staticmethod
    def _announce(comm: Communicator, number: int, region: _Region) -> None:
        if region.serves(comm) and not comm.closed:
            addresses = [
                region.mappings[rank].address if rank in region.mappings else 0 for rank in comm.world_ranks
            ]
            comm._native().add_region(number, addresses, region.nbytes)

    def empty(self, comm: Communicator, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Collective: new memory on every rank, mapped by all. Raises TransportError on every rank if one has none."""
        count = math.prod(shape)
        nbytes = max(4096, count * dtype.itemsize)
        _check_room(comm, name, nbytes)
        own, problem = None, ""
        try:
            own = _core.Mapping.create(nbytes, "pycollectives-array")
        except TransportError as error:
            problem = str(error)
        with self._lock:  # rank 0 gives it a number that no other array of the job has
            number = self._count * comm._rendezvous.size + comm._rendezvous.rank
            self._count += comm.rank == 0
            same = {
                n: region
                for n, region in self._regions.items()
                if set(region.mappings) == set(comm._neighbours)
            }
            held = [n for n, region in same.items() if not region.dropped]
        offer = json.dumps([nbytes, problem, number, held]).encode()
        parts = comm._exchange(name, offer, [] if own is None else [own.fd])
        offers = [json.loads(payload) for payload, _ in parts]
        region = _Region(nbytes, {})
        try:
            for rank, (_, trouble, *_) in enumerate(offers):
                if trouble:
                    raise TransportError(f"rank {rank}: {trouble}", rank=comm.rank, peer=rank)
            for rank, (theirs, *_) in enumerate(offers):
                if not parts[rank][1]:  # on another host
                    continue
                mapping = own if rank == comm.rank else _core.Mapping.attach(parts[rank][1][0], theirs)
                region.mappings[comm.world_ranks[rank]] = mapping
        finally:
            for _, fds in parts:
                for fd in fds:
                    os.close(fd)
        assert own is not None
        own.close_fd()
        with self._lock:
            self._remove(set(same) - {n for *_, numbers in offers for n in numbers})
            self._regions[offers[0][2]] = region
            for user in list(self._users):
                self._announce(user, offers[0][2], region)
        holder = np.frombuffer(own, dtype=np.uint8)
        weakref.finalize(holder, setattr, region, "dropped", True)
        return holder[: count * dtype.itemsize].view(dtype).reshape(shape)

    def _remove(self, numbers: set[int]) -> None:
        """Give back the memory of arrays that no rank uses any more."""
        for number in numbers:
            region = self._regions.pop(number, None)
            for user in list(self._users):
                if region is not None and region.serves(user) and not user.closed:
                    user._native().remove_region(number)
