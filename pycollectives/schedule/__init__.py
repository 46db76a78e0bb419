"""The schedule language, its verifier and its lowering. An algorithm is a schedule; everything else reads schedules."""

from .collectives import COLLECTIVES, Collective
from .program import Program, View
from .registry import ALGORITHMS, Algorithm, algorithm, find, names
from .schedule import Chunks, Operation, Schedule
from .values import NULL

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
