"""What a tuning session has learnt, as tables for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.table import Table

from ..cost import Machine
from .calibration import SHARED
from .session import Outcome, Result

_BYTES = ("beta", "beta_memory", "beta_symmetric", "gamma", "gamma_integer", "gamma_half", "gamma_quarter")
_WHAT = {
    "call": "one call, each rank on a core",
    "alpha": "one round of messages",
    "message": "one more message received",
    "enter": "one call, ranks taking turns on a core",
    "turn": "one round, ranks taking turns",
    "beta": "moving, in the caches",
    "beta_memory": "moving, beyond the caches",
    "beta_symmetric": "moving, read in place",
    "gamma": "reducing float32",
    "gamma_integer": "reducing int32",
    "gamma_half": "reducing bfloat16",
    "gamma_quarter": "reducing float8",
}


def parameters(result: Result, before: Machine) -> Table:
    """The machine's parameters, beside those that held before."""
    table = Table("parameter", "", "measured", "before", box=None, padding=(0, 2, 0, 0))
    for name, what in _WHAT.items():
        if (value := result.calibration.parameters.get(name)) is not None:
            table.add_row(name, what, _shown(name, value), _shown(name, getattr(before, name)), style="")
    if flags := result.calibration.flag_ns:
        seen = f"{flags[0]:.0f}" + (f" to {flags[-1]:.0f}" if len(flags) > 1 else "")
        table.add_row("flag", "one way between ranks 0 and 1", f"{seen} ns", "")
    return table


def remark(result: Result) -> str:
    """What to think of the figures; empty if nothing stood out."""
    flags = result.calibration.flag_ns
    if not flags or flags[-1] < SHARED or result.ranks > result.cores:
        return ""
    if flags[0] < SHARED:
        return (
            "at times ranks 0 and 1 shared a core: something else runs here; repeat this on a quiet machine"
        )
    return "ranks 0 and 1 shared a core all the time: times of messages and bytes are not kept; repeat this on a quiet machine"


def _shown(name: str, seconds: float) -> str:
    if name in _BYTES:
        rate = 1e-9 / seconds
        return f"{rate:.1f} GB/s" if rate < 1000 else "no time"
    return f"{seconds * 1e6:.2f} us"


def winners(result: Result) -> Table:
    """Runs of sizes with one winner: its times, and how much longer the default would take."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("collective", "elements", "from", "to", "winner", "time", "default", "gain"):
        table.add_column(title, justify="right" if title in ("from", "to", "gain") else "left", no_wrap=True)
    last = ""
    for run in runs(result.outcomes):
        first, final = run[0], run[-1]
        title = first.collective if first.collective != last else ""
        last = first.collective
        times = [o.row.seconds[o.row.winner] for o in (first, final)]
        table.add_row(
            title,
            first.kind,
            size(first.row.nbytes),
            size(final.row.nbytes),
            first.row.winner,
            " - ".join(f"{t * 1e6:.1f}" for t in (times if len(run) > 1 else times[:1])) + " us",
            ", ".join(dict.fromkeys(o.default for o in run if o.default != o.row.winner)) or "the same",
            f"{gain(run):.2f} x",
        )
    return table


def runs(outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    """Consecutive sizes of one collective and kind with the same winner."""
    for _, group in groupby(outcomes, lambda o: (o.collective, o.kind, o.row.winner)):
        yield list(group)


def gain(run: Sequence[Outcome]) -> float:
    """The geometric mean of the default's time over the winner's."""
    ratios = [o.row.seconds.get(o.default, math.nan) / o.row.seconds[o.row.winner] for o in run]
    known = [math.log(ratio) for ratio in ratios if ratio == ratio]
    return math.exp(sum(known) / len(known)) if known else math.nan


def size(nbytes: int) -> str:
    """Bytes as people write them: 64K."""
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit}{name}"
    return str(nbytes)
