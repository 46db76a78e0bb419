"""Measured times, and which of them holds for a call.

Rows lie on a grid of sizes, here of 4 KiB and 64 KiB. A call takes the row that is nearest in log2 of its size, and none
if that is more than REACH octaves away: there the prediction decides.

    bytes   1K     2K     4K     8K     16K    32K    64K    128K   256K   512K
            [-------------4K row-------][-------------64K row-----------]  prediction
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .query import LIKE, Query

REACH = 2.0  # octaves, that is a factor of 4
_SMALLEST = 8  # bytes; fewer take as long


@dataclass(frozen=True)
class Row:
    """One measured size: seconds by algorithm, and the winner (see tune/contest.py: not always the least)."""

    nbytes: int
    winner: str
    seconds: Mapping[str, float]


def distance(a: int, b: int) -> float:
    """Of two sizes, in octaves."""
    return abs(math.log2(max(a, _SMALLEST)) - math.log2(max(b, _SMALLEST)))


@dataclass(frozen=True)
class Series:
    """What was measured of one collective and kind of elements, on `ranks` ranks that shared `cores` cores."""

    collective: str
    kind: str
    ranks: int
    cores: int
    rows: tuple[Row, ...]  # by size
    made: str = ""  # date

    def nearest(self, nbytes: int) -> Row | None:
        """The row for a size, if one is near enough."""
        best = min(self.rows, key=lambda row: distance(row.nbytes, nbytes), default=None)
        return best if best is not None and distance(best.nbytes, nbytes) <= REACH else None

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What there is one series for."""
        return self.collective, self.kind, self.ranks, self.cores

    def encode(self) -> dict[str, Any]:
        """For JSON."""
        rows = [{"nbytes": r.nbytes, "winner": r.winner, "seconds": dict(r.seconds)} for r in self.rows]
        return {**vars(self), "rows": rows}

    @staticmethod
    def decode(data: Any) -> Series:
        """From JSON. Raises ValueError for what is not a series."""
        rows = tuple(sorted((_row(each) for each in _list(data, "rows")), key=lambda row: row.nbytes))
        return Series(
            collective=_text(data, "collective"),
            kind=_text(data, "kind"),
            ranks=_number(data, "ranks"),
            cores=_number(data, "cores"),
            rows=rows,
            made=_text(data, "made"),
        )


@dataclass(frozen=True)
class Table:
    """All series that hold for one number of ranks and cores, or all there are."""

    series: Mapping[tuple[str, str, int, int], Series] = field(default_factory=lambda: MappingProxyType({}))

    @staticmethod
    def of(series: Iterable[Series]) -> Table:
        """A table of these; the later one counts where two have the same key."""
        return Table(MappingProxyType({each.key: each for each in series}))

    def pruned(self, ranks: int, cores: int) -> Table:
        """What a communicator of `ranks` ranks on `cores` cores needs."""
        return Table.of(s for s in self.series.values() if (s.ranks, s.cores) == (ranks, cores))

    def merged(self, newer: Iterable[Series]) -> Table:
        """With newer series; rows of sizes that they lack are kept."""
        found = dict(self.series)
        for each in newer:
            rows = {row.nbytes: row for row in found[each.key].rows} if each.key in found else {}
            rows |= {row.nbytes: row for row in each.rows}
            kept = tuple(rows[nbytes] for nbytes in sorted(rows))
            found[each.key] = Series(*each.key, rows=kept, made=each.made)
        return Table.of(found.values())

    def find(self, query: Query, cores: int) -> Row | None:
        """What was measured nearest to a call, if that is near enough."""
        for kind in (query.kind, LIKE.get(query.kind)):
            series = self.series.get((query.collective, kind or "", query.size, cores))
            if series is not None and (row := series.nearest(query.nbytes)) is not None:
                return row
        return None


def _list(data: Any, name: str) -> list[Any]:
    found = data.get(name) if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise ValueError(f"{name} is {found!r}, not a list")
    return found


def _text(data: dict[str, Any], name: str) -> str:
    found = data.get(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} is {found!r}, not a text")
    return found


def _number(data: dict[str, Any], name: str) -> int:
    found = data.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 62:
        raise ValueError(f"{name} is {found!r}, not a whole number")
    return found


def _row(data: Any) -> Row:
    seconds = data.get("seconds") if isinstance(data, dict) else None
    if not isinstance(seconds, dict):
        raise ValueError(f"seconds is {seconds!r}, not times by algorithm")
    times = {str(name): positive(value, str(name)) for name, value in seconds.items()}
    winner = _text(data, "winner")
    if winner not in times:
        raise ValueError(f"the winner {winner!r} was not measured")
    return Row(_number(data, "nbytes"), winner, MappingProxyType(times))


def positive(value: Any, name: str) -> float:
    """A number above 0 that can be a time. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e15:
        raise ValueError(f"{name} is {value!r}, not a number above 0")
    return float(value)
