"""The one family of errors that the library raises."""

from __future__ import annotations

from typing import Any


class CollectiveError(Exception):
    """Base of every error of the library.

    ``str(error)`` is the message alone; what is known about the place of the failure is in the attributes
    ``rank`` (who raises), ``peer`` (the rank at fault), ``collective``, ``sequence`` (number of the call on
    its communicator), ``algorithm`` and ``step``, each None where unknown. Every member pickles.
    """

    rank: int | None
    peer: int | None
    collective: str | None
    sequence: int | None
    algorithm: str | None
    step: int | None

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
        self.rank = rank
        self.peer = peer
        self.collective = collective
        self.sequence = sequence
        self.algorithm = algorithm
        self.step = step

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class InvalidArgumentError(CollectiveError, ValueError):
    """An argument of a call is wrong; nothing has been transferred."""


class UnsupportedError(CollectiveError, NotImplementedError):
    """A combination that is not offered; the message names what would work."""


class MismatchError(CollectiveError):
    """The ranks called different collectives, or the same one with different arguments."""


class BootstrapError(CollectiveError):
    """The ranks of a job could not find, trust or answer each other."""


class TransportError(CollectiveError, OSError):
    """Moving bytes between two ranks failed in the operating system or the network."""


class PeerError(CollectiveError):
    """A rank that is needed has died or has left."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """A rank did not take part within the timeout."""


class AbortedError(CollectiveError):
    """The communicator was aborted, by this rank or by another one."""


class DeviceError(CollectiveError):
    """A device or its driver reported a failure."""


class ScheduleError(CollectiveError):
    """A schedule is wrong: unmatched messages, a deadlock, a hazard, or a wrong result.

    Besides ``rank`` and ``step``, ``chunk`` says where.
    """

    chunk: int | None

    def __init__(self, message: str = "", *, chunk: int | None = None, **attributes: Any) -> None:
        super().__init__(message, **attributes)
        self.chunk = chunk
