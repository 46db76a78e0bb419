"""The public communicator: the group of ranks, from its start to its end. Its verbs are inherited."""

from __future__ import annotations

import contextlib
import json
import operator
import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core, settings
from .arrays import Array
from .bootstrap.rendezvous import Rendezvous
from .bootstrap.spanning import network_of
from .calls import Calls
from .device import Device, Options
from .errors import AbortedError, BootstrapError, InvalidArgumentError
from .group import Grouping, outside
from .inspection import Inspection
from .plans import Plans
from .regions import Regions, alone, shared_shape
from .schedule.placement import compact
from .schedule.registry import on_change
from .uneven import Uneven
from .verbs import Verbs
from .work import forget_finished

_alive: weakref.WeakSet[Communicator] = weakref.WeakSet()


class Communicator(Verbs, Uneven, Plans, Inspection, Grouping):
    """A group of ranks that call collectives together. Made by `pc.init()`, `split`, or `pc.run_threads`.

    Every verb is collective: all ranks call it with the same arguments (but for the values), in the same order. Arrays are
    NumPy arrays of any shape and layout, with ml_dtypes' bfloat16 and float8 among the dtypes. `out=` takes the result (it
    may be the input itself); without it the result is a new array. All verbs take

    * `algorithm=`: the name of a schedule, in place of the selector's choice,
    * `async_op=True`: return a `Work` at once,
    * `timeout=`: seconds until CollectiveTimeoutError (default: the communicator's `timeout`).

    Raises InvalidArgumentError before anything moves for a wrong shape, dtype, root, operator, algorithm or output;
    UnsupportedError for a combination that does not exist; MismatchError when ranks call different things; PeerError when a
    peer has died, left or raised; CollectiveTimeoutError; AbortedError. After one of the last four the communicator is unusable.
    """

    timeout: float

    def __new__(cls, *_: Any, **__: Any) -> Communicator:
        made: Communicator = super().__new__(cls)
        return made

    def __init__(
        self,
        rendezvous: Rendezvous,
        name: str = "world",
        ranks: Sequence[int] | None = None,
        regions: Regions | None = None,
        device: Options | None = None,
    ) -> None:
        self.timeout = 600.0
        self._core: Any = None
        self._rendezvous = rendezvous
        self.name = name
        self.world_ranks = tuple(range(rendezvous.size) if ranks is None else ranks)
        self.size = len(self.world_ranks)
        self.rank = self.world_ranks.index(rendezvous.rank)
        self._owns_rendezvous = ranks is None
        self._pid = os.getpid()
        self._splits = self._arrays = 0
        self._network = network_of(rendezvous, self.world_ranks)
        self.settings = self._agree()
        neighbours = len(self._neighbours)
        patience = settings.patience(neighbours, spans_hosts=self._network is not None)
        stores = settings.STORES.index(self.settings.stores)
        self._core = _core.Communicator(
            self.rank,
            self.size,
            self.settings.pool_bytes,
            *patience,
            crowded=neighbours > settings.cores(),
            stores=stores,
        )
        self._regions = Regions() if regions is None else regions
        shared: set[int] = set()
        if self.size > 1:
            shared = self._attach()
        self._messages = _core.Messages(self._core, *patience)
        self._calls = Calls(self.rank, self.size, self.settings)
        self._open(self._core, self.size, self.timeout)
        self._regions.join(self, shared)
        self._device = None if device is None else Device(self, device)
        _alive.add(self)

    # -- the group ---------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> tuple[int, ...]:
        """The host of every rank, numbered in the order of their first ranks: (0, 0, 1, 1) for four ranks on two hosts.

        Ranks are on one host where they can share memory.
        """
        if self._network is None:
            return (0,) * self.size
        return compact(self._network.hosts[rank] for rank in self.world_ranks)

    @property
    def _neighbours(self) -> list[int]:
        """The world ranks of the members on this host."""
        if self._network is None:
            return list(self.world_ranks)
        return self._network.neighbours(self.world_ranks, self._rendezvous.rank)

    def _attach(self) -> set[int]:
        """Map the segments of the others; returns the symmetric arrays that all of them know."""
        network, mine = self._network, os.getpid()
        offer = json.dumps([mine, self._regions.known(self), network.groups if network else 0]).encode()
        parts = self._exchange("memory", offer, [self._core.fd])
        offers = [json.loads(payload) for payload, _ in parts]
        for peer, (_, fds) in enumerate(parts):
            if peer != self.rank and fds:
                self._core.attach(peer, fds[0], offers[peer][0])
            elif peer != self.rank and network is not None:
                _core.attach_remote(self._core, peer, network.lifelines.descriptor(self.world_ranks[peer]))
            for fd in fds:
                os.close(fd)
        self._core.close_fd()
        if network is not None:
            network.connect(
                self._core,
                self.world_ranks,
                max(number for *_, number in offers),
                self.settings.longest_message,
            )
        return set.intersection(*(set(numbers) for _, numbers, _ in offers))

    def _exchange(self, what: str, payload: bytes, fds: Sequence[int] = ()) -> list[tuple[bytes, list[int]]]:
        return self._rendezvous.exchange(
            f"{self.name}/{what}", self.rank, self.size, payload, fds, self.timeout
        )

    def _agree(self) -> settings.Settings:
        """Rank 0's settings."""
        hosts = self.hosts if self._network is not None else ()
        mine = settings.decide(self.size, nested=not self._owns_rendezvous, hosts=hosts)
        if self.size == 1:
            return mine
        return settings.Settings.decode(self._exchange("settings", mine.encode())[0][0])

    def _native(self) -> Any:
        if self._core is None:
            raise AbortedError("the communicator is closed", rank=self.rank)
        if self._pid != os.getpid():
            raise BootstrapError(
                "this communicator was made before a fork; the child process cannot use it: call pc.init() there"
            )
        return self._core

    @property
    def closed(self) -> bool:
        """Has `close` been called here?"""
        return self._core is None

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Collective: one new communicator per `color` (None: take no part, returns None), ranks ordered by (`key`, rank).

        Roots and peers of the new communicator are its own ranks.
        """
        if color is not None and not isinstance(color, (int, np.integer)):
            raise InvalidArgumentError(f"color is {color!r}; it must be an integer or None")
        outside(self, "split")
        try:
            mine = np.array([color is not None, int(color or 0), operator.index(key)], dtype=np.int64)
        except (TypeError, OverflowError):
            raise InvalidArgumentError(
                f"color {color!r} and key {key!r} must be integers of 64 bits"
            ) from None
        everyone = self.all_gather(mine)
        self._splits += 1
        if color is None:
            return None
        members = [r for r in range(self.size) if everyone[r, 0] and everyone[r, 1] == color]
        members.sort(key=lambda r: (everyone[r, 2], r))
        ranks = [self.world_ranks[r] for r in members]
        return Communicator(
            self._rendezvous,
            f"{self.name}/{self._splits}.{int(color)}",
            ranks,
            self._regions,
            None if self._device is None else self._device.options,
        )

    def close(self) -> None:
        """Leave. Never waits for peers; those that still need this rank get PeerError. Idempotent."""
        core, self._core = self._core, None
        self._shut()
        if core is None or self._pid != os.getpid():
            return
        if self._device is not None:
            self._device.close()
        self._messages.close()
        core.close()
        forget_finished()
        self._regions.leave(self)
        if self._owns_rendezvous:
            self._rendezvous.close()

    def abort(self) -> None:
        """From any thread: every rank's pending and later calls on this communicator raise AbortedError."""
        if self._core is not None and self._pid == os.getpid():
            if self._device is not None:
                self._device.abort()
            self._core.abort()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.abort()
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Communicator {self.name!r} rank {self.rank} of {self.size}{' closed' if self.closed else ''}>"
        )

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Array:
        """Collective: an uninitialised array in symmetric memory; collectives on it need fewer copies.

        Raises InvalidArgumentError for what is no shape or no dtype of plain data, and on every rank TransportError if one
        has not the memory.
        """
        self._native()
        outside(self, "empty")
        dims, kind = shared_shape(shape, dtype)
        if self.size == 1:
            return alone(dims, kind)
        self._arrays += 1
        return self._regions.empty(self, f"array/{self._arrays}", dims, kind)


def _close_all() -> None:
    for comm in list(_alive):
        with contextlib.suppress(Exception):
            comm.close()


def _decide_anew() -> None:
    """An algorithm has been registered, maybe in place of another of the same name."""
    for comm in list(_alive):
        if comm._core is not None:
            comm._calls.forget()
            comm._shut()
            comm._open(comm._core, comm.size, comm.timeout)


on_change.append(_decide_anew)


def _forget_all() -> None:
    """In a forked child: the shared memory is not mapped here, and the progress thread does not exist."""
    for comm in list(_alive):
        if comm._core is not None:
            comm._messages.forget()
            comm._core.forget()


os.register_at_fork(after_in_child=_forget_all)
