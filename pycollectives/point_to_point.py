"""Messages between two ranks; `Communicator` inherits `PointToPoint`. How they move: csrc/shm/messages.hpp.

    rank 0   comm.send(x, dest=1, tag=7)  ----------->  rank 1   y = comm.recv(source=0, tag=7)

A message is received by the first receive, in the order of issue, that asks for its source and tag, and a receive takes the
first such message; messages of one pair and one tag stay in order. None of this touches the order of collectives.

When does `send` return? When `x` may be changed again. A message of at most `comm.eager_bytes` needs no receiver for that,
unless earlier ones fill the stream; a larger one needs a receiver that is in some send or receive (or has asynchronous ones
open), not necessarily in the matching one: while a rank waits in a send or a receive, it takes in everything that comes, and keeps
what nobody has asked for yet. So ranks that all send first cannot block each other. The price is memory for what is
taken in early. A rank that computes, or waits in a collective, takes in nothing.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from . import _core
from .arrays import Array, as_input, check_output, dtype_name
from .caller import Caller
from .errors import InvalidArgumentError, UnsupportedError
from .work import Work

ANY_SOURCE = -1
ANY_TAG = -1

_NUMBER = {name: i for i, name in enumerate(_core.DTYPES)}
_DESCRIBED = 255


class Received(NamedTuple):
    """What `recv_from` returns."""

    array: Array
    source: int
    tag: int


class PointToPoint(Caller):
    """Sends and receives.

    Blocking calls raise, besides InvalidArgumentError: PeerError when the peer has died or left (what it had sent before can still
    be received), CollectiveTimeoutError, AbortedError after `abort` and when another rank's error has made the communicator
    unusable. A receive that raises loses no message, and the communicator stays usable; so it does after a send that had not
    begun to move. Only a send that is given up in its middle makes the communicator unusable.

    Any number of threads may send and receive at once, beside a thread that is in a collective.
    """

    _messages: Any

    @property
    def eager_bytes(self) -> int:
        """The largest message that `send` can hand over without its receiver's help. The same on all ranks."""
        return int(self._messages.eager_bytes)

    def send(
        self, x: Any, dest: int, tag: int = 0, *, async_op: bool = False, timeout: float | None = None
    ) -> Work | None:
        """Send the array `x`, of any shape, layout and dtype (but no Python objects), to rank `dest`, which may be this one.

        `tag`: 0 to 2^31 - 1. `async_op=True`: returns a `Work` at once; `x` must not change before its `wait()`.
        """
        if type(x) is not np.ndarray or not x.flags.c_contiguous:
            x = _contiguous(x)
        limit = self.timeout if timeout is None else self._limit(timeout)
        if async_op:
            request = self._messages.submit_send(
                x, _element(x.dtype), _index(dest, "dest"), _index(tag, "tag"), limit
            )
            return MessageWork(self, request, f"send to rank {dest}", lambda _: None)
        self._messages.send(x, _element(x.dtype), _index(dest, "dest"), _index(tag, "tag"), limit)
        return None

    def recv(
        self,
        out: Array | None = None,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Receive a message from rank `source` with `tag`; both may be any.

        Without `out`, returns a new array with shape and dtype of the sender's. With `out`, fills and returns it: the message must
        have its dtype and as many elements (the shape may differ), else MismatchError names both, `out` is untouched and the
        message is dropped. `async_op=True`: returns a `Work` whose `wait()` returns the array, and which has `source` and `tag`.
        """
        target = None if out is None else _target(out)
        wanted = self._wanted(target, source, tag, timeout)
        if not async_op:
            found = self._messages.recv(*wanted)
            return out if target is not None and target is out else _finish(out, target, found).array
        request = self._messages.submit_recv(*wanted)
        return MessageWork(self, request, "recv", functools.partial(_finish, out, target))

    def recv_from(
        self,
        out: Array | None = None,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        timeout: float | None = None,
    ) -> Received:
        """`recv` that also says whose message it was: returns (array, source, tag)."""
        target = None if out is None else _target(out)
        return _finish(out, target, self._messages.recv(*self._wanted(target, source, tag, timeout)))

    def _wanted(self, target: Array | None, source: int, tag: int, timeout: float | None) -> tuple[Any, ...]:
        kind = None if target is None else _element(target.dtype)
        limit = self.timeout if timeout is None else self._limit(timeout)
        return target, kind, _index(source, "source"), _index(tag, "tag"), limit

    def sendrecv(
        self,
        x: Any,
        dest: int,
        source: int,
        *,
        out: Array | None = None,
        tag: int = 0,
        recv_tag: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Send `x` to `dest` and receive from `source`, at the same time; returns what `recv` returns.

        `recv_tag`: None means `tag`. `out` may be `x`: it is sent before it is overwritten.
        """
        x, target = _contiguous(x), None if out is None else _target(out)
        if target is not None and np.may_share_memory(x, target):
            x = x.copy()
        wanted = tag if recv_tag is None else recv_tag
        outgoing = x, _element(x.dtype), _index(dest, "dest"), _index(tag, "tag")
        incoming = self._wanted(target, source, wanted, timeout)
        if async_op:
            sent, received = self._messages.submit_sendrecv(*outgoing, *incoming)
            return Exchange(
                MessageWork(self, sent, f"send to rank {dest}", lambda _: None),
                MessageWork(self, received, "recv", functools.partial(_finish, out, target)),
            )
        return _finish(out, target, self._messages.sendrecv(*outgoing, *incoming))[0]

    def _plan_message(
        self, verb: str, x: Any, out: Array | None, peer: int | None, tag: int | None, timeout: float | None
    ) -> PersistentMessage:
        """The persistent form of a send or a receive; its arguments are checked here."""
        limit = self.timeout if timeout is None else self._limit(timeout)
        if verb == "recv":
            if out is not None:
                _target(out)
            wanted = _index(peer, "source"), ANY_TAG if tag is None else _index(tag, "tag")
            return PersistentMessage(
                functools.partial(self.recv, out, *wanted, timeout=limit), f"recv from rank {peer}"
            )
        x = as_input(x)
        place = _index(peer, "dest"), 0 if tag is None else _index(tag, "tag")
        if x.flags.c_contiguous:
            return PersistentMessage(
                functools.partial(self._messages.send, x, _element(x.dtype), *place, limit),
                f"send to rank {peer}",
            )
        return PersistentMessage(
            functools.partial(self.send, x, *place, timeout=limit), f"send to rank {peer}"
        )


class MessageWork(Work):
    """An asynchronous send or receive. Its arrays belong to it until it is done, also if nobody keeps this object."""

    source: int | None = None  # of the message received, once wait() has returned
    tag: int | None = None

    def __init__(
        self, comm: PointToPoint, request: Any, text: str, finish: Callable[[Any], Received | None]
    ) -> None:
        self._messages, self._request, self._text, self._finish = comm._messages, request, text, finish
        self._limit = comm.timeout
        self._result: Array | None = None
        self._finished = False

    def done(self) -> bool:
        """Has it ended, well or not? Never blocks, and moves what can be moved."""
        return self._finished or bool(self._messages.test(self._request))

    def wait(self, timeout: float | None = None) -> Array | None:
        """Wait for the end; a receive returns its array. Raises CollectiveTimeoutError after `timeout` seconds (the message is
        still under way then), and what a blocking call raises.
        """
        if not self._finished:
            found = self._finish(
                self._messages.wait(self._request, self._limit if timeout is None else timeout)
            )
            if found is not None:
                self._result, self.source, self.tag = found
            self._finished = True
        return self._result

    def __repr__(self) -> str:
        return f"<Work {self._text} {'done' if self.done() else 'pending'}>"


class Exchange(Work):
    """An asynchronous sendrecv."""

    def __init__(self, sent: Work, received: Work) -> None:
        self._sent, self._received = sent, received

    def done(self) -> bool:
        """Have both ended?"""
        return self._sent.done() and self._received.done()

    def wait(self, timeout: float | None = None) -> Array | None:
        """Wait for both; returns the array received."""
        self._sent.wait(timeout)
        return self._received.wait(timeout)

    def __repr__(self) -> str:
        return f"<Work sendrecv {'done' if self.done() else 'pending'}>"


class PersistentMessage:
    """A send or a receive that comes again, on the same array: `again = comm.plan("send", x, dest=1); again()`."""

    def __init__(self, call: Callable[[], Any], text: str) -> None:
        self._call, self._text = call, text

    def __call__(self) -> Any:
        return self._call()

    def __repr__(self) -> str:
        return f"<PersistentMessage {self._text}>"


def _index(value: Any, what: str) -> int:
    if type(value) is int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{what} is {value!r}, not an integer") from None


def _contiguous(x: Any) -> Array:
    array = as_input(x)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)


def _target(out: Array) -> Array:
    """Contiguous memory to receive into: `out` itself, or something to copy from."""
    if type(out) is np.ndarray and out.flags.carray:
        return out
    check_output(out, getattr(out, "dtype", np.dtype(bool)), getattr(out, "shape", ()))
    return out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)


def _finish(out: Array | None, target: Array | None, found: tuple[int, int, Any]) -> Received:
    source, tag, message = found
    if target is None:
        return Received(_array(*message), source, tag)
    assert out is not None
    if target is not out:
        out[...] = target
    return Received(out, source, tag)


def _array(number: int, text: str, shape: tuple[int, ...], memory: Any) -> Array:
    dtype = _dtype(number, text)
    if math.prod(shape) * dtype.itemsize == 0:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, buffer=memory)


@lru_cache(maxsize=1024)
def _element(dtype: np.dtype[Any]) -> Any:
    """What the native side knows of a dtype. One without a number travels as text: its name, or what it is made of."""
    as_input(np.empty(0, dtype))  # refuses Python objects and foreign byte order
    if (number := _NUMBER.get(dtype_name(dtype))) is not None:
        return _core.Element(number, "")
    for text in (dtype.name, repr(np.lib.format.dtype_to_descr(dtype))):
        try:
            if _dtype(_DESCRIBED, text) == dtype and len(text.encode()) <= _core.LONGEST_DTYPE:
                return _core.Element(_DESCRIBED, text)
        except Exception:  # not a description of it: NumPy raises several kinds
            continue
    raise UnsupportedError(
        f"dtype {dtype} cannot be described in a message; send its bytes: x.view(numpy.uint8)"
    )


@lru_cache(maxsize=1024)
def _dtype(number: int, text: str) -> np.dtype[Any]:
    import ml_dtypes  # noqa: F401 - teaches NumPy the names bfloat16 and float8_*

    if number != _DESCRIBED:
        return np.dtype(_core.DTYPES[number])
    try:
        return np.dtype(text)
    except TypeError:
        made: np.dtype[Any] = np.lib.format.descr_to_dtype(ast.literal_eval(text))
        return made
