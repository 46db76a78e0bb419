"""Random programs of collectives, and what happens to one of their ranks: everything follows from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import reference
from catalogue import EVEN_DTYPES, VERBS

FAULTS = (
    "kill",
    "killed",
    "stop",
    "raise",
    "interrupt",
    "delay",
    "jitter",
    "leave",
    "disagree",
    "abort",
    "massacre",
)
ENDS = {  # what the survivors raise; None: nothing
    "kill": "PeerError",
    "killed": "PeerError",
    "stop": "CollectiveTimeoutError",
    "raise": "PeerError",
    "interrupt": "PeerError",
    "delay": None,
    "jitter": None,
    "leave": "PeerError",
    "disagree": "MismatchError",
    "abort": "AbortedError",
    "massacre": None,  # all are killed
}
PATIENCE = 1.0  # seconds that the ranks wait for a stopped one


@dataclass(frozen=True)
class Call:
    """One collective; see catalogue.check."""

    verb: str
    algorithm: str | None
    count: int
    dtype: str
    root: int
    way: str
    seed: int


@dataclass(frozen=True)
class Scenario:
    """A job, and the fault of its `victim`: in call `at`, after so many more instructions or seconds."""

    seed: int
    size: int
    fault: str
    victim: int
    calls: tuple[Call, ...]
    at: int
    after: int
    seconds: float
    shrinks: bool  # the survivors go on
    mixed: bool  # other collective operations in between: split, empty, objects, messages

    def __str__(self) -> str:
        calls = ", ".join(f"{call.verb} by {call.algorithm}" for call in self.calls)
        return f"seed {self.seed}: {self.fault} rank {self.victim} of {self.size} at {self.at} ({calls})"


def scenario(seed: int) -> Scenario:
    """The scenario of a seed. Seeds that follow one another take every fault, every verb and every algorithm in turn."""
    rng = random.Random(seed)
    size = rng.choice((2, 2, 3, 4, 5))
    everything = [(verb, name) for verb in VERBS for name in reference.algorithms(verb, size)]
    fault = FAULTS[seed % len(FAULTS)]
    calls = [_call(rng, size, *everything[(seed // len(FAULTS) + 7 * i) % len(everything)]) for i in range(4)]
    return Scenario(
        seed=seed,
        size=size,
        fault=fault,
        victim=rng.randrange(size),
        calls=tuple(calls),
        at=rng.randrange(len(calls)),
        after=rng.choice((1, 2, 3, rng.randrange(1, 60))),
        seconds=rng.choice((0.0, 0.001, rng.uniform(0, 0.05))),
        shrinks=rng.random() < 0.5,
        mixed=rng.random() < 0.3 and fault != "stop",
    )


def _call(rng: random.Random, size: int, verb: str, algorithm: str) -> Call:
    count = rng.choice((1, 7, 300, 5000, 60_000 if size < 5 else 20_000))
    way = rng.choice(("call", "call", "async", "plan", "out"))
    return Call(
        verb, algorithm, count, rng.choice(EVEN_DTYPES), rng.randrange(size), way, rng.randrange(1 << 30)
    )


def options(call: Call) -> dict[str, Any]:
    """The arguments of catalogue.check."""
    return {
        name: getattr(call, name) for name in ("verb", "algorithm", "count", "dtype", "root", "way", "seed")
    }
