"""Which algorithm runs a call, and why."""

from . import tuning_file
from .explanation import Explanation, explain, notes
from .override import VARIABLE, environment, forced, use
from .policies import POLICIES, Advice, consult
from .query import ANYTHING, KINDS, Needs, Query, kind_of, needs, obstacle
from .selector import Candidate, Race, Tuning, choose, entrants, race
from .table import Row, Series, Table

__all__ = [
    "ANYTHING",
    "KINDS",
    "POLICIES",
    "VARIABLE",
    "Advice",
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
    "consult",
    "entrants",
    "environment",
    "explain",
    "forced",
    "kind_of",
    "needs",
    "notes",
    "obstacle",
    "race",
    "tuning_file",
    "use",
]
