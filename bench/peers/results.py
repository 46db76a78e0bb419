"""What was measured, as it is written to JSON, and the statistics over it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .catalogue import MEMCPY, OURS

Rounds = list[float | None]  # microseconds per call, one figure per round; None: not measured
NOT_PEERS = (*OURS.columns, MEMCPY)


@dataclass
class Measured:
    """One case: a collective on some ranks with one size and dtype."""

    ranks: int
    collective: str
    dtype: str
    nbytes: int
    in_place: bool
    algorithm: str = ""  # "": each library's own choice
    times: dict[str, dict[str, Rounds]] = field(default_factory=dict)  # mode -> column -> rounds
    flag_ns: Rounds = field(default_factory=list)
    others: list[float] = field(
        default_factory=list
    )  # processors that other programs used, one figure per round
    lines: dict[str, str] = field(default_factory=dict)  # column -> the call
    left_out: dict[str, str] = field(default_factory=dict)  # column -> why

    def remove_round(self, index: int) -> None:
        """Forget one."""
        del self.flag_ns[index], self.others[index]
        for columns in self.times.values():
            for rounds in columns.values():
                del rounds[index]

    def keep_calm_rounds(self, limit: float, enough: int) -> None:
        """Forget the rounds in which other programs used more than `limit` of a core, if `enough` others are there."""
        calm = [others <= limit for others in self.others]
        if sum(calm) >= enough:
            for index in reversed([i for i, each in enumerate(calm) if not each]):
                self.remove_round(index)

    def median(self, mode: str, column: str) -> float | None:
        """Microseconds."""
        rounds = [t for t in self.times.get(mode, {}).get(column, []) if t is not None]
        return statistics.median(rounds) if rounds else None

    def peers(self, mode: str) -> list[str]:
        """The columns that are not pycollectives', as far as they were measured."""
        columns = self.times.get(mode, {})
        return [c for c in columns if c not in NOT_PEERS and self.median(mode, c) is not None]

    def fastest_peer(self, mode: str) -> str | None:
        """The peer with the least median."""
        return min(self.peers(mode), key=lambda c: self.median(mode, c) or math.inf, default=None)

    def ratio(self, mode: str, column: str, other: str | None = None) -> Ratio | None:
        """`column` over `other`, by default the fastest peer."""
        other = other or self.fastest_peer(mode)
        if other is None:
            return None
        columns = self.times.get(mode, {})
        return ratio(columns.get(column, []), columns.get(other, []))


class Group(NamedTuple):
    """What the cases of a table have in common."""

    collective: str
    algorithm: str
    ranks: int
    dtype: str
    in_place: bool

    def __str__(self) -> str:
        name = f"{self.collective} by {self.algorithm}" if self.algorithm else self.collective
        kind = (
            "" if self.collective == "barrier" else f", {self.dtype}{', in place' if self.in_place else ''}"
        )
        return f"{name}, {self.ranks} ranks{kind}"


@dataclass(frozen=True)
class Ratio:
    """The median over the rounds, and the quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def ratio(ours: Sequence[float | None], theirs: Sequence[float | None]) -> Ratio | None:
    """Round by round, so that what slows a whole round down does not count."""
    found = [a / b for a, b in zip(ours, theirs, strict=False) if a is not None and b]
    if not found:
        return None
    if len(found) == 1:
        return Ratio(found[0], found[0], found[0])
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return Ratio(middle, low, high)


def geometric_mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(statistics.fmean(logs)) if logs else None


@dataclass
class Results:
    """A run, or several put together."""

    cases: list[Measured] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)  # PYCOLLECTIVES_* of the environment
    complete: bool = True  # not ended early
    commands: list[list[str]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """As JSON."""
        document = asdict(self)
        for case in document["cases"]:
            for columns in case["times"].values():
                for column, rounds in columns.items():
                    columns[column] = [_short(t) for t in rounds]
            for name in ("flag_ns", "others"):
                case[name] = [_short(t) for t in case[name]]
        text = json.dumps(document, indent=1)
        path.write_text(text + "\n")

    @staticmethod
    def read(paths: Sequence[Path]) -> Results:
        """Pieces put together; of a case that several have, the last one counts."""
        whole = Results()
        cases: dict[tuple[Any, ...], Measured] = {}
        for path in paths:
            document = json.loads(path.read_text())
            for each in document.pop("cases"):
                case = Measured(**each)
                key = case.ranks, case.collective, case.dtype, case.nbytes, case.in_place, case.algorithm
                cases[key] = case
            whole.failures += document["failures"]
            whole.versions |= document["versions"]
            whole.settings |= document["settings"]
            whole.complete &= document["complete"]
            whole.machine = document["machine"]
            whole.commands += document["commands"]
        whole.cases = list(cases.values())
        return whole

    def groups(self) -> dict[Group, list[Measured]]:
        """The cases that differ only by their size, by size."""
        found: dict[Group, list[Measured]] = {}
        for case in sorted(self.cases, key=lambda c: c.nbytes):
            group = Group(case.collective, case.algorithm, case.ranks, case.dtype, case.in_place)
            found.setdefault(group, []).append(case)
        return dict(sorted(found.items()))


def size(nbytes: int) -> str:
    """`64 KiB`."""
    for unit, bytes_ in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= bytes_ and nbytes % bytes_ == 0:
            return f"{nbytes // bytes_} {unit}"
    return f"{nbytes} B"


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
