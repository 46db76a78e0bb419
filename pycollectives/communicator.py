"""The public communicator: checks a call, finds its kind, and hands it to the native core.

call -> arrays.prepare -> calls.Kind -> (once per kind: choose, lower, prepare) -> native run
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core, dispatch, ops, settings
from .arguments import Arguments, resolve
from .arrays import Array, address
from .bootstrap.rendezvous import Rendezvous
from .calls import Calls, Kind
from .cost import Description, describe
from .errors import AbortedError, BootstrapError, InvalidArgumentError
from .group import Grouping, current
from .neighbors import Neighbors
from .object_messages import ObjectMessages
from .objects import Objects
from .ops import OpLike
from .point_to_point import ANY_SOURCE, PersistentMessage, PointToPoint
from .regions import Regions
from .schedule import COLLECTIVES, Algorithm, find, names
from .schedule.registry import on_change, suggest
from .user_op import UserOp
from .work import PersistentCall, Work, forget_finished, persistent

UNEVEN = ("all_gatherv", "reduce_scatterv", "gatherv", "scatterv", "all_to_allv")
_alive: weakref.WeakSet[Communicator] = weakref.WeakSet()


class Communicator(Objects, ObjectMessages, Neighbors, Grouping, PointToPoint):
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
        self.settings = self._agree()
        spins, yields = settings.patience(self.size)
        self._core = _core.Communicator(self.rank, self.size, self.settings.pool_bytes, spins, yields)
        self._regions = Regions() if regions is None else regions
        shared: set[int] = set()
        if self.size > 1:
            offer = json.dumps([self._pid, self._regions.known(self)]).encode()
            parts = self._exchange("memory", offer, [self._core.fd])
            for peer, (payload, fds) in enumerate(parts):
                if peer != self.rank:
                    self._core.attach(peer, fds[0], json.loads(payload)[0])
                for fd in fds:
                    os.close(fd)
            self._core.close_fd()
            shared = set.intersection(*(set(json.loads(payload)[1]) for payload, _ in parts))
        self._messages = _core.Messages(self._core, spins, yields)
        self._calls = Calls(self.rank, self.size, self.settings)
        self._open(self._core, self.size, self.timeout)
        self._regions.join(self, shared)
        _alive.add(self)

    # -- the group ---------------------------------------------------------------------------------------------

    def _exchange(self, what: str, payload: bytes, fds: Sequence[int] = ()) -> list[tuple[bytes, list[int]]]:
        return self._rendezvous.exchange(
            f"{self.name}/{what}", self.rank, self.size, payload, fds, self.timeout
        )

    def _agree(self) -> settings.Settings:
        """Rank 0's settings."""
        mine = settings.decide(self.size, nested=not self._owns_rendezvous)
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
        self._outside("split")
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
            self._rendezvous, f"{self.name}/{self._splits}.{int(color)}", ranks, self._regions
        )

    def close(self) -> None:
        """Leave. Never waits for peers; those that still need this rank get PeerError. Idempotent."""
        core, self._core = self._core, None
        self._shut()
        if core is None or self._pid != os.getpid():
            return
        self._messages.close()
        core.close()
        forget_finished()
        self._regions.leave(self)
        if self._owns_rendezvous:
            self._rendezvous.close()

    def abort(self) -> None:
        """From any thread: every rank's pending and later calls on this communicator raise AbortedError."""
        if self._core is not None and self._pid == os.getpid():
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

    # -- one call ----------------------------------------------------------------------------------------------

    def plan(
        self,
        verb: str,
        x: Any = None,
        op: OpLike = "sum",
        *,
        root: int = 0,
        counts: Any = None,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        dest: int | None = None,
        source: int = ANY_SOURCE,
        tag: int | None = None,
        timeout: float | None = None,
    ) -> PersistentCall | PersistentMessage:
        """Decide and check a call once; the returned object makes it, on the same arrays, every time it is called.

        `comm.plan("all_reduce", x, out=x)` takes what `comm.all_reduce` takes. Collective like the call itself.
        `comm.plan("send", x, dest=1, tag=7)` and `comm.plan("recv", out=x, source=0, tag=7)` are not.
        """
        if verb in ("send", "recv"):
            return self._plan_message(verb, x, out, dest if verb == "send" else source, tag, timeout)
        core = self._native()
        self._outside("plan")
        x = np.empty(0, np.uint8) if verb == "barrier" else x
        arguments = self._resolve(verb, x, op, root, counts, out, algorithm, deterministic)
        limit = self._limit(timeout)
        prepared = self._calls.find(arguments.kind)
        return persistent(
            core,
            prepared,
            arguments.x,
            arguments.buffers,
            limit,
            f"{verb}({arguments.kind.dtype}[{arguments.kind.count}])",
        )

    def _call(
        self,
        verb: str,
        x: Any,
        *,
        op: Any = None,
        root: Any = None,
        counts: Any = None,
        out: Any = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        core = self._native()
        if (group := current(self)) is not None:
            options = {
                "op": op,
                "root": root,
                "counts": counts,
                "out": out,
                "algorithm": algorithm,
                "deterministic": deterministic,
            }
            return group.call(verb, x, timeout=timeout, uneven=verb in UNEVEN, **options)
        arguments = self._resolve(verb, x, op, root, counts, out, algorithm, deterministic)
        prepared = self._calls.find(arguments.kind)
        buffers, limit = arguments.buffers, self._limit(timeout)
        source, target = address(buffers.x), 0 if buffers.out is None else address(buffers.out)
        if async_op:
            return Work(self, core, core.submit(prepared, source, target, limit), buffers, (x, prepared))
        if (
            arguments.kind.named is None
            and not deterministic
            and (verb == "barrier" or type(x) is np.ndarray)
        ):
            self._remember_call(verb, x, op, root, prepared)
        core.run(prepared, source, target, limit)
        return buffers.finish()

    def _resolve(
        self,
        verb: str,
        x: Any,
        op: Any,
        root: Any,
        counts: Any,
        out: Any,
        algorithm: str | None,
        deterministic: bool,
    ) -> Arguments:
        """Checks everything; nothing has moved (but for counts that had to be exchanged)."""
        uneven = verb in UNEVEN
        contract = COLLECTIVES[self._verb(verb[:-1] if uneven else verb)]
        named, _ = self._named(contract.name, algorithm)
        operator = ops.resolve(op, self.size) if contract.reduces and verb != "barrier" else None
        place = self._root(root) if contract.rooted else -1
        return resolve(
            self,
            contract,
            x,
            operator,
            place,
            counts if uneven else None,
            out,
            named,
            deterministic,
            uneven=uneven,
        )

    def _trace(
        self, one: Algorithm, x: Array, vector: Array, count: int, operator: Any, root: int
    ) -> list[tuple[int, bytes]]:
        """Runs `one` from `x` on the working vector, one instruction per operation: the step of each, and the vector after it."""
        kind = Kind(one.collective, vector.dtype, count, operator, root, f"{one.name}, traced")
        prepared = self._calls.make(one, kind, fuse=False)
        source, target = x.copy(), vector.copy()
        events = self._native().trace(prepared, address(source), address(target), self.timeout)
        return [(step, state) for _channel, _slice, _instruction, step, _ns, state in events]

    def _remember_call(self, verb: str, x: Any, op: Any, root: Any, prepared: Any) -> None:
        """The next call of this kind goes the fast way. Defaults that the caller left out look like None there."""
        if isinstance(op, UserOp) and op.shape:  # the shape of x must be looked at every time
            return
        method = getattr(Communicator, verb)
        if not isinstance(method, _core.FastMethod):
            return
        dtype, count = (-1, 0) if verb == "barrier" else (x.dtype.num, x.size)
        for shown in (op, None) if isinstance(op, str) and op == "sum" else (op,):
            for place in (-1,) if root is None else (root, -1) if root == 0 else (root,):
                self._remember(method.__wrapped__, dtype, count, shown, place, prepared)

    @staticmethod
    def _verb(verb: str) -> str:
        if verb not in COLLECTIVES:
            raise InvalidArgumentError(f"unknown collective {verb!r}{suggest(verb, [*COLLECTIVES, *UNEVEN])}")
        return verb

    def _limit(self, timeout: Any) -> float:
        """The seconds that a call may take."""
        if timeout is None:
            return self.timeout
        if not isinstance(timeout, (int, float, np.number)) or not timeout >= 0:
            raise InvalidArgumentError(
                f"timeout is {timeout!r}; it must be a number of seconds, not negative"
            )
        return float(timeout)

    def _root(self, root: Any) -> int:
        try:
            index = operator.index(root)
        except TypeError:
            raise InvalidArgumentError(f"root is {root!r}, not an integer") from None
        if not 0 <= index < self.size:
            raise InvalidArgumentError(
                f"root {index} is not in 0..{self.size - 1}, the ranks of this communicator"
            )
        return int(index)

    def _named(self, verb: str, algorithm: str | None) -> tuple[str | None, str]:
        if algorithm is not None:
            return algorithm, "asked for by algorithm="
        if (name := dispatch.forced(verb)) is not None:
            return name, "asked for by pc.use"
        if (name := self.settings.algorithms.get(verb)) is not None:
            return name, f"asked for by {dispatch.VARIABLE}"
        return None, "predicted to be the fastest"

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Array:
        """Collective: an uninitialised array in symmetric memory; collectives on it need fewer copies."""
        self._native()
        kind = np.dtype(dtype)
        self._outside("empty")
        if kind.hasobject:
            raise InvalidArgumentError(f"dtype {kind} cannot be shared between processes")
        dims = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
        if any(n < 0 for n in dims):
            raise InvalidArgumentError(f"shape {dims} has a negative length")
        if self.size == 1:
            return np.empty(dims, kind)
        self._arrays += 1
        return self._regions.empty(self, f"array/{self._arrays}", dims, kind)

    # -- explanations ------------------------------------------------------------------------------------------

    def algorithms(self, verb: str) -> list[Description]:
        """What is known of the algorithms of a verb on this many ranks: name, cost formula, steps, bytes per rank,
        restrictions, order of the reduction. `str()` of each is a line of text; `.name` is what `algorithm=` takes."""
        return [describe(find(verb, name), self.size) for name in names(self._verb(verb))]

    def explain(
        self,
        verb: str,
        *,
        nbytes: int,
        algorithm: str | None = None,
        root: int = 0,
        deterministic: bool = False,
    ) -> dispatch.Explanation:
        """Which algorithm would run, every candidate with its predicted time, and why the others lost.

        `nbytes`: of the whole vector (all_gather: of the result).
        """
        self._verb(verb)
        named, reason = self._named(verb, algorithm)
        operator = ops.resolve("sum", self.size) if COLLECTIVES[verb].reduces else None
        return dispatch.explain(
            verb,
            nbytes,
            self.size,
            self.settings.machine,
            named=named,
            reason=reason,
            root=self._root(root),
            wanted=dispatch.needs(verb, operator, deterministic),
        )

    def history(self, rank: int | None = None) -> list[dict[str, Any]]:
        """The flight recorder: the last calls of a rank (default: this one), oldest first."""
        records: list[dict[str, Any]] = self._native().records(self.rank if rank is None else rank)
        return records


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
