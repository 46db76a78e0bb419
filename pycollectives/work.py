"""Calls that are not over yet, and calls that come again."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from .arrays import Array, Buffers

if TYPE_CHECKING:
    from .caller import Caller


_under_way: dict[Any, deque[Work]] = {}  # by native communicator, in the order of issue
_lock = threading.Lock()
_executing = threading.local()  # .cores: of the tasks that this thread executes


def in_task(core: Any) -> bool:
    """Does this thread execute a task of a native communicator? Calls on it are made at once then."""
    return core in getattr(_executing, "cores", ())


def forget_finished() -> None:
    """Let go of the arrays of calls that have ended."""
    with _lock:
        for core, works in list(_under_way.items()):
            while works and works[0].done():
                works.popleft()
            if not works:
                del _under_way[core]


class Work:
    """An asynchronous call. `wait()` returns its result, or raises what the call raised.

    The arrays of the call belong to it until then. Calls of one communicator run in the order of their issue, also those
    whose Work is thrown away.
    """

    def __init__(self, comm: Caller, core: Any, job: Any, buffers: Buffers, keep: Any) -> None:
        self._comm, self._core, self._job, self._buffers, self._keep = comm, core, job, buffers, keep
        self._result: Array | None = None
        self._finished = False
        forget_finished()
        with _lock:  # the call reads and writes the arrays even if nobody keeps this object
            _under_way.setdefault(core, deque()).append(self)

    def done(self) -> bool:
        """Has the call ended? Never blocks."""
        return bool(self._job.done)

    def wait(self, timeout: float | None = None) -> Array | None:
        """Wait for the end and return the result. Raises CollectiveTimeoutError after `timeout` seconds (the call goes on)."""
        if not self._finished:
            self._core.wait(self._job, self._comm._limit(timeout))
            self._result = self._buffers.finish()
            self._finished, self._keep = True, None
            forget_finished()
        return self._result

    def __repr__(self) -> str:
        return f"<Work {'done' if self.done() else 'pending'}>"


class TaskWork(Work):
    """Several calls, made one after another in the place of the one that was issued.

    `function` makes them, by `Caller._now`, in whatever thread executes the calls of the communicator; the choices of
    the `pc.use` blocks around the issue hold.
    """

    def __init__(self, comm: Caller, function: Callable[[], Any], timeout: float, text: str) -> None:
        self._comm, self._core, self._text = comm, comm._native(), text
        self._function, self._context = function, contextvars.copy_context()
        self._result: Any = None
        self._error: BaseException | None = None
        self._finished = False
        self._job = self._core.submit_task(self._run, timeout)

    def _run(self) -> None:
        _executing.cores = [*getattr(_executing, "cores", []), self._core]
        try:
            self._result = self._context.run(self._function)
        except KeyboardInterrupt as error:  # in its middle: the other ranks would wait for the rest
            self._error = error
            self._core.abort(interrupted=True)
            self._comm.abort()
            raise
        except BaseException as error:
            self._error = error
        finally:
            _executing.cores.pop()

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the result. Raises CollectiveTimeoutError after `timeout` seconds (the call goes on)."""
        if not self._finished:
            self._core.wait(self._job, self._comm._limit(timeout))
            self._finished = True
        if self._error is not None:
            raise self._error
        return self._result

    def __repr__(self) -> str:
        return f"<Work {self._text} {'done' if self.done() else 'pending'}>"


class PersistentCall(_core.BoundCall):
    """A call that was decided and checked once: `again = comm.plan("all_reduce", x, out=x); again()`.

    Reads and writes the same arrays every time, and returns the result. Collective like the call itself.
    """

    text = ""

    def __repr__(self) -> str:
        return f"<PersistentCall {self.text}>"


class StridedCall(PersistentCall):
    """A persistent call on strided arrays: copies in, calls, copies out."""

    buffers: Buffers
    x: Array

    def __call__(self) -> Array | None:
        if self.buffers.x is not self.x:
            np.copyto(self.buffers.x, self.x.reshape(self.buffers.x.shape))
        super().__call__()
        return self.buffers.finish()


class PersistentMethod:
    """What `comm.plan` returns for all but the verbs on arrays. Its arguments were checked once.

    Called with nothing, or, for a verb on objects, with the next object.
    """

    def __init__(self, call: Callable[..., Any], text: str) -> None:
        self._call, self._text = call, text

    def __call__(self, *value: Any) -> Any:
        return self._call(*value)

    def __repr__(self) -> str:
        return f"<PersistentMethod {self._text}>"


def persistent(
    core: Any, prepared: Any, x: Array, buffers: Buffers, timeout: float, text: str
) -> PersistentCall:
    """The persistent form of one prepared call on `buffers`, made from the caller's `x`."""
    contiguous = buffers.x is x and buffers.out is buffers.result
    kind = PersistentCall if contiguous else StridedCall
    made: PersistentCall = kind(core, prepared, *buffers.addresses, timeout, buffers.result, (x, buffers))
    made.text = text
    if isinstance(made, StridedCall):
        made.buffers, made.x = buffers, x
    return made
