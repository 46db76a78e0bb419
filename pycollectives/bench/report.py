"""What a benchmark reports: lines for people, JSON, CSV, and a plot."""

from __future__ import annotations

import csv
import json
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidArgumentError, UnsupportedError
from ..settings import own_cores
from .cases import Options
from .distance import name
from .measure import Row

# Heading, width, and the cell of a row.
_COLUMNS: tuple[tuple[str, int, Callable[[Row], str]], ...] = (
    ("size (B)", 12, lambda r: f"{r.case.nbytes}"),
    ("count", 12, lambda r: f"{r.case.count}"),
    ("dtype", 14, lambda r: r.case.dtype.name if r.case.count else "-"),
    ("op", 5, lambda r: r.case.op or "-"),
    ("algorithm", 26, lambda r: r.algorithm + ("" if r.case.algorithm else " (auto)")),
    ("p50 (us)", 11, lambda r: _number(r.p50)),
    ("p95 (us)", 11, lambda r: _number(r.p95)),
    ("p99 (us)", 11, lambda r: _number(r.p99)),
    ("algbw", 8, lambda r: _number(r.algbw)),
    ("busbw", 8, lambda r: _number(r.busbw)),
    ("skew (us)", 10, lambda r: _number(r.skew)),
    ("cores", 7, lambda r: name(r.flag_ns)),
    ("wrong", 7, lambda r: "-" if r.wrong is None else str(r.wrong)),
)
LEGEND = (
    "time per call of the slowest rank; algbw, busbw in GB/s at p50; skew: slowest minus fastest rank; "
    "cores: near, far or shared; wrong: elements"
)


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.1f}"


def heading() -> str:
    """The first line of the table."""
    return "".join(f"{title:>{width}}" for title, width, _ in _COLUMNS)


def line(row: Row) -> str:
    """One row as text."""
    return "".join(f"{cell(row):>{width}}" for _, width, cell in _COLUMNS)


def machine() -> dict[str, Any]:
    """The machine and the versions, as far as they bear on the figures."""
    cpu = platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((each.split(":", 1)[1].strip() for each in lines if each.startswith("model name")), cpu)
    return {
        "host": platform.node(),
        "cpu": cpu,
        "cores": own_cores(),
        "simd": _core.simd_name(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """The versions of what takes part."""
    from .. import __version__

    return {
        "pycollectives": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ml_dtypes": version("ml_dtypes"),
    }


@dataclass
class Report:
    """All rows of a run on `ranks` ranks."""

    ranks: int
    options: Options
    rows: list[Row] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """The wrong elements of all rows."""
        return sum(row.wrong or 0 for row in self.rows)

    def records(self) -> list[dict[str, Any]]:
        """One flat dictionary per row."""
        return [
            {
                "collective": row.case.collective,
                "algorithm": row.algorithm,
                "chosen_by": "user" if row.case.algorithm else "selector",
                "dtype": row.case.dtype.name,
                "op": row.case.op,
                "size_bytes": row.case.nbytes,
                "count": row.case.count,
                "in_place": self.options.in_place,
                "buffers": "fresh" if self.options.fresh else "warm",
                "symmetric": self.options.symmetric,
                "iterations": row.iterations,
                "p50_us": row.p50,
                "p95_us": row.p95,
                "p99_us": row.p99,
                "min_us": row.least,
                "mean_us": row.mean,
                "algbw_gb_s": row.algbw,
                "busbw_gb_s": row.busbw,
                "busbw_factor": row.busbw_factor,
                "skew_us": row.skew,
                "flag_one_way_ns": row.flag_ns,
                "cores": name(row.flag_ns),
                "errors": row.wrong,
            }
            for row in self.rows
        ]

    def write_json(self, path: Path) -> None:
        """Everything, with the machine, the versions and the options."""
        document = {
            "versions": versions(),
            "machine": machine(),
            "ranks": self.ranks,
            "options": asdict(self.options),
            "command": sys.argv[1:],
            "rows": self.records(),
        }
        path.write_text(json.dumps(document, indent=1) + "\n")

    def write_csv(self, path: Path) -> None:
        """The rows; the first line has the names."""
        records = [{"ranks": self.ranks, **record} for record in self.records()]
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]))
            writer.writeheader()
            writer.writerows(records)

    def series(self) -> dict[str, list[Row]]:
        """The rows by what they have in common but the size."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if not row.case.nbytes:
                continue
            kind = f"{row.case.dtype.name}{' ' + row.case.op if row.case.op else ''}"
            algorithm = row.case.algorithm or "auto"
            found.setdefault(f"{row.case.collective} {algorithm} {kind}", []).append(row)
        return found

    def plot(self, path: Path) -> None:
        """Time and bus bandwidth over size: `.png` by Matplotlib, `.html` by Plotly."""
        check_plot(path)
        title = (
            f"{self.ranks} ranks on {machine()['cpu']}, {'fresh' if self.options.fresh else 'warm'} buffers"
        )
        (_png if path.suffix == ".png" else _html)(self.series(), title, path)


def check_plot(path: Path) -> None:
    """Raises InvalidArgumentError for another suffix, UnsupportedError when the library for it is missing."""
    import importlib.util

    libraries = {".png": "matplotlib", ".html": "plotly"}
    if path.suffix not in libraries:
        raise InvalidArgumentError(f"--plot {path}: the name must end in .png or .html")
    library = libraries[path.suffix]
    if importlib.util.find_spec(library) is None:
        raise UnsupportedError(
            f"--plot {path} needs {library}, which is not installed: pip install 'pycollectives[plot]'"
        )


def _png(series: dict[str, list[Row]], title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    time, bandwidth = figure.subplots(1, 2)
    for label, rows in series.items():
        sizes = [row.case.nbytes for row in rows]
        time.plot(sizes, [row.p50 for row in rows], marker="o", markersize=3, label=label)
        time.fill_between(sizes, [row.least for row in rows], [row.p95 for row in rows], alpha=0.15)
        bandwidth.plot(sizes, [row.busbw for row in rows], marker="o", markersize=3, label=label)
    time.set(xscale="log", yscale="log", xlabel="size (bytes)", ylabel="time per call (us): p50, min to p95")
    bandwidth.set(xscale="log", xlabel="size (bytes)", ylabel="bus bandwidth (GB/s)", ylim=(0, None))
    for axes in (time, bandwidth):
        axes.grid(alpha=0.3)
    time.legend(fontsize="small")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def _html(series: dict[str, list[Row]], title: str, path: Path) -> None:
    from plotly.colors import qualitative
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, subplot_titles=("time per call, p50 (us)", "bus bandwidth (GB/s)"))
    for i, (label, rows) in enumerate(series.items()):
        sizes = [row.case.nbytes for row in rows]
        look = {
            "mode": "lines+markers",
            "name": label,
            "legendgroup": label,
            "line": {"color": qualitative.Plotly[i % len(qualitative.Plotly)]},
        }
        spread = [row.p95 - row.p50 for row in rows], [row.p50 - row.least for row in rows]
        bars = {"array": spread[0], "arrayminus": spread[1], "thickness": 1}
        figure.add_scatter(x=sizes, y=[r.p50 for r in rows], error_y=bars, row=1, col=1, **look)
        figure.add_scatter(x=sizes, y=[r.busbw for r in rows], showlegend=False, row=1, col=2, **look)
    figure.update_xaxes(type="log", title="size (bytes)")
    figure.update_yaxes(type="log", col=1)
    figure.update_layout(title=title)
    figure.write_html(path, include_plotlyjs=True)
