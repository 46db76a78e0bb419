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

import functools
import operator
from typing import Any

import numpy as np

from .arrays import Array, as_input, check_output
from .caller import Caller
from .device.arrays import DeviceView
from .dtypes import array_of, element_of
from .errors import InvalidArgumentError, UnsupportedError
from .message_work import ExchangeWork, MessageWork, Received
from .work import Work

ANY_SOURCE = -1
ANY_TAG = -1
LAST_TAG = 2**31 - 1


class PointToPoint(Caller):
    """Sends and receives.

    Blocking calls raise, besides InvalidArgumentError: PeerError when the peer has died or left (what it had sent before can still
    be received), CollectiveTimeoutError, AbortedError after `abort` and when another rank's error has made the communicator
    unusable. A receive that raises loses no message, and the communicator stays usable; so it does after a send that had not
    begun to move. Only a send that is given up in its middle makes the communicator unusable.

    Any number of threads may send and receive at once, beside a thread that is in a collective.
    """

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
            x = contiguous(x)
        limit = self.timeout if timeout is None else self._limit(timeout)
        if async_op:
            request = self._messages.submit_send(
                x, element_of(x.dtype), index_of(dest, "dest"), index_of(tag, "tag"), limit
            )
            return MessageWork(self, request, f"send to rank {dest}", lambda _: None)
        self._messages.send(x, element_of(x.dtype), index_of(dest, "dest"), index_of(tag, "tag"), limit)
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
        target = None if out is None else target_of(out)
        wanted = self._wanted(target, source, tag, timeout)
        if not async_op:
            found = self._messages.recv(*wanted)
            return out if target is not None and target is out else finish(out, target, found).array
        request = self._messages.submit_recv(*wanted)
        return MessageWork(self, request, "recv", functools.partial(finish, out, target))

    def recv_from(
        self,
        out: Array | None = None,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        timeout: float | None = None,
    ) -> Received:
        """`recv` that also says whose message it was: returns (array, source, tag)."""
        target = None if out is None else target_of(out)
        return finish(out, target, self._messages.recv(*self._wanted(target, source, tag, timeout)))

    def _wanted(self, target: Array | None, source: int, tag: int, timeout: float | None) -> tuple[Any, ...]:
        kind = None if target is None else element_of(target.dtype)
        limit = self.timeout if timeout is None else self._limit(timeout)
        return target, kind, index_of(source, "source"), index_of(tag, "tag"), limit

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

        `recv_tag`: None means `tag`. `out` may be `x`: it is sent before it is overwritten. `async_op=True`: as `recv`.
        """
        x, target = contiguous(x), None if out is None else target_of(out)
        if target is not None and np.may_share_memory(x, target):
            x = x.copy()
        wanted = tag if recv_tag is None else recv_tag
        outgoing = x, element_of(x.dtype), index_of(dest, "dest"), index_of(tag, "tag")
        incoming = self._wanted(target, source, wanted, timeout)
        if async_op:
            sent, received = self._messages.submit_sendrecv(*outgoing, *incoming)
            return ExchangeWork(
                MessageWork(self, sent, f"send to rank {dest}", lambda _: None),
                MessageWork(self, received, "recv", functools.partial(finish, out, target)),
            )
        return finish(out, target, self._messages.sendrecv(*outgoing, *incoming))[0]


def index_of(value: Any, what: str) -> int:
    """A rank or a tag as an int; InvalidArgumentError for what is none."""
    try:
        index = value if type(value) is int else operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{what} is {value!r}, not an integer") from None
    if not -LAST_TAG <= index <= LAST_TAG:  # of 32 bits, all that are; the native side says which are left
        raise InvalidArgumentError(f"{what} {index} is not in 0..{LAST_TAG}")
    return index


def rank_of(value: Any, size: int, what: str, *, least: int = 0) -> int:
    """A rank, or -1 for any where that may be; InvalidArgumentError for what is none."""
    rank = index_of(value, what)
    if not least <= rank < size:
        raise InvalidArgumentError(f"{what} {rank} is not in 0..{size - 1}, the ranks of this communicator")
    return rank


def check_tag(value: Any, *, least: int) -> int:
    """A tag, or -1 for any where that may be; InvalidArgumentError for what is none."""
    tag = index_of(value, "tag")
    if not least <= tag <= LAST_TAG:
        raise InvalidArgumentError(f"tag {tag} is not in 0..{LAST_TAG}")
    return tag


def contiguous(x: Any) -> Array:
    """`x` as an array that can be sent."""
    array = as_input(x)
    if isinstance(array, DeviceView):
        raise UnsupportedError("messages take arrays in host memory; this one is in device memory")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)


def target_of(out: Array) -> Array:
    """Contiguous memory to receive into: `out` itself, or something to copy from."""
    if type(out) is np.ndarray and out.flags.carray:
        return out
    check_output(out, getattr(out, "dtype", np.dtype(bool)), getattr(out, "shape", ()))
    return out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)


def finish(out: Array | None, target: Array | None, found: tuple[int, int, Any]) -> Received:
    """What a receive has brought."""
    source, tag, message = found
    if target is None:
        return Received(array_of(*message), source, tag)
    assert out is not None
    if target is not out:
        out[...] = target
    return Received(out, source, tag)
