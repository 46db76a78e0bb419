"""Python objects between two ranks: a message is a header, as in pickles.py, and one pickle behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Array
from .dtypes import element_of
from .errors import InvalidArgumentError, TransportError
from .message_work import ExchangeWork, MessageWork, ReceivedObject
from .pickles import FAILED, Parcel, opened, unpacked
from .point_to_point import ANY_SOURCE, ANY_TAG, PointToPoint, finish, index_of

_FORM = "send_object"


class ObjectMessages(PointToPoint):
    """Sends and receives of objects; `Communicator` inherits it. They trust the job: see pickles.py."""

    def send_object(
        self, value: Any, dest: int, tag: int = 0, *, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """Send `value` to rank `dest`: `send` of its pickle, made before the call returns.

        If it cannot be pickled, InvalidArgumentError is raised here and in the receive that takes it.
        """
        return self.send(
            self._letter(value, dest, tag, async_op, timeout), dest, tag, async_op=async_op, timeout=timeout
        )

    def recv_object(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Receive an object from rank `source` with `tag`; both may be any (-1).

        `async_op=True`: returns a `Work` whose `wait()` returns the object, and which has `source` and `tag`.
        Raises InvalidArgumentError if the sender could not pickle it, TransportError if the message is
        damaged or was not sent by `send_object`, CollectiveError if it cannot be unpickled here, and what
        `recv` raises. The communicator stays usable.
        """
        if async_op:
            request = self._messages.submit_recv(*self._wanted(None, source, tag, timeout))
            return MessageWork(self, request, "recv_object", self._read)
        return self.recv_object_from(source, tag, timeout=timeout).value

    def recv_object_from(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, timeout: float | None = None
    ) -> ReceivedObject:
        """`recv_object` that also says whose it was: (value, source, tag)."""
        return self._read(self._messages.recv(*self._wanted(None, source, tag, timeout)))

    def sendrecv_object(
        self,
        value: Any,
        dest: int,
        source: int,
        *,
        tag: int = 0,
        recv_tag: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Send `value` to `dest` and receive an object from `source`, at the same time; returns what `recv_object` returns.

        `recv_tag`: None means `tag`. If `value` cannot be pickled, nothing is received.
        """
        letter = self._letter(value, dest, tag, async_op, timeout)
        outgoing = letter, element_of(letter.dtype), index_of(dest, "dest"), index_of(tag, "tag")
        incoming = self._wanted(None, source, tag if recv_tag is None else recv_tag, timeout)
        if async_op:
            sent, received = self._messages.submit_sendrecv(*outgoing, *incoming)
            return ExchangeWork(
                MessageWork(self, sent, f"send_object to rank {dest}", lambda _: None),
                MessageWork(self, received, "recv_object", self._read),
            )
        return self._read(self._messages.sendrecv(*outgoing, *incoming)).value

    def _letter(self, value: Any, dest: int, tag: int, async_op: bool, timeout: float | None) -> Array:
        """The message; if there is none, its receiver is told why, and InvalidArgumentError is raised."""
        parcel = Parcel.of(value)
        text = np.frombuffer(parcel.problem, np.uint8) if parcel.problem else parcel.bytes()
        letter = np.concatenate([parcel.header(_FORM, self.rank, 1).view(np.uint8), text])
        if not parcel.problem:
            return letter
        self.send(letter, dest, tag, async_op=async_op, timeout=timeout)
        reason = parcel.problem.decode(errors="replace")
        raise InvalidArgumentError(
            f"{_FORM}: {reason}", rank=self.rank, peer=self.rank, collective=_FORM
        ) from parcel.cause

    def _read(self, found: tuple[int, int, Any]) -> ReceivedObject:
        message, sender, tag = finish(None, None, found)
        width = Parcel().header(_FORM, 0, 1).nbytes
        if message.dtype != np.uint8 or message.ndim != 1 or message.size < width:
            text = f"recv_object: {message.dtype}{list(message.shape)} from rank {sender} is no object"
            raise TransportError(text, rank=self.rank, peer=sender, collective=_FORM)
        _, state, length = opened(_FORM, message[:width].view(np.int64), self.rank, sender)
        data = message[width:]
        if length != data.size:
            text = f"recv_object: rank {sender} announced {length} bytes and sent {data.size}"
            raise TransportError(text, rank=self.rank, peer=sender, collective=_FORM)
        if state == FAILED:
            text = f"{_FORM}: rank {sender}: {data.tobytes().decode(errors='replace')}"
            raise InvalidArgumentError(text, rank=self.rank, peer=sender, collective=_FORM)
        return ReceivedObject(unpacked(_FORM, data, self.rank, sender), sender, tag)
