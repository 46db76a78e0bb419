"""An algorithm in facts: what it costs, where it can run, in which order it reduces."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..schedule import COLLECTIVES, Algorithm
from ..schedule.verifier import verified
from .footprint import footprint

PROVED_UP_TO = 64  # ranks; a proof of more takes seconds


@dataclass(frozen=True)
class Description:
    """One algorithm for one number of ranks.

    Bytes are those of the busiest rank in units of the whole vector. `restrictions` hold for every number of
    ranks; `obstacle` says why it cannot run on this one: there are no steps and no bytes then. `rank_order`
    (operators need not commute) and `left_fold` (the order of deterministic=True) are None where nothing is
    reduced, and above PROVED_UP_TO ranks.
    """

    collective: str
    name: str
    cost: str
    size: int
    steps: int | None
    sent: Fraction | None
    received: Fraction | None
    reduced: Fraction | None
    rank_order: bool | None
    left_fold: bool | None
    restrictions: tuple[str, ...]
    obstacle: str

    def __str__(self) -> str:
        """One line."""
        if self.obstacle:
            return f"{self.name}: {self.cost}; {self.obstacle}"
        data = COLLECTIVES[self.collective].output != "none"  # a barrier moves none
        moved = f"sends {self.sent} n and receives {self.received} n per rank at most" if data else ""
        order = "left fold" if self.left_fold else "rank order" if self.rank_order else ""
        parts = [self.cost, f"{self.steps} steps", moved, order, *self.restrictions]
        return f"{self.name}: {'; '.join(part for part in parts if part)}"


def describe(algorithm: Algorithm, size: int, root: int = 0) -> Description:
    """The facts about `algorithm` on `size` ranks.

    Raises InvalidArgumentError where its parameter does not fit them, ScheduleError if it is wrong.
    """
    restrictions = []
    if algorithm.parameter is not None:
        restrictions.append(f"takes {algorithm.parameter.form}")
    if algorithm.restriction is not None:
        restrictions.append(f"needs {algorithm.restriction.text}")
    if algorithm.even_only:
        restrictions.append("needs blocks of one size")
    obstacle = algorithm.obstacle(size)
    cost = None if obstacle else footprint(algorithm, size, root)
    verb = COLLECTIVES[algorithm.collective]
    reduces = verb.reduces and not verb.repeats
    proof = verified(algorithm, size, root) if cost and reduces and size <= PROVED_UP_TO else None
    return Description(
        collective=algorithm.collective,
        name=algorithm.name,
        cost=algorithm.cost,
        size=size,
        steps=cost.steps if cost else None,
        sent=cost.sent if cost else None,
        received=cost.received if cost else None,
        reduced=cost.reduced if cost else None,
        rank_order=proof.rank_order if proof else None,
        left_fold=proof.left_fold if proof else None,
        restrictions=tuple(restrictions),
        obstacle=obstacle,
    )
