"""Which algorithm runs a call, and why."""

from . import tuning_file
from .explanation import Explanation, explain
from .override import VARIABLE, environment, forced, use
from .query import ANYTHING, KINDS, Needs, Query, kind_of, needs, obstacle
from .selector import Candidate, Race, Tuning, choose, entrants, race
from .table import Row, Series, Table

__all__ = [
    "ANYTHING",
    "KINDS",
    "VARIABLE",
    "Candidate",
    "Explanation",
    "Needs",
    "Query",
    "Race",
    "Row",
    "Series",
    "Table",
    "Tuning",
    "choose",
    "entrants",
    "environment",
    "explain",
    "forced",
    "kind_of",
    "needs",
    "obstacle",
    "race",
    "tuning_file",
    "use",
]
