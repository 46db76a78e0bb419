"""Frames with descriptors over a Unix stream socket, never blocking.

frame = header | one byte for every 200 descriptors, which ride on it | meta (JSON) | payload
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import resource
import socket
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from pycollectives.bootstrap.rendezvous import close_all, duplicate
from pycollectives.errors import BootstrapError

_HEADER = struct.Struct("<4sB3xIIQQ")  # magic, kind, descriptors, bytes of meta, ticket, bytes of payload
_MAGIC = b"pcb1"
_FDS_PER_BYTE = 200  # the kernel carries at most 253 in one message
_READ = 1 << 18
_READ_PER_CALL = 1 << 22
_META_LIMIT = 1 << 24
_PAYLOAD_LIMIT = 1 << 40
_STRANGER_LIMIT = 4096  # bytes of a whole frame before the peer has proved who it is


class Kind(IntEnum):
    """What a frame says."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSED = 5
    EXCHANGE = 6
    WITHDRAW = 7
    ANSWER = 8
    ERROR = 9
    BYE = 10
    RELEASE = 11


class ProtocolError(BootstrapError):
    """The bytes of a connection make no sense, or descriptors were lost."""


class Descriptors:
    """Owner of descriptors: they are closed with the last reference to it, unless taken."""

    __slots__ = ("fds",)

    def __init__(self, fds: Sequence[int] = ()) -> None:
        self.fds: list[int] = list(fds)

    @classmethod
    def copy_of(cls, fds: Sequence[int]) -> Descriptors:
        """Own duplicates of ``fds``."""
        return cls(duplicate(fds))

    def take(self) -> list[int]:
        """Hand the descriptors over."""
        fds, self.fds = self.fds, []
        return fds

    def close(self) -> None:
        """Close them now."""
        close_all(self.take())

    def __del__(self) -> None:
        self.close()


class Frame(NamedTuple):
    """One received message."""

    kind: int
    ticket: int
    meta: dict[str, Any]
    payload: bytes
    descriptors: Descriptors


class _Out:
    """Bytes to send, the descriptors that ride on the first of them, and what must stay open until then."""

    __slots__ = ("fds", "keep", "view")

    def __init__(self, data: bytes | memoryview, fds: Sequence[int], keep: Sequence[Descriptors]) -> None:
        self.view = memoryview(data)
        self.fds = fds
        self.keep = keep


class Channel:
    """A non-blocking connection. Not locked: one thread at a time.

    ``trusted`` is False until the peer has proved itself: its frames must then be small, and descriptors that
    it sends are dropped by the kernel. ``stalled`` says that the kernel takes no more descriptors in flight
    for now: try again a little later (the socket counts as writable meanwhile).
    """

    def __init__(self, sock: socket.socket, *, trusted: bool) -> None:
        sock.setblocking(False)
        sock.set_inheritable(False)
        self.sock = sock
        self.trusted = trusted
        self.stalled = False
        self.ended = False
        self._in = bytearray()
        self._in_fds: deque[int] = deque()
        self._out: list[_Out] = []
        self._flushing = False

    def fileno(self) -> int:
        """The socket's descriptor, -1 when closed."""
        return self.sock.fileno()

    @property
    def pending(self) -> bool:
        """Whether bytes wait to be sent."""
        return bool(self._out)

    def queue(
        self,
        kind: Kind,
        *,
        ticket: int = 0,
        meta: Mapping[str, Any] | None = None,
        payloads: Sequence[bytes] = (),
        descriptors: Sequence[Descriptors] = (),
    ) -> None:
        """Append one frame to what is to be sent; its payload is the concatenation of ``payloads``.

        At once: a finalizer may send a frame of its own wherever this thread stands, in here and in ``flush``, too.
        """
        fds = [fd for owner in descriptors for fd in owner.fds]
        text = json.dumps(meta or {}).encode()
        header = _HEADER.pack(_MAGIC, kind, len(fds), len(text), ticket, sum(map(len, payloads)))
        frame = [_Out(header, (), ())]
        for first in range(0, len(fds), _FDS_PER_BYTE):
            frame.append(_Out(b"+", fds[first : first + _FDS_PER_BYTE], descriptors))
        frame.append(_Out(text, (), ()))
        frame.extend(_Out(payload, (), ()) for payload in payloads if payload)
        self._out += frame

    def flush(self) -> bool:
        """Send what the socket takes; True when nothing is left. Raises OSError when the peer has gone."""
        if self._flushing:
            return False  # the one that is interrupted goes on with what has been added
        self._flushing = True
        try:
            return self._flush()
        finally:
            self._flushing = False

    def _flush(self) -> bool:
        self.stalled = False
        while self._out:
            first = self._out[0]
            views = [first.view]
            for item in self._out:
                if item is not first:
                    if item.fds or len(views) == 32:
                        break
                    views.append(item.view)
            rights = (
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", first.fds))] if first.fds else []
            )
            try:
                sent = self.sock.sendmsg(views, rights, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno not in (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self.stalled = True
                return False
            first.fds, first.keep = (), ()
            while self._out and sent >= len(self._out[0].view):
                sent -= len(self._out.pop(0).view)
            if sent:
                self._out[0].view = self._out[0].view[sent:]
        return True

    def receive(self) -> list[Frame]:
        """The frames that have arrived; ``ended`` becomes True at the end. Raises ProtocolError."""
        space = socket.CMSG_SPACE(253 * 4) if self.trusted else 0
        read = 0
        while read < _READ_PER_CALL:
            try:
                data, rights, flags, _ = self.sock.recvmsg(_READ, space, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                break
            except OSError:
                self.ended = True
                break
            for level, kind, content in rights:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds = array.array("i")
                    fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                    self._in_fds.extend(fds)
            if flags & socket.MSG_CTRUNC:
                raise ProtocolError(self._lost())
            if not data:
                self.ended = True
                break
            self._in += data
            read += len(data)
        frames = []
        while (frame := self._parse()) is not None:
            frames.append(frame)
            if not self.trusted:
                break  # what follows the proof must be read under the rules for the proved
        return frames

    def _lost(self) -> str:
        if not self.trusted:
            return "descriptors came before the peer proved who it is"
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"descriptors were lost: the process (pid {os.getpid()}) may have {limit} open (ulimit -n)"

    def _parse(self) -> Frame | None:
        if len(self._in) < _HEADER.size:
            return None
        magic, kind, fd_count, meta_size, ticket, payload_size = _HEADER.unpack_from(self._in)
        if magic != _MAGIC:
            raise ProtocolError("a frame does not start as one: the peer speaks something else")
        markers = -(-fd_count // _FDS_PER_BYTE)
        start = _HEADER.size + markers
        size = start + meta_size + payload_size
        if meta_size > _META_LIMIT or payload_size > _PAYLOAD_LIMIT:
            raise ProtocolError(f"a frame claims {meta_size} + {payload_size} bytes")
        if not self.trusted and (fd_count or size > _STRANGER_LIMIT):
            raise ProtocolError(f"a frame of {size} bytes came before the peer proved who it is")
        if len(self._in) < size:
            return None
        if len(self._in_fds) < fd_count:
            raise ProtocolError(f"a frame came with {len(self._in_fds)} instead of {fd_count} descriptors")
        descriptors = Descriptors([self._in_fds.popleft() for _ in range(fd_count)])
        with memoryview(self._in) as view:
            text, payload = bytes(view[start : start + meta_size]), bytes(view[start + meta_size : size])
        del self._in[:size]
        try:
            meta = json.loads(text)
        except ValueError as error:
            raise ProtocolError("a frame's description is not JSON") from error
        if not isinstance(meta, dict):
            raise ProtocolError("a frame's description is not an object")
        return Frame(kind, ticket, meta, payload, descriptors)

    def shutdown(self) -> None:
        """End the connection for every process that holds the socket."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self, *, shutdown: bool = True) -> None:
        """Close; with ``shutdown`` also for copies of the socket that other processes hold."""
        if shutdown:
            self.shutdown()
        self.sock.close()
        self.ended = True
        self.stalled = False
        self._out.clear()
        close_all(self._in_fds)
        self._in_fds.clear()
