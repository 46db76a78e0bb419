"""What the hosts of a job are made of: ranks, cores, memory nodes, network interfaces."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .interfaces import Interface, interfaces


@dataclass(frozen=True)
class Host:
    """One host. `cores`: that its ranks may use; `nodes`: those of each NUMA node."""

    name: str
    cpu: str
    cores: tuple[int, ...]
    nodes: tuple[tuple[int, ...], ...]
    memory: int  # bytes
    interfaces: tuple[Interface, ...]

    @classmethod
    def here(cls) -> Host:
        """The one that this process runs on."""
        cores = tuple(sorted(os.sched_getaffinity(0)))
        nodes = tuple(tuple(core for core in node if core in cores) for node in _nodes())
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(
            socket.gethostname(),
            _cpu(),
            cores,
            tuple(node for node in nodes if node),
            memory,
            tuple(interfaces()),
        )


@dataclass(frozen=True)
class Placed:
    """A host and its ranks."""

    host: Host
    ranks: tuple[int, ...]


def group(placement: Sequence[int], hosts: Sequence[Host]) -> list[Placed]:
    """The hosts of a job: `placement[r]` is the number of rank r's, `hosts[r]` what rank r says of it."""
    found = []
    for number in range(max(placement) + 1):
        ranks = tuple(rank for rank, host in enumerate(placement) if host == number)
        found.append(Placed(hosts[ranks[0]], ranks))
    return found


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers in short: 0-3, 8, 10-11."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return os.uname().machine


def _nodes() -> list[list[int]]:
    """The cores of every NUMA node; one node of all cores where the kernel does not say."""
    found = []
    folders = Path("/sys/devices/system/node").glob("node[0-9]*")
    for folder in sorted(folders, key=lambda each: int(each.name[4:])):
        cores: list[int] = []
        for part in filter(None, (folder / "cpulist").read_text().strip().split(",")):
            first, _, last = part.partition("-")
            cores += range(int(first), int(last or first) + 1)
        found.append(cores)
    return found or [sorted(os.sched_getaffinity(0))]
