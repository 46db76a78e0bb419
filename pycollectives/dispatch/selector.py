"""The selector: filter by what can run, predict the rest, take the fastest, unless the user names one.

The choice depends only on the call's fingerprint and on the machine parameters that rank 0 sent when the communicator was
made, so it is the same on every rank.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from .. import _core
from ..cost import Machine, predict
from ..errors import InvalidArgumentError, UnsupportedError
from ..ops import Operator
from ..schedule import COLLECTIVES, Algorithm, find, names
from ..schedule.registry import suggest

_forced: ContextVar[dict[str, str] | None] = ContextVar("pycollectives_algorithm", default=None)
VARIABLE = "PYCOLLECTIVES_ALGORITHM"  # "all_reduce=ring,broadcast=binomial"


@dataclass(frozen=True)
class Candidate:
    """One algorithm in the race: its predicted time in seconds, or why it cannot run."""

    name: str
    seconds: float | None
    why: str


@dataclass(frozen=True)
class Explanation:
    """Every candidate for one call; `str()` draws the table."""

    collective: str
    nbytes: int
    size: int
    chosen: str
    reason: str
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.collective} of {self.nbytes} bytes on {self.size} ranks: {self.chosen} ({self.reason})"
        ]
        width = max(len(c.name) for c in self.candidates)
        for c in self.candidates:
            time = "         -" if c.seconds is None else f"{c.seconds * 1e6:7.1f} us"
            mark = "->" if c.name == self.chosen else "  "
            lines.append(f"  {mark} {c.name:<{width}}  {time}  {c.why}")
        return "\n".join(lines)


@contextlib.contextmanager
def use(**choices: str) -> Iterator[None]:
    """Force algorithms inside a `with` block: `with pc.use(all_reduce="ring"): ...`. Unknown names raise at once."""
    for collective, name in choices.items():
        if collective not in COLLECTIVES:
            raise InvalidArgumentError(f"unknown collective {collective!r}{suggest(collective, COLLECTIVES)}")
        find(collective, name)
    token = _forced.set({**(_forced.get() or {}), **choices})
    _core.override(1)  # what the native fast path remembers does not hold now
    try:
        yield
    finally:
        _core.override(-1)
        _forced.reset(token)


def environment() -> dict[str, str]:
    """The choices of the environment variable; InvalidArgumentError for an unknown name."""
    choices: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in os.environ.get(VARIABLE, "").split(","))):
        collective, equals, name = part.partition("=")
        if not equals or collective not in COLLECTIVES:
            hint = suggest(collective, COLLECTIVES)
            raise InvalidArgumentError(f"{VARIABLE}={part!r}: expected collective=algorithm{hint}")
        choices[collective] = find(collective, name).name
    return choices


def forced(collective: str) -> str | None:
    """The algorithm that a `with` block asks for here, if any."""
    return (_forced.get() or {}).get(collective)


@dataclass(frozen=True)
class Needs:
    """What a call asks of an algorithm beyond its collective."""

    left_fold: bool = False  # one reduction order, for deterministic=True
    rank_order: bool = False  # the operator does not commute
    even: bool = True  # all blocks have one size


def needs(collective: str, operator: Operator | None, deterministic: bool, *, uneven: bool = False) -> Needs:
    """The needs of a call."""
    reduces = COLLECTIVES[collective].reduces and operator is not None
    return Needs(
        reduces and deterministic, reduces and operator is not None and not operator.commutative, not uneven
    )


def obstacle(algorithm: Algorithm, size: int, root: int, wanted: Needs) -> str:
    """Why an algorithm cannot run this call; empty if it can."""
    if why := algorithm.obstacle(size):
        return why
    if not wanted.even and algorithm.even_only:
        return "it needs blocks of one size"
    if wanted.left_fold or wanted.rank_order:
        from ..schedule.verifier import verified

        proof = verified(algorithm, size, root)
        if wanted.left_fold and not proof.left_fold:
            return "its reduction order is not the left fold that deterministic=True asks for"
        if wanted.rank_order and not proof.rank_order:
            return "it does not combine in rank order, and the operator does not commute"
    return ""


ANYTHING = Needs()


def candidates(
    collective: str, nbytes: int, size: int, machine: Machine, *, root: int = 0, wanted: Needs = ANYTHING
) -> list[Candidate]:
    """All algorithms of `collective`, fastest first, those that cannot run last. `nbytes`: the whole vector."""
    race = []
    for name in names(collective):
        one = find(collective, name)
        why = obstacle(one, size, root, wanted)
        race.append(Candidate(name, None if why else predict(one, size, nbytes, machine, root), why))
    race.sort(key=lambda c: (c.seconds is None, c.seconds or 0.0))
    best = race[0].seconds
    return [
        c
        if c.seconds is None or not best
        else Candidate(c.name, c.seconds, "fastest" if i == 0 else f"{c.seconds / best:.2f} x the fastest")
        for i, c in enumerate(race)
    ]


def choose(
    collective: str,
    nbytes: int,
    size: int,
    machine: Machine,
    *,
    named: str | None = None,
    root: int = 0,
    wanted: Needs = ANYTHING,
) -> Algorithm:
    """The algorithm for a call. Raises InvalidArgumentError for an unknown name, UnsupportedError for one that cannot run."""
    if named is not None:
        one = find(collective, named)
        if why := obstacle(one, size, root, wanted):
            can = [
                c.name
                for c in candidates(collective, nbytes, size, machine, root=root, wanted=wanted)
                if c.seconds is not None
            ]
            raise UnsupportedError(
                f"{collective} by {named!r}: {why}; these can: {', '.join(can) or 'none'}", algorithm=named
            )
        return one
    best = candidates(collective, nbytes, size, machine, root=root, wanted=wanted)[0]
    if best.seconds is None:
        raise UnsupportedError(f"no algorithm of {collective} can run this call: {best.name}: {best.why}")
    return find(collective, best.name)


def explain(
    collective: str,
    nbytes: int,
    size: int,
    machine: Machine,
    *,
    named: str | None,
    reason: str,
    root: int = 0,
    wanted: Needs = ANYTHING,
) -> Explanation:
    """Why `choose` chooses what it chooses."""
    if collective not in COLLECTIVES:
        raise InvalidArgumentError(f"unknown collective {collective!r}{suggest(collective, COLLECTIVES)}")
    race = candidates(collective, nbytes, size, machine, root=root, wanted=wanted)
    chosen = choose(collective, nbytes, size, machine, named=named, root=root, wanted=wanted)
    return Explanation(collective, nbytes, size, chosen.name, reason, tuple(race))
