"""The chart of the ratios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .results import Measured, Results, size

_COLOURS = {
    "all_reduce": "#0072b2",
    "reduce_scatter": "#d55e00",
    "all_gather": "#009e73",
    "broadcast": "#cc79a7",
    "all_to_all": "#e69f00",
}
_DASHES = {"array": "-", "empty": (0, (4, 2)), "plan": (0, (1, 1.5))}
TITLE = "Time of pycollectives / time of the fastest other library (below 1: faster)"


def draw(results: Results, paths: list[Path]) -> None:
    """Ratios over the size: a row per mode, a column per number of ranks; `.png` or `.svg`, by Matplotlib."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    groups = {
        group: cases
        for group, cases in results.groups().items()
        if group.collective in _COLOURS
        and group.dtype == "float32"
        and not group.algorithm
        and not group.in_place
    }
    ranks = sorted({group.ranks for group in groups})
    modes = list(dict.fromkeys(mode for cases in groups.values() for case in cases for mode in case.times))
    if not groups:
        raise ValueError("nothing in float32 was measured")
    figure = Figure(figsize=(4 * len(ranks), 3.1 * len(modes) + 0.8), layout="constrained")
    grid = figure.subplots(len(modes), len(ranks), squeeze=False, sharex=True, sharey=True)
    for row, mode in enumerate(modes):
        for column, n in enumerate(ranks):
            axes = grid[row][column]
            _axes(axes, f"{n} ranks, {mode} buffers")
            for group, cases in groups.items():
                if group.ranks == n:
                    shown = ("array", "empty") if group.collective == "all_reduce" else ("array",)
                    for kind in shown:
                        _line(axes, cases, mode, kind, group.collective)
            if row == len(modes) - 1:
                axes.set_xlabel("size of the vector")
    lines: dict[str, Any] = {}
    for axes in grid.flat:
        for line in axes.get_lines():
            if not str(line.get_label()).startswith("_"):
                lines.setdefault(str(line.get_label()), line)
    figure.legend(
        lines.values(), lines.keys(), loc="outside lower center", ncols=6, frameon=False, fontsize=9
    )
    figure.suptitle(
        f"{TITLE}\n{results.machine.get('cpu', '')}, {results.machine.get('cores', '?')} cores", fontsize=11
    )
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "peers"}):
        for path in paths:
            figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)


def _axes(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set(xscale="log", yscale="log")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks([8, 1 << 10, 32 << 10, 1 << 20, 32 << 20], minor=False)
    axes.set_xticklabels([size(n) for n in (8, 1 << 10, 32 << 10, 1 << 20, 32 << 20)], fontsize=8)
    axes.set_yticks([0.1, 0.2, 0.5, 1, 2, 5], labels=["0.1", "0.2", "0.5", "1", "2", "5"])
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _line(axes: Any, cases: list[Measured], mode: str, column: str, collective: str) -> None:
    """The median with its quartiles as a band."""
    points = [(case.nbytes, ratio) for case in cases if (ratio := case.ratio(mode, column)) is not None]
    if not points:
        return
    label = f"{collective}, comm.empty" if column == "empty" else collective
    xs = [nbytes for nbytes, _ in points]
    look = {"color": _COLOURS[collective], "linestyle": _DASHES[column]}
    axes.plot(
        xs, [r.median for _, r in points], label=label, linewidth=1.6, marker="o", markersize=2.5, **look
    )
    axes.fill_between(
        xs,
        [r.low for _, r in points],
        [r.high for _, r in points],
        color=_COLOURS[collective],
        alpha=0.12,
        linewidth=0,
    )
