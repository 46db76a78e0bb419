"""Why a call is run as it is: every candidate, its times, and why it lost."""

from __future__ import annotations

from dataclasses import dataclass

from .query import Query
from .selector import Candidate, Race, Tuning, choose, race
from .table import distance


@dataclass(frozen=True)
class Explanation:
    """Every candidate for one call; `str()` draws the table. `notes`: what else bears on the call, a line each."""

    collective: str
    nbytes: int
    size: int
    chosen: str
    reason: str
    candidates: tuple[Candidate, ...]
    why: tuple[str, ...]  # of each candidate
    origin: str  # of the parameters and the table
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A table: `->` marks the choice; times in microseconds."""
        lines = [
            f"{self.collective} of {self.nbytes} bytes on {self.size} ranks: {self.chosen} ({self.reason})"
        ]
        width = max(len(c.name) for c in self.candidates)
        lines.append(f"     {'':<{width}}   predicted    measured")
        for c, why in zip(self.candidates, self.why, strict=True):
            times = f"{_time(c.predicted):>12}{_time(c.measured):>12}"
            mark = "->" if c.name == self.chosen else "  "
            lines.append(f"  {mark} {c.name:<{width}}{times}  {why}".rstrip())
        lines += [f"  {note}" for note in self.notes]
        lines.append(f"  times: {self.origin}")
        return "\n".join(lines)


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.1f} us"


def explain(query: Query, tuning: Tuning, *, named: str | None, reason: str) -> Explanation:
    """Why `choose` chooses what it chooses for a call; raises what it raises. `reason`: where `named` is from."""
    found = race(query, tuning)
    chosen = choose(query, tuning, named)
    if named is None:
        reason = _reason(query, found)
    if chosen.name not in [c.name for c in found.candidates]:  # a shape that only the user asks for
        own = race(query, tuning, (chosen.name,)).candidates
        found = Race(own + found.candidates, found.row)
    return Explanation(
        query.collective,
        query.nbytes,
        query.size,
        chosen.name,
        reason,
        found.candidates,
        tuple(_why(c, chosen.name, found, named is not None) for c in found.candidates),
        tuning.origin,
    )


def _reason(query: Query, found: Race) -> str:
    best, row = found.best, found.row
    if row is None or best.measured is None:
        return "predicted to be the fastest"
    near = "" if distance(row.nbytes, query.nbytes) < 0.01 else f", at {row.nbytes} bytes"
    if best.name == row.winner:
        return f"measured to be the fastest{near}"
    return f"the fastest measured one that can run this call{near}; {row.winner} cannot"


def _why(c: Candidate, chosen: str, found: Race, asked: bool) -> str:
    if c.obstacle or c.name == chosen:
        return c.obstacle
    best = next(each for each in found.candidates if each.name == chosen)
    if c.measured is not None and best.measured is not None:
        ratio, what = c.measured / best.measured, "measured"
        if ratio < 1 and not asked:
            return f"measured {ratio:.2f} x the time, by too little or too seldom to displace it"
    elif best.measured is not None:
        return "not measured: its prediction was too far off"
    elif c.predicted and best.predicted:
        ratio, what = c.predicted / best.predicted, "predicted"
    else:
        return ""
    return f"{what} {ratio:.2f} x the time"
