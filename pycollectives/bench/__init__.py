"""Measuring collectives: what is measured, on which data, and what is reported."""

from .cases import Case, Options, cases, parse_sizes
from .measure import Row, measure
from .report import Report

__all__ = ["Case", "Options", "Report", "Row", "cases", "measure", "parse_sizes"]
