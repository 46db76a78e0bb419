"""The schedule language, its verifier and its lowering: algorithms are schedules, all else reads them."""

from .collectives import COLLECTIVES, Collective
from .placement import EVEN_HOSTS, HOSTS, Placement
from .program import Program
from .registry import ALGORITHMS, Algorithm, Parameter, Restriction, algorithm, find, names
from .schedule import Chunks, Operation, Schedule
from .values import NULL, log2_ceil, select
from .views import View

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "EVEN_HOSTS",
    "HOSTS",
    "NULL",
    "Algorithm",
    "Chunks",
    "Collective",
    "Operation",
    "Parameter",
    "Placement",
    "Program",
    "Restriction",
    "Schedule",
    "View",
    "algorithm",
    "find",
    "log2_ceil",
    "names",
    "select",
]
