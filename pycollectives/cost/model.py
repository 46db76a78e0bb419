"""The alpha-beta-gamma model on schedules.

    time = steps x alpha + received bytes x beta + reduced bytes x gamma        of the busiest rank

Steps are rounds of messages. All is read off the schedule, so it holds for a user's algorithm too.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..schedule import Algorithm
from .footprint import footprint


@dataclass(frozen=True)
class Machine:
    """Parameters of one host: seconds per step, byte moved and byte reduced; cores that the ranks share.

    `turn`: seconds per step where ranks take turns on the cores.
    """

    alpha: float = 0.6e-6
    turn: float = 5e-6
    beta: float = 1 / 10e9
    gamma: float = 1 / 20e9
    cores: int = 1


def predict(algorithm: Algorithm, size: int, nbytes: int, machine: Machine, root: int = 0) -> float:
    """Seconds for `nbytes` of data (the whole vector). Ranks that share a core take turns."""
    cost = footprint(algorithm, size, root)
    crowd = max(1.0, size / machine.cores)
    moved = float(cost.received) * machine.beta + float(cost.reduced) * machine.gamma
    alpha = machine.alpha if size <= machine.cores else machine.turn / crowd
    return crowd * (cost.steps * alpha + cost.messages * machine.alpha / 4 + nbytes * moved)
