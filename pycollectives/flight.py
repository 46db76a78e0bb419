"""What the flight recorders of a job say: who keeps the others waiting, and a table of the last calls.

A snapshot (`bootstrap.recorders.Recorders.snapshot`) has for each communicator that is open, and each of its ranks, the last
calls: sequence number, what was called with how many bytes, algorithm, state, times, call site.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Call = dict[str, Any]


@dataclass
class Rank:
    """One rank of a communicator."""

    number: int
    pid: int
    state: str  # "running", "stopped", "dead"
    how: str  # it has gone, for example "died of SIGKILL (signal 9)"; ""
    left: bool
    error: str
    awaits: tuple[int, int]
    calls: list[Call]

    @property
    def last(self) -> int:
        """The number of its last call; 0 before the first."""
        return int(self.calls[-1]["sequence"]) if self.calls else 0

    @property
    def lost(self) -> bool:
        """Does it take part no more?"""
        return self.left or self.state == "dead" or bool(self.how)

    def call(self, sequence: int) -> Call | None:
        """Its record of a call."""
        return next((each for each in self.calls if each["sequence"] == sequence), None)

    def waits_in(self, sequence: int) -> bool:
        """Does it wait in this call, or has it done so until the call failed?"""
        call = self.call(sequence)
        return call is not None and (
            call["state"] == "failed" or (call["state"] == "running" and not self.lost)
        )


@dataclass
class Communicator:
    """One communicator of a snapshot."""

    name: str
    ranks: list[Rank]
    clock_ns: int
    stragglers: list[Rank] = field(default_factory=list)
    call: int = 0  # the call in which ranks wait

    def __post_init__(self) -> None:
        waiting = [each.last for each in self.ranks if each.waits_in(each.last)]
        if not waiting:
            return
        self.call = min(waiting)
        behind = [each for each in self.ranks if each.last < self.call]
        # Who is gone comes first: others that are behind may only not have come yet.
        self.stragglers = [each for each in self.ranks if self._stuck(each)]
        self.stragglers += sorted(behind, key=lambda each: not each.lost)
        if not self.stragglers and (end := self._end_of_chain()) is not None:
            self.stragglers = [end]

    def _stuck(self, rank: Rank) -> bool:
        call = rank.call(self.call)
        return call is not None and call["state"] == "running" and (rank.lost or rank.state == "stopped")

    def _end_of_chain(self) -> Rank | None:
        by_number = {each.number: each for each in self.ranks}
        first = here = next(each for each in self.ranks if each.waits_in(self.call))
        for _ in self.ranks:
            sequence, number = here.awaits
            there = by_number.get(number)
            if sequence != self.call or there is None or not there.waits_in(self.call):
                break
            here = there
        return None if here is first else here

    def findings(self) -> Iterator[str]:
        """Sentences about the stragglers and what they do to the others."""
        waiting = [each for each in self.ranks if each.waits_in(self.call) and each not in self.stragglers]
        if not self.call or not self.stragglers or not waiting:
            return
        for each in self.stragglers:
            yield f"{self.name}: {_who(each)} {self._whereabouts(each)}"
        calls = [call for each in waiting if (call := each.call(self.call)) is not None]
        spent = max(self._end(call) - call["started_ns"] for call in calls)
        names = ", ".join(str(each.number) for each in waiting)
        rank, wait = ("rank", "waits") if len(waiting) == 1 else ("ranks", "wait")
        yield f"{self.name}: {rank} {names} {wait} for it in call {self.call} {_text(calls[0])}, for {_seconds(spent)}"

    def _end(self, call: Call) -> int:
        return self.clock_ns if call["state"] == "running" else int(call["ended_ns"])

    def _whereabouts(self, rank: Rank) -> str:
        call = rank.call(rank.last)
        if call is None:
            return "has made no call"
        if call["state"] == "running":
            since = _seconds(self.clock_ns - call["started_ns"])
            return (
                f"is in call {rank.last} {_text(call)}, since {since}"
                if not rank.lost
                else (f"was in call {rank.last} {_text(call)}")
            )
        since = _seconds(self.clock_ns - call["ended_ns"])
        return f"has not come; its last call was {rank.last} {_text(call)}, {call['state']} {since} ago"


def read(snapshot: dict[str, Any]) -> list[Communicator]:
    """The communicators of a snapshot, the oldest first."""
    result = []
    for each in snapshot["communicators"]:
        ranks = []
        for entry in each["ranks"]:
            job_rank = str(entry["job_rank"])
            process = snapshot["processes"].get(job_rank, {})
            ranks.append(
                Rank(
                    entry["rank"],
                    entry["pid"],
                    process.get("state", "running"),
                    snapshot["ended"].get(job_rank, ""),
                    entry["left_ns"] > 0,
                    entry["error"],
                    (entry["awaits"][0], entry["awaits"][1]),
                    entry["calls"],
                )
            )
        result.append(Communicator(each["name"], ranks, snapshot["clock_ns"]))
    return result


def findings(snapshot: dict[str, Any]) -> list[str]:
    """Who keeps others waiting, in sentences; nothing if nobody does."""
    return [line for communicator in read(snapshot) for line in communicator.findings()]


def first_to_raise(snapshot: dict[str, Any], failed: int) -> int:
    """Whom to blame for the failure of a rank of the job: if it has left its communicators by an exception, that may have
    been about another one that had done so before."""
    left: dict[int, int] = {}
    for each in snapshot["communicators"]:
        for rank in each["ranks"]:
            if rank["left_ns"] and rank["error"]:
                left.setdefault(rank["job_rank"], rank["left_ns"])
    return min(left, key=lambda rank: left[rank]) if failed in left else failed


def table(snapshot: dict[str, Any], calls: int = 1) -> str:
    """For each communicator and rank the last `calls` calls, as text."""
    lines = []
    for communicator in read(snapshot):
        lines.append(f"communicator {communicator.name}, {len(communicator.ranks)} ranks")
        rows: list[tuple[str, ...]] = [
            ("rank", "process", "", "call", "", "algorithm", "bytes", "state", "for", "at")
        ]
        for rank in communicator.ranks:
            recent: list[Call | None] = [*rank.calls[-calls:]] or [None]
            for i, call in enumerate(recent):
                who = (str(rank.number), str(rank.pid), _state(rank)) if i == 0 else ("", "", "")
                rows.append((*who, *_columns(call, communicator.clock_ns)))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines += ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if snapshot["left_out"]:
        lines.append(f"{snapshot['left_out']} segments are not recorded: there are too many")
    return "\n".join(lines)


def report(snapshot: dict[str, Any], calls: int = 1) -> str:
    """The findings, then the table."""
    found = findings(snapshot) or ["nobody keeps others waiting"]
    return "\n".join([*found, "", table(snapshot, calls)])


def save(snapshot: dict[str, Any], folder: str | Path) -> Path:
    """Write the snapshot as JSON and the report as text into `folder`; returns the path of the text."""
    path = Path(folder) / f"pycollectives-{snapshot['pid']}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(snapshot))
    path.write_text(report(snapshot, 10) + "\n")
    return path


def _columns(call: Call | None, now: int) -> tuple[str, ...]:
    if call is None:
        return ("-", "", "", "", "", "", "")
    end = now if call["state"] == "running" else call["ended_ns"]
    spent = _seconds(end - call["started_ns"])
    numbers = (str(call["sequence"]), call["call"], call.get("algorithm", ""), str(call.get("nbytes", "")))
    return (*numbers, call["state"], spent, call["site"])


def _who(rank: Rank) -> str:
    more = f", {rank.state}" if rank.state == "stopped" else f", {rank.how}" if rank.how else ""
    more = more or (", has left" if rank.left else "")
    return f"rank {rank.number} (process {rank.pid}{more})"


def _state(rank: Rank) -> str:
    return rank.how or ("left" if rank.left else rank.state)


def _text(call: Call | None) -> str:
    if call is None:
        return ""
    return f"{call['call']} at {call['site']}" if call["site"] else str(call["call"])


def _seconds(ns: int) -> str:
    if ns < 1_000_000:
        return f"{ns / 1e3:.0f} us"
    return f"{ns / 1e6:.1f} ms" if ns < 1_000_000_000 else f"{ns / 1e9:.1f} s"
