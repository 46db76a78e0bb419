"""The alpha-beta-gamma model on schedules.

    time = steps x alpha + received bytes x beta + reduced bytes x gamma        of the busiest rank

Steps and bytes are read off the schedule, so they hold for a user's algorithm too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ..schedule import Algorithm


@dataclass(frozen=True)
class Footprint:
    """Of the busiest rank; bytes are in units of the whole vector (all-gather, reduce-scatter: the total)."""

    steps: int
    messages: int
    sent: Fraction
    received: Fraction
    reduced: Fraction


@dataclass(frozen=True)
class Machine:
    """Parameters of one host: seconds per step (`turn` where ranks take turns on the cores), per byte moved and per byte
    reduced; cores that the ranks share."""

    alpha: float = 0.6e-6
    turn: float = 5e-6
    beta: float = 1 / 10e9
    gamma: float = 1 / 20e9
    cores: int = 1


@lru_cache(maxsize=512)
def footprint(algorithm: Algorithm, size: int, root: int = 0) -> Footprint:
    """Steps, messages and bytes of `algorithm` for `size` ranks, assuming equal chunks."""
    schedule = algorithm.schedule(size, root=root)
    share = Fraction(1, schedule.nchunks * schedule.channels)
    steps: set[int] = set()
    messages = sent = received = reduced = 0
    for operations in schedule.operations().values():
        counts = {"send": 0, "recv": 0, "reduce": 0, "copy": 0, "combine": 0}
        heard = 0
        for op in operations:
            steps.add(op.step)
            size_of = sum(len(chunks.index) for _, chunks in op.parts)
            counts[op.kind] += size_of
            heard += len(op.parts) if op.kind in ("recv", "reduce") else 0
        messages = max(messages, heard)
        sent = max(sent, counts["send"])
        received = max(received, counts["recv"] + counts["reduce"])
        reduced = max(reduced, counts["reduce"] + counts["combine"])
    return Footprint(len(steps), messages, sent * share, received * share, reduced * share)


def predict(algorithm: Algorithm, size: int, nbytes: int, machine: Machine, root: int = 0) -> float:
    """Seconds for `nbytes` of data (the whole vector). Ranks that share a core take turns."""
    cost = footprint(algorithm, size, root)
    crowd = max(1.0, size / machine.cores)
    moved = float(cost.received) * machine.beta + float(cost.reduced) * machine.gamma
    alpha = machine.alpha if size <= machine.cores else machine.turn / crowd
    return crowd * (cost.steps * alpha + cost.messages * machine.alpha / 4 + nbytes * moved)
