"""How the ranks of one job exchange addresses and file descriptors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from pycollectives.errors import BootstrapError, InvalidArgumentError

LOOK_SECONDS = 0.05  # between two calls of `look`


class ExchangeError(BootstrapError):
    """An exchange failed. `cause`: "gone", "late" (then `missing` are the indices that did not come), or "" for a
    disagreement or a lost connection."""

    def __init__(
        self, message: str = "", *, cause: str = "", missing: Sequence[int] = (), **attributes: Any
    ) -> None:
        super().__init__(message, **attributes)
        self.cause = cause
        self.missing = tuple(missing)


class Rendezvous(Protocol):
    """The meeting place of one rank with the others of its job.

    ``kind`` says who brought the ranks together: "launcher", "mpi", "torchrun", "threads" or "single".
    """

    rank: int
    size: int
    kind: str

    def exchange(
        self,
        key: str,
        index: int,
        count: int,
        payload: bytes,
        fds: Sequence[int],
        timeout: float,
        members: Sequence[int] | None = None,
        look: Callable[[], None] | None = None,
    ) -> list[tuple[bytes, list[int]]]:
        """Give a payload and descriptors, get those of all participants.

        Collective among ``count`` ranks that name the same ``key``, each with its own ``index`` in
        0..count-1. Returns one ``(payload, descriptors)`` per index, the caller's included; the descriptors
        are new, close-on-exec and the caller's to close. ``fds`` stay the caller's. Several exchanges with
        different keys may be under way at once, also from several threads of one rank. ``members``, where
        known, are the ranks that take part: the exchange fails as soon as one of them has gone. ``look`` is called
        some times a second during the wait; what it raises ends it.

        What is given under a key that starts with "keep/" outlives the rank, until `release`: see
        recorders.py.

        Raises BootstrapError when a participant has gone, did not come within ``timeout`` seconds (the
        missing indices are named) or disagrees about ``count``; InvalidArgumentError for an index outside
        the count.
        """
        ...

    def release(self, key: str) -> None:
        """What this rank has given under a key that starts with "keep/" is not needed any more."""
        ...

    def close(self) -> None:
        """Leave; never waits for the others. Exchanges that still need this rank fail there."""
        ...


def check_arguments(size: int, key: str, index: int, count: int, timeout: float) -> None:
    """Refuse an exchange that cannot be meant. Raises InvalidArgumentError."""
    if not key:
        raise InvalidArgumentError("the key of an exchange is empty")
    if not 1 <= count <= size:
        raise InvalidArgumentError(
            f"exchange {key!r}: count {count} is not in 1..{size}, the ranks of the job"
        )
    if not 0 <= index < count:
        raise InvalidArgumentError(f"exchange {key!r}: index {index} is not in 0..{count - 1}")
    if not timeout >= 0:
        raise InvalidArgumentError(f"exchange {key!r}: timeout {timeout} is not a number of seconds")


def check_process(pid: int) -> None:
    """Refuse to serve a process that inherited a rendezvous by fork. Raises BootstrapError."""
    if pid != os.getpid():
        raise BootstrapError(
            f"this rendezvous was created in another process (pid {pid}) and cannot be used after a fork"
        )


class SingleRendezvous:
    """The rendezvous of a job of one rank: no thread, no socket, no segment."""

    kind = "single"

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1
        self._closed = False
        self._pid = os.getpid()

    def exchange(
        self,
        key: str,
        index: int,
        count: int,
        payload: bytes,
        fds: Sequence[int],
        timeout: float,
        members: Sequence[int] | None = None,
        look: Callable[[], None] | None = None,
    ) -> list[tuple[bytes, list[int]]]:
        """Return the own contribution, its descriptors duplicated."""
        check_process(self._pid)
        check_arguments(self.size, key, index, count, timeout)
        if self._closed:
            raise BootstrapError("the rendezvous is closed", rank=0)
        return [(bytes(payload), duplicate(fds))]

    def release(self, key: str) -> None:
        """See `Rendezvous.release`."""

    def close(self) -> None:
        """Leave."""
        self._closed = True


def duplicate(fds: Sequence[int]) -> list[int]:
    """New close-on-exec descriptors for ``fds``; on a failure those made so far are closed."""
    copies: list[int] = []
    try:
        for fd in fds:
            copies.append(os.dup(fd))
    except OSError as error:
        close_all(copies)
        raise BootstrapError(f"descriptor {fd} cannot be duplicated: {error.strerror}") from error
    return copies


def close_all(fds: Iterable[int]) -> None:
    """Close descriptors, ignoring those that are not open."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
