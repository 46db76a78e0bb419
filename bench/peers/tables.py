"""The tables for people."""

from __future__ import annotations

from collections import Counter

from rich.table import Table

from pycollectives.bench.distance import name as distance_name

from .catalogue import MEMCPY, OURS
from .goals import Verdict
from .results import Measured, Results, geometric_mean, size

_CAPTION = (
    "µs per call, median over the rounds; ratio: over the fastest peer (bold), median over the rounds and quartiles; "
    "cores: rounds, and the most of a core that other programs used in one"
)


def tables(results: Results) -> list[Table]:
    """One per number of ranks, collective, dtype, algorithm and mode."""
    found = []
    for group, cases in results.groups().items():
        for mode in dict.fromkeys(mode for case in cases for mode in case.times):
            found.append(_table(f"{group}, {mode} buffers", cases, mode))
    return found


def goals_table(verdicts: list[Verdict]) -> Table:
    """What was wanted, what was found."""
    table = Table(title="goals", title_justify="left")
    for heading in ("goal", "buffers", "limit", "found", "at", ""):
        table.add_column(heading, justify="right" if heading in ("limit", "found", "at") else "left")
    for each in verdicts:
        word = "[green]met[/green]" if each.met else "[red]missed[/red]"
        table.add_row(each.goal, each.mode, f"{each.limit:.2f}", f"{each.found:.2f}", each.where, word)
    return table


def _table(title: str, cases: list[Measured], mode: str) -> Table:
    peers = list(dict.fromkeys(peer for case in cases for peer in case.peers(mode)))
    ours = [c for c in OURS.columns if any(case.median(mode, c) is not None for case in cases)]
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.caption = _CAPTION
    table.add_column("bytes", justify="right")
    for column in (*ours, MEMCPY, *peers):
        table.add_column(column, justify="right")
    for column in ours:
        table.add_column(f"ratio {column}", justify="right")
    table.add_column("cores")
    for case in cases:
        best = case.fastest_peer(mode)
        cells = [_time(case.median(mode, column)) for column in (*ours, MEMCPY)]
        for peer in peers:
            text = _time(case.median(mode, peer))
            cells.append(f"[bold]{text}[/bold]" if peer == best else text)
        for column in ours:
            ratio = case.ratio(mode, column)
            cells.append("-" if ratio is None else str(ratio))
        table.add_row(size(case.nbytes), *cells, cores(case))
    means = []
    for column in ours:
        ratios = [case.ratio(mode, column) for case in cases]
        mean = geometric_mean([each.median for each in ratios if each is not None])
        means.append("-" if mean is None else f"{mean:.2f}")
    table.add_section()
    table.add_row("geometric mean", *[""] * (len(ours) + 1 + len(peers)), *means, "")
    return table


def cores(case: Measured) -> str:
    """`near 7, far 2`: rounds; `+8 %`: of a core, the most that other programs used in a round."""
    names = Counter(distance_name(ns) for ns in case.flag_ns)
    text = ", ".join(f"{name} {n}" for name, n in names.most_common())
    return f"{text}; +{max(case.others):.0%}" if case.others else text


def _time(us: float | None) -> str:
    if us is None:
        return "-"
    return f"{us:.2f}" if us < 100 else f"{us:.0f}"
