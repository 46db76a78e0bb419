"""Timing a line of Python. Stamps are of the host's monotonic clock, which all processes share.

The line is compiled into the loop, as `timeit` does it, so a call costs what it costs in a user's loop.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

_SOURCE = """
def once():
    {line}

def warm(laps, calls, now=now):
    stamps = [now()]
    for _ in range(laps):
        for _ in range(calls):
            {line}
        stamps.append(now())
    return stamps

def fresh(calls, refill, line_up, now=now):
    begins, ends = [], []
    for _ in range(calls):
        refill()
        line_up()
        begin = now()
        {line}
        ends.append(now())
        begins.append(begin)
    return begins, ends
"""


class Timed:
    """The functions `once`, `warm` and `fresh` of a line and the names in it."""

    def __init__(self, line: str, names: dict[str, Any]) -> None:
        space = {**names, "now": perf_counter_ns}
        exec(compile(_SOURCE.format(line=line), f"<{line}>", "exec"), space)
        self.once: Callable[[], None] = space["once"]
        self._warm: Callable[..., list[int]] = space["warm"]
        self._fresh: Callable[..., tuple[list[int], list[int]]] = space["fresh"]

    def warm(
        self, line_up: Callable[[], object], warm_up: int, laps: int, calls: int
    ) -> tuple[list[int], list[int]]:
        """Back to back on the same buffers: when each lap of `calls` calls began and ended."""
        with _Quiet():
            if warm_up:
                self._warm(1, warm_up)
            line_up()
            stamps = self._warm(laps, calls)
        return stamps[:-1], stamps[1:]

    def fresh(
        self, line_up: Callable[[], object], refill: Callable[[], object], warm_up: int, calls: int
    ) -> tuple[list[int], list[int]]:
        """One by one, the input rewritten before each: when each call began and ended."""
        with _Quiet():
            if warm_up:
                self._fresh(warm_up, refill, line_up)
            return self._fresh(calls, refill, line_up)


class _Quiet:
    """No garbage collection meanwhile."""

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            gc.enable()
