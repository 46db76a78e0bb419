"""The flight recorders of a job's ranks, mapped by the process that serves the exchanges: they outlive the ranks.

A rank gives the segment of a communicator away under the key "keep/NAME/memory" (the others get it as well), and
releases it when it closes the communicator. Of one that has failed, what the segments said is remembered.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pycollectives import _core
from pycollectives.errors import CollectiveError

PREFIX, SUFFIX = "keep/", "/memory"
MOST = 16384  # segments; the kernel limits the mappings of a process
FAILED = 32  # communicators


@dataclass
class _Communicator:
    name: str
    segments: dict[int, Any] = field(default_factory=dict)  # mappings by the rank of the job
    said: dict[int, dict[str, Any]] = field(
        default_factory=dict
    )  # what segments said before they were let go

    def read(self) -> dict[int, dict[str, Any]]:
        """By the ranks of the job."""
        now = {
            rank: {"job_rank": rank} | _core.read_segment(segment) for rank, segment in self.segments.items()
        }
        return self.said | now


class Recorders:
    """What is kept of a job. All methods may be called from any thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ended: dict[int, str] = {}  # how ranks have gone
        self.left_out = 0
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, str], _Communicator] = {}

    def keep(self, epoch: int, key: str, rank: int, fd: int) -> None:
        """Map the segment behind `fd`, which stays the caller's."""
        name = key.removeprefix(PREFIX).removesuffix(SUFFIX)
        with self._lock:
            if sum(len(each.segments) for each in self._kept.values()) >= MOST:
                self.left_out += 1
                return
            try:
                segment = _core.Mapping.attach(fd, _core.SEGMENT_HEAD)
            except CollectiveError:  # what the rank gave away is no segment
                self.left_out += 1
                return
            self._kept.setdefault((epoch, key), _Communicator(name)).segments[rank] = segment

    def release(self, epoch: int, key: str, rank: int) -> None:
        """The rank has closed this communicator."""
        with self._lock:
            self._let_go([(epoch, key)], rank)

    def leave(self, epoch: int, rank: int) -> None:
        """The rank has closed its rendezvous of this epoch, and all communicators with it."""
        with self._lock:
            self._let_go([key for key in self._kept if key[0] == epoch], rank)

    def lose(self, rank: int, reason: str) -> None:
        """The rank has gone for good, which the sentence "rank 1 ..." says."""
        with self._lock:
            self.ended.setdefault(rank, reason)

    def say(self, rank: int, reason: str) -> None:
        """Better known than before: how the rank has gone."""
        with self._lock:
            self.ended[rank] = reason

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._kept.clear()

    def snapshot(self) -> dict[str, Any]:
        """All that is known of the job, as JSON types; `pycollectives.flight` reads it."""
        with self._lock:
            communicators: list[dict[str, Any]] = [
                {
                    "name": each.name,
                    "ranks": sorted(each.read().values(), key=lambda entry: int(entry["rank"])),
                }
                for each in self._kept.values()
            ]
            ended = {str(rank): reason for rank, reason in self.ended.items()}
        return snapshot(self.size, communicators, ended, self.left_out)

    def _let_go(self, keys: list[tuple[int, str]], rank: int) -> None:
        for key in keys:
            if (communicator := self._kept.get(key)) is None or rank not in communicator.segments:
                continue
            ranks = communicator.read()
            raised = ranks[rank]["error"]  # the others may not have noticed yet
            if raised or any(each["failed"] for each in ranks.values()) or ranks.keys() & self.ended.keys():
                communicator.said = ranks
            del communicator.segments[rank]
            if all(other in self.ended for other in communicator.segments):
                communicator.segments.clear()  # memory that only the dead had
                if not communicator.said:
                    del self._kept[key]
        failed = [key for key, each in self._kept.items() if not each.segments]
        for key in failed[:-FAILED]:
            del self._kept[key]


def snapshot(
    size: int, communicators: list[dict[str, Any]], ended: dict[str, str], left_out: int = 0
) -> dict[str, Any]:
    """All that is known of a job of ``size`` ranks now, in JSON types."""
    pids = {rank["job_rank"]: rank["pid"] for each in communicators for rank in each["ranks"]}
    return {
        "version": 1,
        "pid": os.getpid(),
        "size": size,
        "taken": time.time(),
        "clock_ns": time.monotonic_ns(),  # on the scale of the calls' times
        "ended": ended,
        "processes": {str(rank): {"pid": pid, "state": process_state(pid)} for rank, pid in pids.items()},
        "communicators": communicators,
        "left_out": left_out,
    }


def process_state(pid: int) -> str:
    """ "running", "stopped", "dead", or "elsewhere" on another host."""
    if pid <= 0:
        return "elsewhere"
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "dead"
    return {"T": "stopped", "t": "stopped", "Z": "dead", "X": "dead"}.get(state, "running")
