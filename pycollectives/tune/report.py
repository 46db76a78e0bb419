"""What a tuning session has learnt, as tables for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.table import Table

from ..cost import Machine
from .calibration import SHARED
from .session import COMPARED, Outcome, Result

_BYTES = (
    "beta",
    "beta_memory",
    "beta_symmetric",
    "gamma",
    "gamma_integer",
    "gamma_half",
    "gamma_quarter",
    "network_beta",
)
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
    "network_alpha": "one round of messages between hosts",
    "network_message": "one message there, sent or received",
    "network_beta": "what leaves or enters a host",
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
        return f"{rate:.3g} GB/s" if rate < 1000 else "no time"
    return f"{seconds * 1e6:.2f} us"


def winners(result: Result) -> Table:
    """Runs of sizes with one winner: its times, and how much longer the default and other libraries' choices take."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    left = "collective", "elements"
    for title in (*left, "from", "to", "winner", "time (us)", "default", *COMPARED):
        table.add_column(title, justify="left" if title in (*left, "winner") else "right", no_wrap=True)
    last = ""
    for run in runs(result.outcomes):
        first, final = run[0], run[-1]
        times = [f"{o.row.seconds[o.row.winner] * 1e6:.1f}" for o in (first, final)]
        table.add_row(
            first.collective if first.collective != last else "",
            first.kind,
            size(first.row.nbytes),
            size(final.row.nbytes),
            first.row.winner,
            times[0] if len(run) == 1 else " - ".join(times),
            _gain(run, [o.default for o in run]),
            *(_gain(run, [o.theirs.get(name) for o in run]) for name in COMPARED),
        )
        last = first.collective
    return table


LEGEND = (
    "from, to: sizes in bytes with this winner; default: how much longer what is taken without measurements takes, "
    "the geometric mean of the sizes; mpich, openmpi: the same for what they would take, by the algorithms here"
)


def runs(outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    """Consecutive sizes of one collective and kind with the same winner."""
    for _, group in groupby(outcomes, lambda o: (o.collective, o.kind, o.row.winner)):
        yield list(group)


def _gain(run: Sequence[Outcome], names: Sequence[str | None]) -> str:
    """The geometric mean of the time of these algorithms, one per size, over the winner's."""
    if all(name == o.row.winner for o, name in zip(run, names, strict=True)):
        return "same"
    times = [o.row.seconds.get(name or "") for o, name in zip(run, names, strict=True)]
    known = [
        math.log(time / o.row.seconds[o.row.winner])
        for o, time in zip(run, times, strict=True)
        if time is not None
    ]
    return f"{math.exp(sum(known) / len(known)):.2f} x" if known else "-"


def size(nbytes: int) -> str:
    """Bytes as people write them: 64K."""
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit}{name}"
    return str(nbytes)
