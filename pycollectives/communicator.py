"""The public communicator: checks a call, decides it once, and hands it to the native core.

    call -> arrays.prepare -> dispatch.choose -> schedule.lower -> _core.Plan -> _core.Prepared -> run
            every call        once per kind of call (verb, dtype, count, operator, root, ...)      every call
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from . import _core, dispatch, ops, settings
from .arrays import Array, Buffers, address, as_input, dtype_name, prepare, reducible
from .bootstrap.rendezvous import Rendezvous
from .errors import AbortedError, BootstrapError, InvalidArgumentError
from .ops import OpLike
from .regions import Regions
from .schedule import COLLECTIVES, Algorithm, names
from .schedule.lowering import lower
from .schedule.registry import suggest
from .work import PersistentCall, Work, persistent

Method = TypeVar("Method", bound=Callable[..., Any])
_alive: weakref.WeakSet[Communicator] = weakref.WeakSet()


@lru_cache(maxsize=1024)
def _plan(algorithm: Algorithm, size: int, rank: int, root: int, staged: bool, wide: bool, fuse: bool = True) -> Any:
    """The native plan; one for every message size."""
    return _core.Plan(**lower(algorithm, size, rank, root, staged=staged, wide=wide, fuse=fuse).arrays())


def _fast(form: int) -> Callable[[Method], Method]:
    """A method with the native fast way in (csrc/bindings/fastcall.cpp). `form`: the result has the shape of the input (0),
    gathers it (1), scatters it (2); there is no data (3)."""

    def wrap(method: Method) -> Method:
        fast: Method = functools.update_wrapper(_core.FastMethod(method, form), method)  # type: ignore[assignment]
        return fast

    return wrap


class Communicator(_core.Endpoint):  # type: ignore[misc]
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
        self, rendezvous: Rendezvous, name: str = "world", ranks: Sequence[int] | None = None, regions: Regions | None = None
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
        self._prepared: dict[Any, Any] = {}
        self._lock = threading.Lock()
        self.settings = self._agree()
        spins, yields = settings.patience(self.size)
        self._core = _core.Communicator(self.rank, self.size, self.settings.pool_bytes, spins, yields)
        if self.size > 1:
            for peer, (payload, fds) in enumerate(self._exchange("memory", str(self._pid).encode(), [self._core.fd])):
                if peer != self.rank:
                    self._core.attach(peer, fds[0], int(payload))
                for fd in fds:
                    os.close(fd)
            self._core.close_fd()
        self._open(self._core, self.size, self.timeout)
        self._regions = Regions() if regions is None else regions
        self._regions.join(self)
        _alive.add(self)

    # -- the group ---------------------------------------------------------------------------------------------

    def _exchange(self, what: str, payload: bytes, fds: Sequence[int] = ()) -> list[tuple[bytes, list[int]]]:
        return self._rendezvous.exchange(f"{self.name}/{what}", self.rank, self.size, payload, fds, self.timeout)

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
            raise BootstrapError("this communicator was made before a fork; the child process cannot use it: call pc.init() there")
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
        mine = np.array([color is not None, 0 if color is None else int(color), int(key)], dtype=np.int64)
        everyone = self.all_gather(mine)
        self._splits += 1
        if color is None:
            return None
        members = [r for r in range(self.size) if everyone[r, 0] and everyone[r, 1] == color]
        members.sort(key=lambda r: (everyone[r, 2], r))
        ranks = [self.world_ranks[r] for r in members]
        return Communicator(self._rendezvous, f"{self.name}/{self._splits}.{int(color)}", ranks, self._regions)

    def close(self) -> None:
        """Leave. Never waits for peers; those that still need this rank get PeerError. Idempotent."""
        core, self._core = self._core, None
        self._shut()
        if core is None or self._pid != os.getpid():
            return
        core.close()
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
        return f"<Communicator {self.name!r} rank {self.rank} of {self.size}{' closed' if self.closed else ''}>"

    # -- the verbs ---------------------------------------------------------------------------------------------

    @_fast(0)
    def all_reduce(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Combine `x` over all ranks; every rank gets the result, of `x`'s shape and dtype, with the same bits.

        `op`: "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor", a NumPy ufunc, `pc.ReduceOp`
        or `pc.scaled_sum(factor)`. `deterministic=True`: the left fold in rank order, the same bits for any size.
        """
        return self._call("all_reduce", x, op, None, out, algorithm, deterministic, async_op, timeout)

    def reduce(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Like `all_reduce`, but only `root` gets the result; the others get None and their `out` is not touched."""
        return self._call("reduce", x, op, root, out, algorithm, deterministic, async_op, timeout)

    @_fast(2)
    def reduce_scatter(
        self,
        x: Any,
        op: OpLike = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Combine `x` over all ranks; rank r gets the r-th of `size` equal blocks along the first axis.

        `x`: shape (n, ...) with n a multiple of `size` (or any `out` of x.size / size elements); result (n / size, ...).
        """
        return self._call("reduce_scatter", x, op, None, out, algorithm, deterministic, async_op, timeout)

    @_fast(1)
    def all_gather(
        self, x: Any, *, out: Array | None = None, algorithm: str | None = None, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """Every rank's `x`, in rank order: result (size, *x.shape), or any `out` of size * x.size elements."""
        return self._call("all_gather", x, None, None, out, algorithm, False, async_op, timeout)

    @_fast(0)
    def broadcast(
        self,
        x: Any,
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """`root`'s `x` on every rank. Elsewhere `x` only says shape and dtype; `out=x` receives in place."""
        return self._call("broadcast", x, None, root, out, algorithm, False, async_op, timeout)

    @_fast(3)
    def barrier(self, *, algorithm: str | None = None, async_op: bool = False, timeout: float | None = None) -> Any:
        """Return when all ranks have called it."""
        return self._call("barrier", np.empty(0, np.uint8), None, None, None, algorithm, False, async_op, timeout)

    def plan(
        self,
        verb: str,
        x: Any = None,
        op: OpLike = "sum",
        *,
        root: int = 0,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        timeout: float | None = None,
    ) -> PersistentCall:
        """Decide and check a call once; the returned object makes it, on the same arrays, every time it is called.

        `comm.plan("all_reduce", x, out=x)` takes what `comm.all_reduce` takes. Collective only when called.
        """
        self._verb(verb)
        x = np.empty(0, np.uint8) if verb == "barrier" else x
        contract = COLLECTIVES[verb]
        named, _ = self._named(verb, algorithm)
        operator, place = op if contract.reduces and verb != "barrier" else None, root if contract.rooted else None
        prepared, buffers, text = self._prepare(verb, x, operator, place, out, named, deterministic)
        limit = self.timeout if timeout is None else timeout
        return persistent(self._native(), prepared, as_input(x), buffers, limit, text)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Array:
        """Collective: an uninitialised array in symmetric memory; collectives on it need fewer copies."""
        kind = np.dtype(dtype)
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

    def algorithms(self, verb: str) -> list[str]:
        """The names of the algorithms of a verb."""
        return names(self._verb(verb))

    def explain(
        self, verb: str, *, nbytes: int, algorithm: str | None = None, root: int = 0, deterministic: bool = False
    ) -> dispatch.Explanation:
        """Which algorithm would run, every candidate with its predicted time, and why the others lost.

        `nbytes`: of the whole vector (all_gather: of the result).
        """
        self._verb(verb)
        named, reason = self._named(verb, algorithm)
        machine = self.settings.machine
        return dispatch.explain(
            verb, nbytes, self.size, machine, named=named, reason=reason, root=self._root(root), deterministic=deterministic
        )

    def history(self, rank: int | None = None) -> list[dict[str, Any]]:
        """The flight recorder: the last calls of a rank (default: this one), oldest first."""
        records: list[dict[str, Any]] = self._native().records(self.rank if rank is None else rank)
        return records

    # -- one call ----------------------------------------------------------------------------------------------

    @staticmethod
    def _verb(verb: str) -> str:
        if verb not in COLLECTIVES:
            raise InvalidArgumentError(f"unknown collective {verb!r}{suggest(verb, COLLECTIVES)}")
        return verb

    def _root(self, root: Any) -> int:
        try:
            index = root.__index__()
        except AttributeError:
            raise InvalidArgumentError(f"root is {root!r}, not an integer") from None
        if not 0 <= index < self.size:
            raise InvalidArgumentError(f"root {index} is not in 0..{self.size - 1}, the ranks of this communicator")
        return int(index)

    def _named(self, verb: str, algorithm: str | None) -> tuple[str | None, str]:
        if algorithm is not None:
            return algorithm, "asked for by algorithm="
        if (name := dispatch.forced(verb)) is not None:
            return name, "asked for by pc.use"
        if (name := self.settings.algorithms.get(verb)) is not None:
            return name, f"asked for by {dispatch.VARIABLE}"
        return None, "predicted to be the fastest"

    def _call(
        self, verb: str, x: Any, op: Any, root: Any, out: Any, algorithm: str | None, deterministic: bool, async_op: bool, timeout: float | None
    ) -> Any:
        core = self._native()
        named, _ = self._named(verb, algorithm)
        prepared, buffers, _ = self._prepare(verb, x, op, root, out, named, deterministic)
        limit = self.timeout if timeout is None else timeout
        source, target = address(buffers.x), 0 if buffers.out is None else address(buffers.out)
        if async_op:
            return Work(self, core.submit(prepared, source, target, limit), buffers, (x, prepared))
        if named is None and not deterministic and (verb == "barrier" or type(x) is np.ndarray):
            self._remember_call(verb, x, op, root, prepared)
        core.run(prepared, source, target, limit)
        return buffers.finish()

    def _remember_call(self, verb: str, x: Any, op: Any, root: Any, prepared: Any) -> None:
        """The next call of this kind goes the fast way. Defaults that the caller left out look like None there."""
        method = getattr(Communicator, verb)
        if not isinstance(method, _core.FastMethod):
            return
        data = None if verb == "barrier" else x
        for shown in (op, None) if isinstance(op, str) and op == "sum" else (op,):
            for place in (-1,) if root is None else (root, -1) if root == 0 else (root,):
                self._remember(method.__wrapped__, data, shown, place, prepared)

    def _prepare(
        self, verb: str, x: Any, op: Any, root: Any, out: Any, named: str | None, deterministic: bool
    ) -> tuple[Any, Buffers, str]:
        """Checks everything; returns the prepared call, its buffers and a text for people."""
        x = as_input(x)
        root = -1 if root is None else self._root(root)
        buffers = self._buffers(verb, x, root, out)
        operator = None if op is None else ops.resolve(op, self.size)
        if operator is not None:
            ops.check(operator, reducible(x.dtype))
        key = (verb, x.dtype.str, dtype_name(x.dtype), x.size, operator, root, named, deterministic)
        prepared = self._prepared.get(key)
        if prepared is None:
            with self._lock:
                prepared = self._decide(key, verb, x, operator, root, named, deterministic)
                self._native().reserve(prepared)
                self._prepared[key] = prepared
        return prepared, buffers, f"{verb}({x.dtype}[{x.size}])"

    def _buffers(self, verb: str, x: Array, root: int, out: Any) -> Buffers:
        if verb in ("all_reduce", "broadcast"):
            return prepare(x, out, x.shape)
        if verb == "reduce":
            return prepare(x, out, x.shape if self.rank == root else None)
        if verb == "all_gather":
            return prepare(x, out, (self.size, *x.shape), any_shape=True, shift=self.rank * x.nbytes)
        if verb == "reduce_scatter":
            return prepare(x, out, self._block_shape(x, out), any_shape=True, shift=-self.rank * (x.nbytes // self.size))
        return Buffers(x, None, None)

    def _block_shape(self, x: Array, out: Any) -> tuple[int, ...]:
        """The shape of one block of a reduce_scatter."""
        if x.size % self.size or (x.size and out is None and (x.ndim == 0 or x.shape[0] % self.size)):
            raise InvalidArgumentError(
                f"reduce_scatter on {self.size} ranks needs a first axis that is a multiple of {self.size}; x has shape {x.shape}"
            )
        if x.ndim and x.shape[0] % self.size == 0:
            return (x.shape[0] // self.size, *x.shape[1:])
        return (x.size // self.size,) if x.size else (0, *x.shape[1:])

    def _decide(
        self, key: Any, verb: str, x: Array, operator: ops.Operator | None, root: int, named: str | None, deterministic: bool
    ) -> Any:
        contract = COLLECTIVES[verb]
        total = x.nbytes * self.size if contract.input == "block" else x.nbytes
        one = dispatch.choose(
            verb, total, self.size, self.settings.machine, named=named, root=max(root, 0), deterministic=deterministic
        )
        return self._native_call(one, key, x.dtype, x.size, operator, root, deterministic)

    def _native_call(
        self, one: Algorithm, key: Any, dtype: np.dtype[Any], count: int, operator: ops.Operator | None, root: int, deterministic: bool, *, fuse: bool = True
    ) -> Any:
        """The prepared call of one algorithm for one kind of arguments."""
        contract = COLLECTIVES[one.collective]
        kinds: tuple[str, ...] = _core.DTYPES
        wide = operator is not None and _core.is_wide(kinds.index(dtype.name))
        staged = operator is not None and (wide or operator.epilogue != 0)
        plan = _plan(one, self.size, self.rank, max(root, 0), staged, wide, fuse)
        if operator is None:  # bytes are moved as they are
            number, unit = kinds.index("uint8"), dtype.itemsize
        else:
            number, unit = kinds.index(dtype.name), 1
        if contract.input == "block":
            blocks = [count * unit] * self.size
        elif contract.output == "block":
            blocks = [count * unit // self.size] * self.size
        else:
            blocks = [count * unit]
        everything = range(plan.nchunks)
        held_in = contract.input_chunks(self.rank, self.size, max(root, 0), plan.nchunks) if fuse else everything
        held_out = contract.output_chunks(self.rank, self.size, max(root, 0), plan.nchunks) if fuse else everything
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
        verbs: list[str] = _core.VERBS
        return _core.Prepared(
            plan=plan,
            dtype=number,
            op=0 if operator is None else _core.OPS.index(operator.kernel),
            epilogue=0 if operator is None else operator.epilogue,
            factor=1.0 if operator is None else operator.factor,
            wide=wide,
            blocks=blocks,
            held_in=(held_in.start, len(held_in)),
            held_out=(held_out.start, len(held_out)),
            pool_bytes=self.settings.pool_bytes,
            segment_bytes=self.settings.segment_bytes,
            fingerprint=int.from_bytes(digest, "little"),
            count=count,
            verb=verbs.index(one.collective),
            algorithm=names(one.collective).index(one.name),
            record_dtype=kinds.index(dtype.name) if dtype.name in kinds else kinds.index("uint8"),
            record_op=255 if operator is None else _core.OP_NAMES.index(operator.name),
            root=root,
            deterministic=deterministic,
        )


def _close_all() -> None:
    for comm in list(_alive):
        with contextlib.suppress(Exception):
            comm.close()


def _forget_all() -> None:
    """In a forked child: the shared memory is not mapped here, and the progress thread does not exist."""
    for comm in list(_alive):
        if comm._core is not None:
            comm._core.forget()


os.register_at_fork(after_in_child=_forget_all)
