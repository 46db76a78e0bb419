"""The public communicator: the group of ranks, from its start to its end. Its verbs are inherited."""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core, settings, shrinking
from .arguments import Arguments
from .bootstrap.rendezvous import ExchangeError, Rendezvous, close_all
from .bootstrap.spanning import network_of
from .calls import Calls, Kind
from .device import Options
from .device.arrays import DeviceView
from .device.opening import AnyDevice, open_device
from .device.spanning import explain_way
from .errors import (
    AbortedError,
    BootstrapError,
    InvalidArgumentError,
    TransportError,
)
from .exchange_watch import Watch
from .family import Family
from .group import Grouping, outside
from .inspection import Inspection
from .plans import Plans
from .regions import alone, shared_shape
from .schedule.placement import compact
from .schedule.registry import on_change
from .settings import Settings
from .topology import domains
from .uneven import Uneven
from .verbs import Verbs
from .work import forget_finished

_alive: weakref.WeakSet[Communicator] = weakref.WeakSet()


class Communicator(Verbs, Uneven, Plans, Inspection, Grouping):
    """A group of ranks that call collectives together. Made by `pc.init()`, `split`, or `pc.run_threads`.

    Every verb is collective: all ranks call it with the same arguments (but for the values), in the same order. Arrays are
    NumPy arrays of any shape and layout, with ml_dtypes' bfloat16 and float8 among the dtypes. `out=` takes the result (it
    may be the input itself); without it the result is a new array. Arrays in device memory (CuPy, PyTorch, Numba, DLPack) are
    moved by CUDA kernels, on their library's current stream (docs/gpu.md); all ranks pass such. All verbs take

    * `algorithm=`: the name of a schedule, in place of the selector's choice,
    * `async_op=True`: return a `Work` at once,
    * `timeout=`: seconds until CollectiveTimeoutError (default: the communicator's `timeout`).

    Raises InvalidArgumentError before anything moves for a wrong shape, dtype, root, operator, algorithm or output;
    UnsupportedError for a combination that does not exist; MismatchError when ranks call different things; PeerError when a
    peer has died, left or raised; CollectiveTimeoutError; AbortedError. After one of the last four the communicator is unusable.
    """

    timeout: float
    name: str
    settings: Settings
    _left_of: Communicator | None = None  # while it is made

    def __new__(cls, *_: Any, **__: Any) -> Communicator:
        made: Communicator = super().__new__(cls)
        return made

    def __init__(self, rendezvous: Rendezvous, device: Options | None = None) -> None:
        ranks = range(rendezvous.size)
        self._make(Family(rendezvous), "world", ranks, timeout=600.0, holds=True, device=device)

    @classmethod
    def _of_family(
        cls,
        family: Family,
        name: str,
        ranks: Sequence[int],
        *,
        timeout: float,
        holds: bool,
        device: Options | None = None,
        parent: Communicator | None = None,
        left_of: Communicator | None = None,
    ) -> Communicator:
        """A communicator of some ranks of a job that have met before.

        All of them are members of `parent`, or they are what is left of the ranks of `left_of`.
        """
        made = cls.__new__(cls)
        made._left_of = left_of
        made._make(family, name, ranks, timeout=timeout, holds=holds, device=device, parent=parent)
        return made

    def _make(
        self,
        family: Family,
        name: str,
        ranks: Sequence[int],
        *,
        timeout: float,
        holds: bool,
        device: Options | None = None,
        parent: Communicator | None = None,
    ) -> None:
        self.timeout = timeout
        self._core: Any = None
        self._family, self._holds = family, holds
        self._rendezvous, self._regions = family.rendezvous, family.regions
        self.name = name
        self.world_ranks = tuple(ranks)
        self.size = len(self.world_ranks)
        self.rank = self.world_ranks.index(self._rendezvous.rank)
        self._pid = os.getpid()
        self._splits = self._arrays = self._first_tag = 0
        self._network = network_of(self._rendezvous, self.world_ranks)
        _core.warn_after(settings.warn_seconds())
        self._parent = parent  # who is known to have gone, until this communicator knows it itself
        self._allowed: dict[int, set[int]] = self._allowed_cores() if parent is None else parent._allowed
        self.settings = self._agree()
        patience = settings.patience(
            len(self._neighbours), spans_hosts=self._network is not None, cores=self._cores
        )
        shared = self._share_memory(*patience)
        self._parent = self._left_of = None
        self._messages = _core.Messages(self._core, *patience)
        self._calls = Calls(self.rank, self.size, self.settings)
        self._open(self._core, self.size, self.timeout)
        self._regions.join(self, shared)
        self._wanted_device = device
        self._device = None if device is None else open_device(self, device)
        if holds:
            family.hold()
        _alive.add(self)

    def _share_memory(self, *patience: int) -> set[int]:
        """Make this rank's segment and map the others'. Returns the symmetric arrays that all members know."""
        core, problem = None, ""
        try:
            core = _core.Communicator(
                self.rank,
                self.size,
                self.settings.pool_bytes,
                *patience,
                crowded=len(self._neighbours) > self._cores,
                stores=settings.STORES.index(self.settings.stores),
                single_copy=self.settings.single_copy_bytes > 0,
            )
        except TransportError as error:  # no memory: the others must not wait for it
            if self.size == 1:
                raise
            problem = str(error)
        if self.size == 1:
            self._core = core
            return set()
        network, processes = self._network, self._family.processes
        groups = network.groups if network else 0
        first = self.name == "world"  # the ranks have not met before
        fds = [] if core is None else [core.fd, *(processes.own() if first else [])]
        offer = [self._pid, processes.namespace(), self._regions.known(self), problem, groups]
        try:
            parts = self._exchange("memory", json.dumps(offer).encode(), fds, keep=True)
        finally:
            close_all(fds[1:])
        self._release = weakref.finalize(self, self._rendezvous.release, f"keep/{self.name}/memory")
        self._release.atexit = False  # the end of the process says the same
        offers = [json.loads(payload) for payload, _ in parts]
        try:
            for peer, (*_, trouble, _) in enumerate(offers):
                if trouble:
                    raise TransportError(f"rank {peer}: {trouble}", rank=self.rank, peer=peer)
            assert core is not None
            for peer, (_, received) in enumerate(parts):
                rank = self.world_ranks[peer]
                if peer != self.rank and received:
                    core.attach(peer, received[0])
                    if first:
                        processes.add(rank, offers[peer][0], offers[peer][1], received[1:])
                        del received[1:]
                    core.watch(peer, *processes.watched(rank), processes)
                elif peer != self.rank and network is not None:
                    _core.attach_remote(core, peer, network.lifelines.descriptor(rank))
        finally:
            for _, received in parts:
                close_all(received)
        core.close_fd()
        if network is not None:
            number = max(offer[-1] for offer in offers)
            self._first_tag = network.connect(core, self.world_ranks, number, self.settings.longest_message)
        self._core = core
        return set.intersection(*(set(numbers) for _, _, numbers, *_ in offers))

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

    def _exchange(
        self, what: str, payload: bytes, fds: Sequence[int] = (), *, keep: bool = False
    ) -> list[tuple[bytes, list[int]]]:
        key = f"{self.name}/{what}"
        witness = self if self._core is not None else self._parent
        watch = Watch(self, what, None if witness is None else witness._core, self._left_of)
        try:
            return self._rendezvous.exchange(
                f"keep/{key}" if keep else key,
                self.rank,
                self.size,
                payload,
                fds,
                self.timeout,
                self.world_ranks,
                watch.look,
            )
        except ExchangeError as error:
            if witness is None and self.name == "world":
                raise  # the ranks have not met before
            raise watch.explain(error, (witness or self).world_ranks) from None

    def _allowed_cores(self) -> dict[int, set[int]]:
        """On which cores each rank may run, by world rank: `mpiexec` may have bound each to another one."""
        mine = json.dumps(sorted(os.sched_getaffinity(0))).encode()
        told = [mine] if self.size == 1 else [each for each, _ in self._exchange("cores", mine)]
        return {rank: set(json.loads(each)) for rank, each in zip(self.world_ranks, told, strict=True)}

    @property
    def _cores(self) -> int:
        """The cores that the members on this host have together."""
        return len(set().union(*(self._allowed[rank] for rank in self._neighbours)))

    def _domains(self) -> tuple[int, ...]:
        """The members by the part of their one host that they are bound to."""
        wish = domains.asked(self.world_ranks, self._rendezvous.size)
        return domains.domains([self._allowed[rank] for rank in self.world_ranks]) if wish is None else wish

    def _agree(self) -> Settings:
        """Rank 0's settings."""
        hosts = self.hosts if self._network is not None else ()
        mine = settings.decide(
            self.size,
            nested=self.name != "world",
            hosts=hosts,
            domains=() if hosts else self._domains(),
            cores=self._cores,
        )
        if self.size == 1:
            return mine
        return Settings.decode(self._exchange("settings", mine.encode())[0][0])

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
        name = f"{self.name}/{self._splits}.{int(color)}"
        return self._of_family(
            self._family,
            name,
            ranks,
            timeout=self.timeout,
            holds=False,
            device=self._device_options(),
            parent=self,
        )

    def _device_options(self) -> Options | None:
        """Of the device, for the communicators made from this one; one that arrays ask for is opened when they come."""
        return self._wanted_device

    def shrink(self, *, timeout: float | None = None) -> Communicator:
        """Collective over the ranks that are left: a new communicator of them, in the old order.

        For use after PeerError, CollectiveTimeoutError, MismatchError or AbortedError; where nobody has failed it makes a
        copy. Ranks that have died or have closed this communicator are left out, as are those that do not come within
        `timeout` seconds (default: the communicator's `timeout`), for example since they are stopped; such a rank gets
        PeerError when it comes. A rank that is lost meanwhile is left out too, after as much time again at most.

        Arrays of `empty` stay usable, and shared among the ranks that are left. This communicator and what was split off it
        are not changed: those without a lost rank go on, the others raise; close them.

        Where ranks are on several hosts, a host that cannot be reached counts as lost; if it is there all the same, its
        ranks go on too, without the others (docs/failures.md).
        """
        outside(self, "shrink")
        return shrinking.shrink(self, self._limit(timeout))

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
        if self.size > 1:
            self._release()
        if self._holds:
            self._family.let_go()

    def abort(self) -> None:
        """From any thread: every rank's pending and later calls on this communicator raise AbortedError."""
        if self._core is not None and self._pid == os.getpid():
            if self._device is not None:
                self._device.abort()
            self._core.abort()

    def _device_of(self, arguments: Arguments) -> AnyDevice | None:
        """The device that makes a call: arrays in device memory need one, which all ranks open at the first such call."""
        x = arguments.x
        if not isinstance(x, DeviceView):
            device = self._device
            return device if device and (device.options.emulated or device.options.stages_host) else None
        if self._device is None:
            self._device = open_device(self, Options(), x.number)
        return self._device

    def _way_on_device(self) -> Callable[[Kind], str] | None:
        return None if self._network is None else functools.partial(explain_way, self)

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

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32", *, device: str | None = None) -> Any:
        """Collective: an uninitialised array in symmetric memory; collectives on it need fewer copies.

        `device="cuda"`: in device memory, an array of CuPy or PyTorch where that is imported, else an object with
        `__cuda_array_interface__` and DLPack. It waits for all calls on devices that were made before.

        Raises InvalidArgumentError for what is no shape or no dtype of plain data, and on every rank TransportError, or
        DeviceError, if one has not the memory.
        """
        self._native()
        outside(self, "empty")
        dims, kind = shared_shape(shape, dtype)
        if device is not None:
            asked: Any = device
            if not isinstance(asked, str) or asked != "cuda":  # an array compares to an array
                raise InvalidArgumentError(f"device is {device!r}; it must be 'cuda', or None for the host")
            if self._device is None:
                self._device = open_device(self, Options())
            return self._device.empty(dims, kind)
        if self.size == 1:
            return alone(dims, kind)
        self._arrays += 1
        return self._regions.empty(self, f"array/{self._arrays}", dims, kind)


def _living() -> list[Communicator]:
    """Other threads may make new ones meanwhile."""
    while True:
        try:
            return list(_alive)
        except RuntimeError:
            continue


def _close_all() -> None:
    """At the end of the process. The others learn of an exception that ends it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    for comm in _living():
        with contextlib.suppress(Exception):
            if error is not None and comm._core is not None:
                comm._core.say(f"{type(error).__name__}: {error}")
            comm.close()


def _abort_all(comm: Communicator) -> None:
    """This communicator, and all that this rank has in common with it: a rank that fails leaves none of them."""
    for each in _living():
        if each._family is comm._family:
            each.abort()


def _decide_anew() -> None:
    """An algorithm has been registered, maybe in place of another of the same name."""
    for comm in _living():
        if comm._core is not None:
            comm._calls.forget()
            comm._shut()
            comm._open(comm._core, comm.size, comm.timeout)


on_change.append(_decide_anew)


def _forget_all() -> None:
    """In a forked child: the shared memory is not mapped here, and the progress thread does not exist."""
    for comm in _living():
        if comm._core is not None:
            comm._messages.forget()
            comm._core.forget()


os.register_at_fork(after_in_child=_forget_all)
