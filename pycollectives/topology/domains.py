"""Which ranks of one host are close to each other: those on cores of one last-level cache, or of one socket.

    cores     0 1 2 3 | 4 5 6 7 || 8 9 10 11 | 12 13 14 15         | between caches, || between sockets
    ranks     on 0-3: 0, 1; on 8-11: 2, 3                          domains 0 0 1 1

Only ranks that are bound have a place (`mpiexec`, `srun`, `taskset` and `pycollectives run --bind` bind them): one that may run
anywhere is near nobody for long. Algorithms for several hosts take domains for hosts: what crosses from one to another is
counted as on a network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from pathlib import Path

from ..errors import InvalidArgumentError
from ..schedule.placement import compact

VARIABLE = "PYCOLLECTIVES_DOMAINS"
CPUS = Path("/sys/devices/system/cpu")


def domains(cores: Sequence[Set[int]], cpus: Path = CPUS) -> tuple[int, ...]:
    """The domain of every rank, numbered as they come; `cores[r]`: those that rank r may run on.

    The smallest domains of which some have several ranks; empty where there is one, each rank has its own, or some rank is
    bound to none.
    """
    for level in (_last_cache, _socket):
        places = [_place({level(cpus / f"cpu{core}") for core in allowed}) for allowed in cores]
        if "" in places:
            continue
        found = compact(places)
        if 1 < len(set(found)) < len(found):
            return found
    return ()


def asked(ranks: Sequence[int], size: int) -> tuple[int, ...] | None:
    """What PYCOLLECTIVES_DOMAINS says of some ranks of a job of `size`: a label for every rank, as in `a,a,b,b`; None without
    it. Raises InvalidArgumentError where the labels are not as many as the ranks."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    labels = text.split(",")
    if len(labels) != size:
        raise InvalidArgumentError(f"{VARIABLE}={text!r} has {len(labels)} labels for {size} ranks")
    found = compact(labels[rank] for rank in ranks)
    return found if len(set(found)) > 1 else ()


def _place(keys: set[str]) -> str:
    """The one place of a rank's cores; empty if there are several, or one is not known."""
    return keys.pop() if len(keys) == 1 else ""


def _last_cache(cpu: Path) -> str:
    """The cores that share the core's last cache."""
    levels = {int(_read(index / "level") or 0): index for index in cpu.glob("cache/index[0-9]*")}
    return _read(levels[max(levels)] / "shared_cpu_list") if levels else ""


def _socket(cpu: Path) -> str:
    return _read(cpu / "topology" / "physical_package_id")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
