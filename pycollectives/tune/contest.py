"""Who wins a contest of algorithms on a noisy machine.

All entrants run in every round, one after the other, so what disturbs a round disturbs most of them alike: only ratios
within a round count. The incumbent (what would be taken without this contest) stays unless a challenger beats it by a
margin in most rounds, so that noise does not make tables that jump from one algorithm to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MARGIN = 0.05  # a challenger must take less than 95 % of the incumbent's time ...
SHARE = 0.7  # ... in this share of the rounds, and in their median


@dataclass(frozen=True)
class Verdict:
    """`winner`: index of the entrant; `ratio`: its time over the incumbent's, the median of the rounds; `wins`: the share
    of the rounds that it won by the margin (1 where the incumbent stays)."""

    winner: int
    ratio: float
    wins: float


def judge(times: Array, incumbent: int) -> Verdict:
    """The winner. `times`: seconds, of shape (entrants, rounds)."""
    ratios = times / times[incumbent]
    won = (ratios < 1 - MARGIN).mean(axis=1)
    median = np.median(ratios, axis=1)
    ahead = (won >= SHARE) & (median < 1 - MARGIN)
    if not ahead.any():
        return Verdict(incumbent, 1.0, 1.0)
    winner = int(np.argmin(np.where(ahead, median, np.inf)))
    return Verdict(winner, float(median[winner]), float(won[winner]))


def settle(winners: Sequence[str], seconds: Sequence[Mapping[str, float]]) -> list[str]:
    """The winners by size, without those that stand alone: where the sizes below and above agree on another algorithm
    that takes at most a margin longer here, it is taken. `seconds`: by size and algorithm."""
    found = list(winners)
    for i in range(1, len(found) - 1):
        below, above = winners[i - 1], winners[i + 1]
        if below != above or below == winners[i] or below not in seconds[i]:
            continue
        if seconds[i][below] * (1 - MARGIN) <= seconds[i][winners[i]]:
            found[i] = below
    return found


def survivors(times: Array, protected: Sequence[int], factor: float) -> list[int]:
    """Entrants for the next heat: those within `factor` of the best so far, and the protected ones."""
    best = times.min(axis=1)
    return [i for i in range(len(times)) if best[i] <= factor * best.min() or i in protected]
