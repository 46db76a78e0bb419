"""Measuring a machine: its parameters in the cost model, and which algorithm is the fastest for which call."""

from .calibration import calibrate
from .contest import Verdict, judge, settle
from .session import QUICK, Outcome, Pace, Plan, Result, run

__all__ = ["QUICK", "Outcome", "Pace", "Plan", "Result", "Verdict", "calibrate", "judge", "run", "settle"]
