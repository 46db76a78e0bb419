"""The errors of pycollectives: one family, each also the standard exception that callers expect."""

from __future__ import annotations

from typing import Any


class CollectiveError(Exception):
    """Base of all errors of the library.

    Attributes (None where they do not apply): `rank` that raised, `peer` concerned, `collective`, `sequence` number of the
    call, `algorithm`, `step`.
    """

    def __init__(
        self,
        message: str = "",
        *,
        rank: int | None = None,
        peer: int | None = None,
        collective: str | None = None,
        sequence: int | None = None,
        algorithm: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message)
        self.rank, self.peer, self.collective = rank, peer, collective
        self.sequence, self.algorithm, self.step = sequence, algorithm, step

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args[0] if self.args else "", dict(self.__dict__))


def _rebuild(kind: type[CollectiveError], message: str, attributes: dict[str, Any]) -> CollectiveError:
    error = kind(message)
    error.__dict__.update(attributes)
    return error


class InvalidArgumentError(CollectiveError, ValueError):
    """An argument is wrong; nothing has moved."""


class UnsupportedError(CollectiveError, NotImplementedError):
    """A combination that is not supported; the text names what would work."""


class MismatchError(CollectiveError):
    """The ranks of a communicator called different things."""


class BootstrapError(CollectiveError):
    """The ranks could not find each other."""


class TransportError(CollectiveError, OSError):
    """Memory or a connection between ranks failed."""


class PeerError(CollectiveError):
    """A peer died, left or raised."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """A peer did not come in time."""


class AbortedError(CollectiveError):
    """The communicator was aborted."""


class DeviceError(CollectiveError):
    """A device or its driver failed."""


class ScheduleError(CollectiveError):
    """A schedule is wrong; `rank`, `step` and `chunk` say where."""

    def __init__(self, message: str = "", *, chunk: int | None = None, **attributes: Any) -> None:
        super().__init__(message, **attributes)
        self.chunk = chunk
