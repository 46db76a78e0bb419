"""What the selector is asked: one kind of call, in the terms that a choice depends on."""

from __future__ import annotations

from dataclasses import dataclass

from ..ops import Operator
from ..schedule import COLLECTIVES, Algorithm, find

KINDS = ("float", "integer", "half", "quarter")  # elements that reduce alike
# Which measurements stand for a kind that was not measured.
LIKE = {"integer": "float", "quarter": "half"}


@dataclass(frozen=True)
class Needs:
    """What a call asks of an algorithm beyond its collective."""

    left_fold: bool = False  # one reduction order, for deterministic=True
    rank_order: bool = False  # the operator does not commute
    even: bool = True  # all blocks have one size


ANYTHING = Needs()


@dataclass(frozen=True)
class Query:
    """One kind of call. `nbytes`: of the whole vector (all_gather: of the result, reduce_scatter: of the input).

    `kind`: of the elements, one of KINDS where they are reduced, "bytes" where they are only moved. `hosts`: the host of
    every rank, empty where all are on one; `domains`: the part of their one host that each is bound to.
    """

    collective: str
    nbytes: int
    size: int
    root: int = 0
    needs: Needs = ANYTHING
    kind: str = "float"
    hosts: tuple[int, ...] = ()
    domains: tuple[int, ...] = ()

    def algorithm(self, name: str) -> Algorithm:
        """The algorithm of that name, for ranks in these places. Raises InvalidArgumentError for an unknown one."""
        one = find(self.collective, name)
        places = self.hosts or self.domains
        return one.on(places) if places else one


def kind_of(collective: str, dtype: str) -> str:
    """The kind of elements of a dtype (by name) in a collective."""
    if not COLLECTIVES[collective].reduces or COLLECTIVES[collective].repeats:
        return "bytes"
    if dtype.startswith("float8"):
        return "quarter"
    if dtype in ("float16", "bfloat16"):
        return "half"
    return "float" if dtype.startswith(("float", "complex")) else "integer"


def needs(collective: str, operator: Operator | None, deterministic: bool, *, uneven: bool = False) -> Needs:
    """The needs of a call."""
    reduces = COLLECTIVES[collective].reduces and operator is not None
    return Needs(
        reduces and deterministic, reduces and operator is not None and not operator.commutative, not uneven
    )


def obstacle(algorithm: Algorithm, query: Query) -> str:
    """Why an algorithm cannot run a call; empty if it can."""
    if why := algorithm.obstacle(query.size):
        return why
    wanted = query.needs
    if not wanted.even and algorithm.even_only:
        return "it needs blocks of one size"
    if wanted.left_fold or wanted.rank_order:
        from ..schedule.verifier import verified

        proof = verified(algorithm, query.size, query.root)
        if wanted.left_fold and not proof.left_fold:
            return "its reduction order is not the left fold that deterministic=True asks for"
        if wanted.rank_order and not proof.rank_order:
            return "it does not combine in rank order, and the operator does not commute"
    return ""
