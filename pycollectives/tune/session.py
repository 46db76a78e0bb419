"""A tuning session on the ranks of one communicator: calibrate, then one contest per collective, kind and size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..bench.cases import Case, cases
from ..bench.distance import Distance
from ..dispatch import Query, Row, Series, Table, Tuning, consult, kind_of, race
from .arena import Arena
from .calibration import Calibration, calibrate
from .contest import Verdict, judge, settle, survivors
from .network import calibrate_network

if TYPE_CHECKING:
    from ..communicator import Communicator

_HOPELESS = 10.0  # predicted to take this many times the best: not tried
_BEHIND = 2.5  # measured so in the first heat: not measured further
_BURST = 300e-6  # seconds that one algorithm runs in one round
_CALLS = (3, 32)
_LONG = 3e-3  # seconds of a call, above which one per round is enough
COMPARED = ("mpich", "openmpi")  # policies whose choices are measured too


@dataclass(frozen=True)
class Pace:
    """How long to measure: seconds per contest, and the fewest and most rounds."""

    seconds: float = 0.4
    least: int = 10
    most: int = 30


QUICK = Pace(0.06, 6, 12)


@dataclass(frozen=True)
class Plan:
    """What to measure. Dtypes stand for their kinds of elements; collectives that only move data are measured once."""

    collectives: Sequence[str]
    dtypes: Sequence[np.dtype[Any]]
    sizes: Sequence[int]
    pace: Pace = Pace()

    def cases(self, ranks: int) -> list[list[Case]]:
        """The cases of each series, by size."""
        found = []
        for verb in self.collectives:
            moves = kind_of(verb, "float32") == "bytes"
            kinds = {
                kind_of(verb, dtype.name): dtype for dtype in reversed(self.dtypes)
            }  # the first of a kind
            kinds = {"bytes": np.dtype(np.float32)} if moves else dict(reversed(kinds.items()))
            found += [cases([verb], ["auto"], [dtype], "sum", self.sizes, ranks) for dtype in kinds.values()]
        return found


@dataclass(frozen=True)
class Outcome:
    """One contest. `default`: what is taken without any measurement; `incumbent`: what would have been taken now;
    `theirs`: what the policies of COMPARED would take."""

    collective: str
    kind: str
    row: Row
    default: str
    incumbent: str
    theirs: Mapping[str, str]
    verdict: Verdict


@dataclass
class Result:
    """All that a session has learnt on `ranks` ranks that share `cores` cores (of each host). `made`: the date. `wrong`:
    elements by (collective, algorithm, bytes)."""

    ranks: int
    cores: int
    made: str
    calibration: Calibration
    outcomes: list[Outcome] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    wrong: dict[tuple[str, str, int], int] = field(default_factory=dict)


def run(
    comm: Communicator, plan: Plan, defaults: Tuning, report: Callable[[str], None] = lambda _: None
) -> Result:
    """Collective: measure everything; every rank returns the same. `report` is called before each step.

    Where the ranks are on several hosts only the network's parameters are measured: the others are those of one host.
    """
    made = comm.broadcast_object(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    if comm.settings.hosts:
        report("the network's parameters")
        calibration = calibrate_network(comm, plan.pace.seconds)
        return Result(comm.size, comm.settings.tuning.machine.cores, made, calibration)
    report("the machine's parameters")
    distance = Distance(comm)
    calibration = calibrate(comm, distance, plan.pace.seconds)
    machine = comm.settings.tuning.machine.measured(calibration.parameters)
    known = Tuning(machine, comm.settings.tuning.table)
    result = Result(comm.size, machine.cores, made, calibration)
    for each in plan.cases(comm.size):
        outcomes = []
        for case in each:
            report(f"{case.collective} {case.dtype.name} {case.nbytes} B")
            outcome = contest(comm, case, known, defaults, plan.pace, result.wrong)
            if outcome is not None:
                outcomes.append(outcome)
        if outcomes:
            result.series.append(_series(outcomes, comm.size, machine.cores, made))
            rows = result.series[-1].rows
            result.outcomes += [replace(o, row=row) for o, row in zip(outcomes, rows, strict=True)]
    return result


def contest(
    comm: Communicator,
    case: Case,
    known: Tuning,
    defaults: Tuning,
    pace: Pace,
    wrong: dict[tuple[str, str, int], int],
) -> Outcome | None:
    """Collective: the fastest right algorithm for a case; None where none can run. Adds to `wrong`."""
    kind = kind_of(case.collective, case.dtype.name)
    query = Query(case.collective, case.nbytes, comm.size, kind=kind)
    predicted = race(query, replace(known, table=Table())).candidates
    incumbent, default = race(query, known).best.name, race(query, defaults).best.name
    theirs = {name: advice.name for name in COMPARED if (advice := consult(name, query)) is not None}
    limit = _HOPELESS * (predicted[0].predicted or 0.0)
    hopeful = [
        c.name
        for c in predicted
        if not c.obstacle
        and ((c.predicted or 0.0) <= limit or c.name in (incumbent, default, *theirs.values()))
    ]
    arena = Arena(comm, case, hopeful)
    names = []
    for name in arena.names:
        if bad := arena.wrong(name):
            wrong[case.collective, name, case.nbytes] = bad
        else:
            names.append(name)
    if not names:
        return None
    incumbent = incumbent if incumbent in names else names[0]

    first = arena.heat(names, 3, _CALLS[0]).times[:, 1:]  # the first round warms up
    seconds = {name: float(np.median(times)) for name, times in zip(names, first, strict=True)}
    protected = [names.index(name) for name in (incumbent, default) if name in names]
    names = [names[i] for i in survivors(first, protected, _BEHIND)]
    once = sum(seconds[name] for name in names)
    calls = int(np.clip(_BURST * len(names) / once, *_CALLS)) if once < _LONG * len(names) else 1
    rounds = int(np.clip(pace.seconds / (once * calls * 1.5), pace.least, pace.most))
    times = arena.heat(names, rounds, calls).quiet()
    seconds |= {name: float(np.median(each)) for name, each in zip(names, times, strict=True)}
    verdict = judge(times, names.index(incumbent))
    row = Row(case.nbytes, names[verdict.winner], MappingProxyType(seconds))
    return Outcome(case.collective, kind, row, default, incumbent, theirs, verdict)


def _series(outcomes: Sequence[Outcome], ranks: int, cores: int, made: str) -> Series:
    rows = [o.row for o in outcomes]
    times: list[Mapping[str, float]] = [row.seconds for row in rows]
    winners = settle([row.winner for row in rows], times)
    settled = (replace(row, winner=winner) for row, winner in zip(rows, winners, strict=True))
    return Series(outcomes[0].collective, outcomes[0].kind, ranks, cores, tuple(settled), made)
