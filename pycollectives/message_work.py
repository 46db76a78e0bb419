"""Sends and receives that are not over yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .arrays import Array
from .caller import Caller
from .work import Work


class Received(NamedTuple):
    """What `recv_from` returns."""

    array: Array
    source: int
    tag: int


class ReceivedObject(NamedTuple):
    """What `recv_object_from` returns."""

    value: Any
    source: int
    tag: int


class MessageWork(Work):
    """An asynchronous send or receive. Its arrays belong to it until it is done, also if nobody keeps this object."""

    source: int | None = None  # of the message received, once wait() has returned
    tag: int | None = None

    def __init__(
        self,
        comm: Caller,
        request: Any,
        text: str,
        finish: Callable[[Any], Received | ReceivedObject | None],
    ) -> None:
        self._comm, self._request, self._text, self._finish = comm, request, text, finish
        self._result: Any = None
        self._error: Exception | None = None
        self._finished = False

    def done(self) -> bool:
        """Has it ended, well or not? Never blocks, and moves what can be moved."""
        return self._finished or bool(self._comm._messages.test(self._request))

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the end; a receive returns its array or object. Raises CollectiveTimeoutError after `timeout` seconds (the
        message is still under way then), and what a blocking call raises.
        """
        if not self._finished:
            arrived = self._comm._messages.wait(self._request, self._comm._limit(timeout))
            self._finished = True
            try:
                found = self._finish(arrived)
            except Exception as error:
                self._error = error
            else:
                if found is not None:
                    self._result, self.source, self.tag = found
        if self._error is not None:
            raise self._error
        return self._result

    def __repr__(self) -> str:
        return f"<Work {self._text} {'done' if self.done() else 'pending'}>"


class ExchangeWork(Work):
    """An asynchronous sendrecv."""

    def __init__(self, sent: MessageWork, received: MessageWork) -> None:
        self._sent, self._received = sent, received

    @property
    def source(self) -> int | None:
        """Of the message received, once wait() has returned."""
        return self._received.source

    @property
    def tag(self) -> int | None:
        """Likewise."""
        return self._received.tag

    def done(self) -> bool:
        """Have both ended?"""
        return self._sent.done() and self._received.done()

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for both; returns the array or object received."""
        self._sent.wait(timeout)
        return self._received.wait(timeout)

    def __repr__(self) -> str:
        return f"<Work sendrecv {'done' if self.done() else 'pending'}>"
