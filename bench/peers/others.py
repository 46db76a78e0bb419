"""How much of the machine other programs use: what a round is worth."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")


class Others:
    """`used()` gives the processor seconds since it was made that neither `pids` nor this process have used; steal counts."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = [*pids, os.getpid()]
        self._all, self._own = _whole_machine(), self._ours()

    def _ours(self) -> float:
        return sum(_of(pid) for pid in self._pids)

    def used(self) -> float:
        """Seconds, to about a hundredth."""
        return max(0.0, _whole_machine() - self._all - (self._ours() - self._own))


def _whole_machine() -> float:
    user, nice, system, _idle, _iowait, irq, softirq, steal = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) * _TICK


def _of(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * _TICK
    return 0.0
