"""What the ranks print, passed on in whole lines."""

from __future__ import annotations

import errno
import os
import select
from typing import IO, Any

_READ = 1 << 16
_LONGEST_LINE = 1 << 20
_LARGEST_PIPE = 1 << 20


class Sink:
    """One stream of the launcher, written to by all ranks."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._binary: Any = getattr(stream, "buffer", None)
        self._raw: Any = getattr(self._binary, "raw", None)
        self._writer: object = None
        self._in_line = False
        self.broken = False

    def write(self, data: bytes, writer: object) -> None:
        """Pass ``data`` on; an unfinished line of another writer is ended first."""
        if self.broken or not data:
            return
        if self._in_line and writer is not self._writer:
            data = b"\n" + data
        self._writer, self._in_line = writer, not data.endswith(b"\n")
        try:
            if self._raw is not None:
                self._stream.flush()
                self._write_raw(data)
            elif self._binary is not None:
                self._stream.flush()
                self._binary.write(data)
                self._binary.flush()
            else:
                self._stream.write(data.decode(errors="replace"))
                self._stream.flush()
        except ValueError:
            self.broken = True
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):  # nobody reads; the terminal is gone
                raise
            self.broken = True

    def _write_raw(self, data: bytes) -> None:
        """Past the buffer: what nobody reads would stay in it, and make the interpreter exit with code 120."""
        left = memoryview(data)
        while left:
            written = self._raw.write(left)
            if written is None:  # somebody has made it non-blocking
                select.select([], [self._raw], [])
            else:
                left = left[written:]


class Relay:
    """One pipe from a rank. With ``eager`` an unfinished line may be passed on too (a prompt)."""

    def __init__(self, fd: int, sink: Sink, prefix: bytes, *, eager: bool = False) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.eager = eager
        self._sink = sink
        self._prefix = prefix
        self._buffer = bytearray()
        self._line_begins = True

    @property
    def unfinished(self) -> bool:
        """Whether part of a line waits."""
        return bool(self._buffer)

    def pump(self) -> bool:
        """Pass on what has come; False at the end, or when nobody reads the launcher's output."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self._buffer += data
        end = 1 + max(self._buffer.rfind(b"\n"), self._buffer.rfind(b"\r", 0, -1))  # a last \r may begin \r\n
        if len(self._buffer) > _LONGEST_LINE:
            end = len(self._buffer)
        self._emit(end)
        return bool(data) and not self._sink.broken

    def drain(self) -> None:
        """Pass on everything that is in the pipe now, to the last unfinished line."""
        left = _LARGEST_PIPE  # a process that the rank left behind may go on writing
        while left > 0:
            try:
                data = os.read(self.fd, _READ)
            except OSError:
                break
            if not data:
                break
            self._buffer += data
            left -= len(data)
        self.flush()

    def flush(self) -> None:
        """Pass on the unfinished line."""
        self._emit(len(self._buffer))

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.fd)

    def _emit(self, end: int) -> None:
        if end <= 0:
            return
        data = bytes(self._buffer[:end])
        del self._buffer[:end]
        if self._prefix:
            lines = data.splitlines(keepends=True)
            first = self._prefix if self._line_begins else b""
            self._line_begins = data.endswith((b"\n", b"\r"))
            data = first + self._prefix.join(lines)
        self._sink.write(data, self)
