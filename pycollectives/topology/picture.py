"""The hosts of a job as text and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .hosts import Placed, ranges

_GIB = 1 << 30


def text(hosts: Sequence[Placed]) -> str:
    """A paragraph for every host, and what lies between them."""
    lines = []
    for number, placed in enumerate(hosts):
        host = placed.host
        lines.append(
            f"host {number}: {host.name}, rank{'s' * (len(placed.ranks) > 1)} {ranges(placed.ranks)}"
        )
        lines.append(f"  {host.cpu}, {len(host.cores)} cores, {host.memory / _GIB:.1f} GiB")
        if len(host.nodes) > 1:
            lines += [f"  node {i}: cores {ranges(cores)}" for i, cores in enumerate(host.nodes)]
        lines += [f"  {each}" for each in host.interfaces] or ["  no network interface"]
    if len(hosts) > 1:
        shared = ", ".join(networks(hosts)) or "none that all hosts have an address in"
        lines.append(f"networks of all hosts: {shared}")
    return "\n".join(lines)


def networks(hosts: Sequence[Placed]) -> list[str]:
    """The networks in which every host has an address."""
    each = [{str(interface.network) for interface in placed.host.interfaces} for placed in hosts]
    return sorted(set.intersection(*each)) if each else []


def draw(hosts: Sequence[Placed], path: Path) -> None:
    """A figure: hosts as boxes with their nodes, cores and ranks. `.png` by Matplotlib, `.html` by Plotly."""
    (_png if path.suffix == ".png" else _html)(_boxes(hosts), path)


def _boxes(hosts: Sequence[Placed]) -> list[tuple[float, float, float, float, str, int]]:
    """Boxes as (x, y, width, height, label, depth): the hosts, their NUMA nodes, their ranks; below them the network."""
    found: list[tuple[float, float, float, float, str, int]] = []
    x = 0.0
    for number, placed in enumerate(hosts):
        width = max(2.0, 1.0 * len(placed.ranks), 1.4 * len(placed.host.nodes))
        found.append((x, 0.0, width, 2.6, f"host {number}: {placed.host.name}", 0))
        share = width / len(placed.host.nodes)
        for i, cores in enumerate(placed.host.nodes):
            found.append((x + i * share + 0.1, 0.15, share - 0.2, 0.7, f"cores {ranges(cores)}", 1))
        each = width / len(placed.ranks)
        for i, rank in enumerate(placed.ranks):
            found.append((x + i * each + 0.1, 1.1, each - 0.2, 0.8, str(rank), 2))
        for interface in placed.host.interfaces[:1]:
            found.append((x + 0.1, -0.75, width - 0.2, 0.5, str(interface), 3))
        x += width + 0.5
    if len(hosts) > 1:
        found.append((0.0, -1.5, x - 0.5, 0.5, ", ".join(networks(hosts)) or "network", 4))
    return found


_COLOURS = ("#f2f2f2", "#cfe3f5", "#ffd9a8", "#d9ead3", "#e6e6e6")


def _png(boxes: Sequence[tuple[float, float, float, float, str, int]], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    right = max(x + width for x, _, width, *_ in boxes)
    figure = Figure(figsize=(max(5.0, 1.2 * right), 4.5), layout="constrained")
    axes = figure.subplots()
    for x, y, width, height, label, depth in boxes:
        axes.add_patch(Rectangle((x, y), width, height, facecolor=_COLOURS[depth], edgecolor="#666666"))
        high = y + (height - 0.25 if depth == 0 else height / 2)
        axes.text(x + width / 2, high, label, ha="center", va="center", fontsize=8 if depth != 2 else 11)
    axes.set(xlim=(-0.2, right + 0.2), ylim=(-1.7, 2.8))
    axes.set_axis_off()
    figure.savefig(path, dpi=120)


def _html(boxes: Sequence[tuple[float, float, float, float, str, int]], path: Path) -> None:
    import plotly.graph_objects as go

    figure: Any = go.Figure()
    for x, y, width, height, label, depth in boxes:
        look = {"fillcolor": _COLOURS[depth], "line": {"color": "#666666"}, "layer": "below"}
        figure.add_shape(type="rect", x0=x, y0=y, x1=x + width, y1=y + height, **look)
        high = y + (height - 0.25 if depth == 0 else height / 2)
        figure.add_annotation(x=x + width / 2, y=high, text=label, showarrow=False)
    right = max(x + width for x, _, width, *_ in boxes)
    figure.update_xaxes(visible=False, range=[-0.2, right + 0.2])
    figure.update_yaxes(visible=False, range=[-1.7, 2.8])
    figure.update_layout(plot_bgcolor="white")
    figure.write_html(path, include_plotlyjs=True)
