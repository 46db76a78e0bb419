"""Why a call is run as it is: every candidate, its times, and why it lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..cost import footprint
from ..cost.model import WIDENING
from ..cost.partial import EXACT_UP_TO, partial_bytes
from ..schedule import COLLECTIVES
from .policies import POLICIES, consult
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
    measured_at: int | None = None  # bytes of the measurements that were used
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A table: `->` marks the choice; times in microseconds."""
        ranks = "1 rank" if self.size == 1 else f"{self.size} ranks"
        lines = [f"{self.collective} of {self.nbytes} bytes on {ranks}: {self.chosen} ({self.reason})"]
        width = max(len(c.name) for c in self.candidates)
        lines.append(f"     {'':<{width}}   predicted    measured")
        for c, why in zip(self.candidates, self.why, strict=True):
            times = f"{_time(c.predicted):>12}{_time(c.measured):>12}"
            mark = "->" if c.name == self.chosen else "  "
            lines.append(f"  {mark} {c.name:<{width}}{times}  {why}".rstrip())
        lines += [f"  {note}" for note in self.notes]
        lines.append(f"  times: {self.origin}")
        return "\n".join(lines)

    def with_notes(self, notes: Sequence[str]) -> Explanation:
        """With these notes added."""
        return replace(self, notes=(*self.notes, *notes))


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
        None if found.row is None else found.row.nbytes,
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


def notes(query: Query, tuning: Tuning, found: Explanation, policy: str | None) -> Iterator[str]:
    """What else bears on a call: bytes of partial sums, the price of determinism, what other libraries would take.

    `policy`: the name of one, "all", or None for none. Raises InvalidArgumentError for an unknown one.
    """
    if query.domains:
        yield f"ranks by the part of the host that they are bound to: {','.join(map(str, query.domains))}"
    if found.measured_at is None and query.size > 1 and not query.hosts:
        yield f"not measured near this size: `pycollectives tune -n {query.size}` does"
    extra = WIDENING[query.kind] - 1
    if extra and query.size > 1:
        one = query.algorithm(found.chosen)
        received = float(footprint(one, query.size, query.root).received) * query.nbytes
        more = extra * float(partial_bytes(one, query.size, query.root)) * query.nbytes
        bound = " at most" if query.size > EXACT_UP_TO else ""
        if more:
            yield f"partial sums travel as float32: {more:.0f} bytes more than {received:.0f} per rank{bound}"
        else:
            yield "no partial sums travel: messages hold inputs and results"
    verb = COLLECTIVES[query.collective]
    if verb.reduces and not verb.repeats and 1 < query.size <= EXACT_UP_TO:
        yield _price_of_determinism(query, tuning, found)
    for name in POLICIES if policy == "all" else () if policy is None else (policy,):
        yield _policy(name, query, tuning, found)


def _price_of_determinism(query: Query, tuning: Tuning, found: Explanation) -> str:
    strict = race(replace(query, needs=replace(query.needs, left_fold=True)), tuning).best
    if strict.obstacle:
        return "deterministic=True: no algorithm can"
    free = race(replace(query, needs=replace(query.needs, left_fold=False)), tuning).best
    ratio = _ratio(strict, free)
    if query.needs.left_fold:
        return f"deterministic=True: {ratio} of {free.name}, the choice without it"
    if strict.name == found.chosen:
        return "deterministic=True would take the same"
    return f"deterministic=True would take {strict.name}, {ratio} of {free.name}"


def _policy(name: str, query: Query, tuning: Tuning, found: Explanation) -> str:
    advice = consult(name, query)
    if advice is None:
        return f"{name} has no rule for it"
    text = f"{name} would take {advice.theirs}"
    if advice.name == found.chosen:
        return f"{text}: the same"
    theirs, ours = race(query, tuning, (advice.name, found.chosen)).candidates
    if theirs.name != advice.name:
        theirs, ours = ours, theirs
    return f"{text}, here {advice.name}: {theirs.obstacle or _ratio(theirs, ours)}"


def _ratio(one: Candidate, other: Candidate) -> str:
    """How long one takes of the time of the other."""
    if one.measured is not None and other.measured is not None:
        return f"measured {one.measured / other.measured:.2f} x the time"
    if one.predicted and other.predicted:
        return f"predicted {one.predicted / other.predicted:.2f} x the time"
    return "as long"
