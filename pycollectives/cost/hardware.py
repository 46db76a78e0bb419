"""The processor as the system describes it: what a tuning file belongs to, and where the defaults come from."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .model import Machine

CPUS = Path("/sys/devices/system/cpu")
CPUINFO = Path("/proc/cpuinfo")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Cache:
    """One level of data cache: bytes, and how many of them there are."""

    level: int
    nbytes: int
    instances: int


@dataclass(frozen=True)
class Hardware:
    """Model name, processors that are online, data caches from the first level on (empty where unknown)."""

    cpu: str
    processors: int
    caches: tuple[Cache, ...]

    @property
    def last_level(self) -> Cache | None:
        """The largest caches; None where unknown."""
        return max(self.caches, key=lambda cache: cache.level, default=None)

    def cache_bytes(self, level: int, otherwise: int) -> int:
        """The size of one cache of a level; `otherwise` where unknown."""
        return next((cache.nbytes for cache in self.caches if cache.level == level), otherwise)

    def key(self) -> str:
        """All of it in one line: equal on equal machines."""
        caches = ", ".join(f"L{c.level} {c.nbytes} x {c.instances}" for c in self.caches)
        return f"{self.cpu}; {self.processors} processors; {caches or 'caches unknown'}"

    def defaults(self, cores: int, segment: int, *, placed: bool = False) -> Machine:
        """The model's parameters without a measurement, for ranks that share `cores` cores; `placed`: which of them share a
        last-level cache is known.

        Only orders of magnitude that hold on current processors: a line comes from another core of the same
        last-level cache in some 50 ns, from elsewhere in some 300; caches pass on about 16 GB/s per core
        while other ranks read, memory about half of it. Where the data leave the caches is read from the system.
        """
        last = self.last_level
        together = placed or last is None or last.instances == 1
        return Machine(
            alpha=0.4e-6 if together else 1.0e-6,
            message=0.1e-6 if together else 0.3e-6,
            cache=32 << 20 if last is None else last.nbytes * last.instances,
            cores=cores,
            segment=segment,
        )


@lru_cache(maxsize=8)
def hardware(cpus: Path = CPUS, cpuinfo: Path = CPUINFO) -> Hardware:
    """This machine. What the system does not tell is left out; never raises."""
    name = platform.processor() or platform.machine()
    with suppress(OSError, UnicodeDecodeError):
        lines = [line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line]
        told = {key.strip(): value.strip() for key, value in reversed(lines)}  # the first one counts
        name = told.get("model name") or told.get("Processor") or name
        if "cpu family" in told and "model" in told:  # virtual machines hide the name: all are "AMD EPYC"
            name += f" ({told['cpu family']}.{told['model']}.{told.get('stepping', '')})"
    return Hardware(" ".join(name.split()), os.cpu_count() or 1, _caches(cpus))


def _caches(cpus: Path) -> tuple[Cache, ...]:
    found: dict[tuple[int, int], set[str]] = {}
    for folder in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        with suppress(OSError, ValueError, KeyError, IndexError):
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            level, text = int((folder / "level").read_text()), (folder / "size").read_text().strip()
            nbytes = int(text[:-1]) * _UNITS[text[-1]]
            found.setdefault((level, nbytes), set()).add((folder / "shared_cpu_list").read_text().strip())
    return tuple(Cache(level, nbytes, len(shared)) for (level, nbytes), shared in sorted(found.items()))
