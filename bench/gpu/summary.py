"""What `make gpu-check` found, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Rows = list[dict[str, Any]]


def size_text(nbytes: int) -> str:
    """64 KiB"""
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):.4g} {unit}"
    return f"{nbytes} B"


def goals(rows: Rows) -> Iterator[tuple[str, str, str]]:
    """The goals, what was measured, and whether that is enough."""
    good = [row for row in rows if not row["error"]]

    def share(goal: str, what: str, least: float, ranks: int | None = None) -> tuple[str, str, str]:
        found = [row["share"] for row in good if row["what"] == what and ranks in (None, row["ranks"])]
        if not found:
            return goal, "not measured", "?"
        return goal, f"{min(found):.0%} to {max(found):.0%}", "yes" if min(found) >= least else "no"

    def below(goal: str, what: str, most: float) -> tuple[str, str, str]:
        found = [row["microseconds"] for row in good if row["what"] == what]
        if not found:
            return goal, "not measured", "?"
        return goal, f"{min(found):.2f} to {max(found):.2f} us", "yes" if max(found) <= most else "no"

    yield share("copy kernel at 90 % of the measured copy", "copy kernel", 0.9)
    yield share("n-ary reduction at 90 % of it", "n-ary reduction kernel", 0.9)
    yield share("two-shot of 8 ranks at 85 % of the traffic bound", "native two-shot", 0.85, 8)
    # A call that is waited for: in a row of calls launches overlap with kernels.
    yield below("8 bytes under 8 us with the launch", "8 bytes, native one-shot, call and wait", 8)
    yield below("8 bytes under 4 us in a graph", "8 bytes, native one-shot, in a graph", 4)
    yield _rings(good)


def _rings(good: Rows) -> tuple[str, str, str]:
    """Vectors of the same size on the same ranks are compared."""
    goal = "interpreted ring within 5 % of the hand-written one"
    times = {(row["what"], row["ranks"], row["nbytes"]): row["microseconds"] for row in good}
    ratios = [
        time / times[("hand-written ring", *rest)]
        for (what, *rest), time in times.items()
        if what == "interpreted ring" and ("hand-written ring", *rest) in times
    ]
    if not ratios:
        return goal, "not measured", "?"
    return goal, f"{min(ratios):.2f} to {max(ratios):.2f} of its time", "yes" if max(ratios) <= 1.05 else "no"


def markdown(found: dict[str, Any]) -> str:
    """The whole report."""
    lines = [f"# GPU check: {found['device']}", "", f"{found['when']}, commit {found['commit']}", ""]
    if found["emulated"]:
        lines += ["On the emulated device: times say nothing.", ""]
    lines += ["| step | result | seconds | |", "|---|---|---|---|"]
    for step in found["steps"]:
        lines.append(f"| {step['name']} | {step['result']} | {step['seconds']:.0f} | {step['note']} |")
    tests = [test for step in found["steps"] for test in step.get("tests", ())]
    if bad := [test for test in tests if test["result"] == "failed"]:
        lines += ["", "## Tests that failed", ""]
        lines += [f"* {test['test']}: {test['text']}" for test in bad]
    measured = found.get("measured")
    if not measured:
        return "\n".join(lines) + "\n"
    rows: Rows = measured["rows"]
    lines += [
        "",
        f"Copy bandwidth (read and written): {measured['copy_bytes_per_second'] / 1e12:.3g} TB/s",
        "",
    ]
    lines += _table(("goal", "measured", "reached"), goals(rows))
    bounded = [row for row in rows if row["traffic"]]
    lines += ["", "## Kernels against the copy bandwidth", ""]
    lines += _rows(bounded, lambda row: f"{row['share']:.0%}", "of the copy bandwidth")
    lines += ["", "## Collectives and latencies", ""]
    rest = sorted(
        (row for row in rows if not row["traffic"]),
        key=lambda row: (row["nbytes"], row["ranks"], row["verb"], row["microseconds"]),
    )
    lines += _rows(rest, lambda row: f"{row['nbytes'] / max(row['microseconds'], 1e-9) / 1e3:.3g}", "GB/s")
    if wrong := [row for row in rows if row["error"]]:
        lines += ["", "## Failures", ""]
        lines += [
            f"* {row['what']}, {row['ranks']} ranks, {size_text(row['nbytes'])}: {row['error']}"
            for row in wrong
        ]
    lines += [""] + [f"Not compared: {name} ({why})" for name, why in measured["not_compared"].items()]
    if measured["left_out"] is None:
        lines += ["Not all rows were begun."]
    elif measured["left_out"]:
        lines += [f"The time was not enough for {measured['left_out']} rows."]
    return "\n".join(lines) + "\n"


def _rows(rows: Rows, last: Callable[[dict[str, Any]], str], heading: str) -> list[str]:
    cells = (
        (row["what"], row["ranks"], size_text(row["nbytes"]), f"{row['microseconds']:.2f}", last(row))
        for row in rows
        if not row["error"]
    )
    return _table(("what", "ranks", "vector", "us", heading), cells)


def _table(heads: tuple[str, ...], rows: Any) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
