"""Which algorithm runs a call, and why."""

from .selector import (
    VARIABLE,
    Candidate,
    Explanation,
    Needs,
    candidates,
    choose,
    environment,
    explain,
    forced,
    needs,
    use,
)

__all__ = [
    "VARIABLE",
    "Candidate",
    "Explanation",
    "Needs",
    "candidates",
    "choose",
    "environment",
    "explain",
    "forced",
    "needs",
    "use",
]
