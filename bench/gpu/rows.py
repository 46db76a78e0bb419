"""Rows of measurements, and the file that they are collected in. Needs no build: reports are written where there is none, too."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .limits import UNENDED, lines


@dataclass
class Row:
    """`nbytes`: of one rank's vector. `traffic`: bytes that all ranks together must read and write, 0 where nothing is said."""

    what: str
    verb: str
    ranks: int
    nbytes: int
    microseconds: float = 0.0
    traffic: int = 0
    share: float = 0.0  # of the measured copy bandwidth
    error: str = ""

    @property
    def key(self) -> str:
        return f"{self.what}, {self.ranks} ranks, {self.nbytes} bytes"


def collected(file: Path) -> dict[str, Any] | None:
    """What was measured, from the lines of a file; None where there are none. A row that has only begun is an error.

    "left_out" is None where no process came to the end of the plan.
    """
    known = lines(file)
    rows = {Row(**line["row"]).key: line["row"] for line in known if "row" in line}
    none = {line["none"] for line in known if "none" in line}
    found: dict[str, Any] = {"copy_bytes_per_second": 0.0, "left_out": None, "not_compared": {}}
    for line in known:
        found |= {name: line[name] for name in found if name in line}
        if (key := line.get("begin")) is not None and key not in rows and key not in none:
            what, ranks, nbytes = key.rsplit(", ", 2)
            lost = Row(what, "", int(ranks.split()[0]), int(nbytes.split()[0]), error=UNENDED)
            rows[key] = asdict(lost)
    return found | {"rows": list(rows.values())} if known else None
