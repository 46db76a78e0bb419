"""The schedule language, its verifier and its lowering: algorithms are schedules, all else reads them."""

from .collectives import COLLECTIVES, Collective
from .program import Program
from .registry import ALGORITHMS, Algorithm, algorithm, find, names
from .schedule import Chunks, Operation, Schedule
from .values import NULL
from .views import View

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "NULL",
    "Algorithm",
    "Chunks",
    "Collective",
    "Operation",
    "Program",
    "Schedule",
    "View",
    "algorithm",
    "find",
    "names",
]
