"""The selector: filter by what can run, predict the rest, let measurements overrule, and the user both.

    algorithm=, pc.use, environment     the user's word, if the algorithm can run
    measured table                      its winner, or the fastest measured one that can run
    prediction                          the least time by the cost model on the machine's parameters

A choice is a function of the query and of the `Tuning`, which rank 0 sent when the communicator was made, so it is the
same on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..cost import Machine, footprint, predict
from ..errors import UnsupportedError
from ..schedule import Algorithm, find, names
from .query import Query, obstacle
from .table import Row, Table

# No rank passes on what another one has sent.
DIRECT = ("one_shot", "two_shot", "direct", "flat")


@dataclass(frozen=True)
class Tuning:
    """What a choice rests on besides the call: the machine's parameters, the measured table, and where both are from."""

    machine: Machine
    table: Table = field(default_factory=Table)
    origin: str = "defaults"


@dataclass(frozen=True)
class Candidate:
    """One algorithm in the race: its predicted and its measured time in seconds, or why it cannot run."""

    name: str
    predicted: float | None
    measured: float | None
    obstacle: str = ""


@dataclass(frozen=True)
class Race:
    """All candidates for a call, best first, those that cannot run last; `row`: the measurements that were used."""

    candidates: tuple[Candidate, ...]
    row: Row | None

    @property
    def best(self) -> Candidate:
        """The choice where the user makes none."""
        return self.candidates[0]


def entrants(collective: str, size: int) -> list[str]:
    """The names of the algorithms of a collective, each shape of a parameterised one (`torus(2x6)`) by itself.

    The shape that an algorithm takes by itself is the plain name; shapes with a side of 1 are other algorithms.
    """
    found = []
    for name in names(collective):
        found.append(name)
        parameter = find(collective, name).parameter
        if parameter is not None and parameter.default is not None:
            usual = parameter.default(size)
            shapes = (c for c in parameter.choices(size) if c != usual and min(c) > 1)
            found += [f"{name}({parameter.show(choice)})" for choice in shapes]
    return found


def race(query: Query, tuning: Tuning, only: Sequence[str] | None = None) -> Race:
    """Every candidate for a call, or `only` some, in the order of preference."""
    row = None if query.hosts else tuning.table.find(query, tuning.machine.cores)
    found = []
    for name in entrants(query.collective, query.size) if only is None else only:
        one = query.algorithm(name)
        if why := obstacle(one, query):
            found.append(Candidate(name, None, None, why))
            continue
        seconds = predicted(one, query, tuning.machine)
        found.append(Candidate(name, seconds, None if row is None else row.seconds.get(name)))

    def order(c: Candidate) -> tuple[bool, bool, bool, float, tuple[int, bool, bool, str]]:
        winner = row is not None and c.name == row.winner
        time = c.measured if c.measured is not None else c.predicted
        # Where several come to the same, as on two ranks: fewer channels, a direct one, the plainer name without a shape.
        one = query.algorithm(c.name)
        channels = 0 if c.obstacle else footprint(one, query.size, query.root).channels
        plainness = (channels, c.name not in DIRECT, one.parameter is not None, c.name)
        return bool(c.obstacle), not winner, c.measured is None, float(f"{time or 0.0:.3g}"), plainness

    return Race(tuple(sorted(found, key=order)), row)


def predicted(one: Algorithm, query: Query, machine: Machine) -> float:
    """Seconds of a call by an algorithm."""
    places = query.hosts, query.domains
    return predict(one, query.size, query.nbytes, machine, query.root, query.kind, *places)


def choose(query: Query, tuning: Tuning, named: str | None = None) -> Algorithm:
    """The algorithm for a call, `named` by the user or the best one.

    Raises InvalidArgumentError for an unknown name, UnsupportedError for one that cannot run and where none can.
    """
    if named is None:
        row = tuning.table.find(query, tuning.machine.cores)
        if row is not None and row.winner in entrants(query.collective, query.size):
            one = find(query.collective, row.winner)
            if not obstacle(one, query):
                return one  # what the race comes to, without its predictions
        best = race(query, tuning).best
        if best.obstacle:
            raise UnsupportedError(
                f"no algorithm of {query.collective} can run this call: {best.name}: {best.obstacle}"
            )
        return query.algorithm(best.name)
    one = query.algorithm(named)
    if why := obstacle(one, query):
        can = ", ".join(c.name for c in race(query, tuning).candidates if not c.obstacle) or "none"
        raise UnsupportedError(f"{query.collective} by {named!r}: {why}; these can: {can}", algorithm=named)
    return one
