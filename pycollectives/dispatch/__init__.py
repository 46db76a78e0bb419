"""Which algorithm runs a call, and why."""

from .selector import Candidate, Explanation, candidates, choose, environment, explain, forced, use, VARIABLE

__all__ = ["Candidate", "Explanation", "candidates", "choose", "environment", "explain", "forced", "use", "VARIABLE"]
