"""One call of a verb on arrays: check it, find its kind, and hand it to the native core.

call -> arguments.resolve -> calls.Kind -> (once per kind: choose, lower, prepare) -> native run
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from . import _core, dispatch, ops, settings
from .arguments import Arguments, Options, resolve
from .arrays import Array, address, as_input, widened
from .calls import Calls, Kind
from .device.arrays import issued
from .device.opening import AnyDevice
from .errors import InvalidArgumentError
from .group import current
from .schedule import COLLECTIVES, Algorithm
from .schedule.registry import suggest
from .user_op import UserOp
from .work import TaskWork, Work

UNEVEN = ("all_gatherv", "reduce_scatterv", "gatherv", "scatterv", "all_to_allv")


def _exchanges(verb: str, counts: Any) -> bool:
    """Must the ranks tell each other their counts before the call?"""
    return verb in ("scatterv", "all_to_allv") or (verb in ("all_gatherv", "gatherv") and counts is None)


class Caller(_core.Endpoint):
    """What all verbs on arrays have in common; `Verbs` inherits it."""

    rank: int
    size: int
    settings: settings.Settings
    _calls: Calls
    _messages: Any

    def _native(self) -> Any:
        """The native communicator. Raises AbortedError when it is closed, BootstrapError in a forked child."""
        raise NotImplementedError

    def abort(self) -> None:
        """From any thread: every rank's pending and later calls on this communicator raise AbortedError."""
        raise NotImplementedError

    def _device_of(self, arguments: Arguments) -> AnyDevice | None:
        """The device that makes a call, None where the CPU does."""
        raise NotImplementedError

    def _call(
        self,
        verb: str,
        x: Any,
        *,
        async_op: bool = False,
        timeout: float | None = None,
        accumulate: Any = None,
        **options: Any,
    ) -> Any:
        """A call of the caller's: in a group, it is made at its end. `accumulate`: the dtype in which it combines."""
        if accumulate is not None:
            x = widened(as_input(x), accumulate)
        if (group := current(self)) is not None:
            self._native()
            return group.call(verb, x, timeout=timeout, uneven=verb in UNEVEN, **options)
        return self._now(verb, x, async_op=async_op, timeout=timeout, **options)

    def _now(
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
        """A call at once. One that exchanges counts first, asynchronously: both when its turn has come."""
        core = self._native()
        if async_op and _exchanges(verb, counts):
            self._options(verb, op, root, algorithm)  # what can be checked at once
            limit = self._limit(timeout)
            if x is not None:
                x = as_input(issued(x))
            elif out is not None:
                out = issued(out, whole=False)
            return TaskWork(
                self,
                functools.partial(
                    self._now,
                    verb,
                    x,
                    op=op,
                    root=root,
                    counts=counts,
                    out=out,
                    algorithm=algorithm,
                    deterministic=deterministic,
                    timeout=limit,
                ),
                limit,
                verb,
            )
        arguments = self._resolve(verb, x, op, root, counts, out, algorithm, deterministic)
        if (device := self._device_of(arguments)) is not None:
            return device.call(arguments, async_op=async_op, timeout=self._limit(timeout))
        prepared = self._calls.find(arguments.kind)
        buffers, limit = arguments.buffers, self._limit(timeout)
        source, target = buffers.addresses
        if async_op:
            return Work(self, core, core.submit(prepared, source, target, limit), buffers, (x, prepared))
        if (
            dispatch.forced(self._even(verb)) is None
            and (algorithm is None or (type(algorithm) is str and verb != "barrier"))
            and (verb == "barrier" or type(x) is np.ndarray)
        ):
            self._remember_call(verb, x, op, root, algorithm, bool(deterministic), prepared)
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
        algorithm: Any,
        deterministic: Any,
    ) -> Arguments:
        """Checks everything; nothing has moved (but for counts that had to be exchanged)."""
        options = self._options(verb, op, root, algorithm)
        if not isinstance(deterministic, (bool, np.bool_)):
            raise InvalidArgumentError(f"deterministic is {deterministic!r}; it must be True or False")
        return resolve(self, options, x, counts, out, bool(deterministic), uneven=verb in UNEVEN)

    def _options(self, verb: str, op: Any, root: Any, algorithm: str | None) -> Options:
        """What can be checked without the arrays."""
        contract = COLLECTIVES[self._even(verb)]
        named, _ = self._named(contract.name, algorithm)
        operator = ops.resolve(op, self.size) if contract.reduces and verb != "barrier" else None
        return Options(contract, operator, self._root(root) if contract.rooted else -1, named)

    def _trace(
        self, one: Algorithm, x: Array, vector: Array, count: int, operator: Any, root: int, blank: Array
    ) -> list[tuple[int, bytes]]:
        """Runs `one` from `x` on the working vector, one instruction per operation: the step of each, and the vector after it
        with the scratch memory behind, which is `blank` (its bytes are all the same) at the start."""
        kind = Kind(one.collective, vector.dtype, count, operator, root, f"{one.name}, traced")
        prepared = self._calls.make(one, kind, fuse=False)
        source, target = x.copy(), vector.copy()
        empty = int(blank.view(np.uint8)[0])
        events = self._native().trace(prepared, address(source), address(target), self.timeout, empty)
        return [(step, state) for *_, step, _ns, state in events]

    def _remember_call(
        self, verb: str, x: Any, op: Any, root: Any, algorithm: str | None, deterministic: bool, prepared: Any
    ) -> None:
        """The next call of this kind goes the fast way. Defaults that the caller left out look like None there."""
        if isinstance(op, UserOp) and op.shape:  # the shape of x must be looked at every time
            return
        method = getattr(type(self), verb)
        if not isinstance(method, _core.FastMethod):
            return
        dtype, count = (-1, 0) if verb == "barrier" else (x.dtype.num, x.size)
        for shown in (op, None) if isinstance(op, str) and op == "sum" else (op,):
            for place in (-1,) if root is None else (root, -1) if root == 0 else (root,):
                self._remember(
                    method.__wrapped__, dtype, count, shown, place, algorithm, deterministic, prepared
                )

    @staticmethod
    def _spelt(verb: Any) -> str:
        if not isinstance(verb, str):
            raise InvalidArgumentError(f"unknown collective {verb!r}; it must be a name")
        return verb

    @classmethod
    def _even(cls, verb: Any) -> str:
        """The collective that a verb is, the even one of an uneven verb: all_gather for all_gatherv."""
        name = cls._spelt(verb)
        base = name[:-1] if name in UNEVEN else name
        if base not in COLLECTIVES:
            raise InvalidArgumentError(f"unknown collective {verb!r}{suggest(name, (*COLLECTIVES, *UNEVEN))}")
        return base

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

    def _named(self, verb: str, algorithm: Any) -> tuple[str | None, str]:
        if algorithm is not None:
            return str(algorithm), "asked for by algorithm="
        if (name := dispatch.forced(verb)) is not None:
            return name, "asked for by pc.use"
        if (name := self.settings.algorithms.get(verb)) is not None:
            return name, f"asked for by {dispatch.VARIABLE}"
        return None, ""
