"""Python objects between two ranks: a message is a header, as in pickles.py, and one pickle behind it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .arrays import Array
from .errors import InvalidArgumentError, TransportError
from .pickles import FAILED, Parcel, opened, unpacked

_FORM = "send_object"


class ReceivedObject(NamedTuple):
    """What `recv_object_from` returns."""

    value: Any
    source: int
    tag: int


class ObjectMessages:
    """Sends and receives of objects; `Communicator` inherits it. They trust the job: see pickles.py."""

    rank: int

    def send_object(
        self, value: Any, dest: int, tag: int = 0, *, async_op: bool = False, timeout: float | None = None
    ) -> Any:
        """Send `value` to rank `dest`: `send` of its pickle, made before the call returns.

        If it cannot be pickled, InvalidArgumentError is raised here and in the receive that takes it.
        """
        comm: Any = self
        parcel = Parcel.of(value)
        text = np.frombuffer(parcel.problem, np.uint8) if parcel.problem else parcel.bytes()
        message = np.concatenate([parcel.header(_FORM, self.rank, 1).view(np.uint8), text])
        if not parcel.problem:
            return comm.send(message, dest, tag, async_op=async_op, timeout=timeout)
        comm.send(message, dest, tag, timeout=timeout)
        reason = parcel.problem.decode(errors="replace")
        raise InvalidArgumentError(
            f"{_FORM}: {reason}", rank=self.rank, peer=self.rank, collective=_FORM
        ) from parcel.cause

    def recv_object(self, source: int = -1, tag: int = -1, *, timeout: float | None = None) -> Any:
        """Receive an object from rank `source` with `tag`; both may be any (-1).

        Raises InvalidArgumentError if the sender could not pickle it, TransportError if the message is
        damaged or was not sent by `send_object`, CollectiveError if it cannot be unpickled here, and what
        `recv` raises. The communicator stays usable.
        """
        return self.recv_object_from(source, tag, timeout=timeout).value

    def recv_object_from(
        self, source: int = -1, tag: int = -1, *, timeout: float | None = None
    ) -> ReceivedObject:
        """`recv_object` that also says whose it was: (value, source, tag)."""
        comm: Any = self
        message, sender, mark = comm.recv_from(None, source, tag, timeout=timeout)
        return ReceivedObject(self._read(message, sender), sender, mark)

    def _read(self, message: Array, sender: int) -> Any:
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
        return unpacked(_FORM, data, self.rank, sender)
