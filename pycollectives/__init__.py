"""Collective communication: an algorithm is a schedule; it is executed, verified, drawn and chosen from one text."""

from . import algorithms as _algorithms  # noqa: F401 - registers the built-in algorithms
from .communicator import Communicator
from .dispatch import use
from .errors import (
    AbortedError,
    BootstrapError,
    CollectiveError,
    CollectiveTimeoutError,
    DeviceError,
    InvalidArgumentError,
    MismatchError,
    PeerError,
    ScheduleError,
    TransportError,
    UnsupportedError,
)
from .ops import ReduceOp, scaled_sum
from .point_to_point import ANY_SOURCE, ANY_TAG
from .schedule import NULL, Program, algorithm
from .user_op import op
from .work import PersistentCall, Work
from .world import init, run_threads

__version__ = "0.1.0"
__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "NULL",
    "AbortedError",
    "BootstrapError",
    "CollectiveError",
    "CollectiveTimeoutError",
    "Communicator",
    "DeviceError",
    "InvalidArgumentError",
    "MismatchError",
    "PeerError",
    "PersistentCall",
    "Program",
    "ReduceOp",
    "ScheduleError",
    "TransportError",
    "UnsupportedError",
    "Work",
    "algorithm",
    "init",
    "op",
    "run_threads",
    "scaled_sum",
    "use",
]
