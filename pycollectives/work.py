"""Calls that are not over yet, and calls that come again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .arrays import Array, Buffers

if TYPE_CHECKING:
    from .communicator import Communicator


class Work:
    """An asynchronous call. `wait()` returns its result, or raises what the call raised.

    The arrays of the call belong to it until then. Calls of one communicator run in the order of their issue.
    """

    def __init__(self, comm: Communicator, job: Any, buffers: Buffers, keep: Any) -> None:
        self._comm, self._job, self._buffers, self._keep = comm, job, buffers, keep
        self._result: Array | None = None
        self._finished = False

    def done(self) -> bool:
        """Has the call ended? Never blocks."""
        return bool(self._job.done)

    def wait(self, timeout: float | None = None) -> Array | None:
        """Wait for the end and return the result. Raises CollectiveTimeoutError after `timeout` seconds (the call goes on)."""
        if not self._finished:
            self._comm._native().wait(self._job, self._comm.timeout if timeout is None else timeout)
            self._result = self._buffers.finish()
            self._finished, self._keep = True, None
        return self._result

    def __repr__(self) -> str:
        return f"<Work {'done' if self.done() else 'pending'}>"


class PersistentCall:
    """A call that was decided and checked once: `again = comm.plan("all_reduce", x, out=x); again()`.

    Reads and writes the same arrays every time, and returns the result. Collective like the call itself.
    """

    def __init__(self, run: Callable[[], None], refill: Callable[[], None] | None, buffers: Buffers, text: str) -> None:
        self._run, self._refill, self._buffers, self._text = run, refill, buffers, text

    def __call__(self) -> Array | None:
        if self._refill is not None:
            self._refill()
        self._run()
        return self._buffers.finish()

    def __repr__(self) -> str:
        return f"<PersistentCall {self._text}>"
