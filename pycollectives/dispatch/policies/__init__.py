"""What other libraries would choose: named policies to compare the selector with.

A policy is a function of the query. It answers in that library's words and with the algorithm here that is the same, or
the nearest there is; None where the library has no rule of its own for the collective.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InvalidArgumentError
from ...schedule.registry import suggest
from ..query import Query
from . import mpich, nccl, openmpi
from .advice import Advice

Policy = Callable[[Query], Advice | None]
POLICIES: dict[str, Policy] = {"mpich": mpich.advice, "openmpi": openmpi.advice, "nccl": nccl.advice}

__all__ = ["POLICIES", "Advice", "Policy", "consult"]


def consult(policy: str, query: Query) -> Advice | None:
    """The advice of a policy by name. Raises InvalidArgumentError, which suggests the near name."""
    if policy not in POLICIES:
        known = ", ".join(POLICIES)
        raise InvalidArgumentError(f"unknown policy {policy!r}{suggest(policy, POLICIES)}. Known: {known}")
    return POLICIES[policy](query)
