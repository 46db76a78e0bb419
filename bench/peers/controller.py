"""The interleaved run: all libraries are up at the same time, and take turns.

for each number of ranks                start the jobs of all libraries
  for each collective, dtype, size      every job makes its arrays, calls once, checks, calibrates
    for each round                      the flag between the cores; then every column once, from another one on each round
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pycollectives._core import available_memory
from pycollectives.bench.cases import elements
from pycollectives.extended_dtypes import dtype_of

from .catalogue import MEMCPY, OURS, Peer
from .job import Job, JobError, UnsupportedError, close_all
from .others import Others
from .results import Measured, Results

_LAPS = 10
_MOST = 10_000  # calls of a batch
_WARM_UP = 0.002  # seconds before each batch
_LOOK = 0.1  # seconds to see what other programs do
_SLOW = 0.1  # seconds; two such calls do
DISTURBED = 0.1  # processor seconds per second that other programs used
_ENOUGH = 3  # calm rounds; with fewer, disturbed ones count too
_MEMORY = 0.4  # of what is available, for all arrays together


@dataclass(frozen=True)
class Options:
    """What is measured, and for how long."""

    peers: Sequence[Peer]
    ranks: Sequence[int] = (2,)
    collectives: Sequence[str] = ("all_reduce",)
    dtypes: Sequence[str] = ("float32",)
    sizes: Sequence[int] = (8,)
    modes: Sequence[str] = ("warm", "fresh")
    rounds: int = 9
    again: int = 9  # so many rounds at most are made again, the most disturbed ones first
    patience: float = 2.0  # seconds to wait before a round for other programs to end
    batch: float = 0.02  # seconds of timed calls per column, mode and round
    in_place: bool = False
    algorithm: str = ""  # that the peers were told to use, for the record
    environments: Path = Path()
    limit: float = 120.0  # seconds for one answer
    start_limit: float = 120.0  # seconds until all ranks of all jobs are there
    stop_after: float = float("inf")  # seconds of the whole run


@dataclass
class _Column:
    """One thing to be timed."""

    label: str
    job: Job
    name: str
    plan: dict[str, tuple[int, int]] = field(default_factory=dict)  # mode -> warm-up calls, timed calls


class Controller:
    """`run` returns what was measured; `say` is told what happens, `done` gets each case."""

    def __init__(
        self,
        options: Options,
        say: Callable[[str], None] = lambda text: None,
        done: Callable[[Measured], None] = lambda case: None,
    ) -> None:
        self.options, self.say, self.done = options, say, done
        self.results = Results()
        self._jobs: list[Job] = []
        self._began = time.monotonic()

    def run(self) -> Results:
        """All configurations; ends early, with what there is, after `stop_after` seconds or at a KeyboardInterrupt."""
        try:
            for ranks in self.options.ranks:
                self._start(ranks)
                for collective in self.options.collectives:
                    for dtype, nbytes in self._cases(collective):
                        if self._late():
                            self.say("the time is over: what was measured until now is reported")
                            self.results.complete = False
                            return self.results
                        self._measure(ranks, collective, dtype, nbytes)
                self._stop()
        except KeyboardInterrupt:
            self.say("interrupted: what was measured until now is reported")
            self.results.complete = False
        finally:
            self._stop()
        return self.results

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _start(self, ranks: int) -> None:
        self._jobs = [Job(peer, ranks, self.options.environments) for peer in self.options.peers]
        for job in list(self._jobs):
            self._guard(job, job.start)
        deadline = time.monotonic() + self.options.start_limit
        for job in list(self._jobs):
            if self._guard(job, lambda job=job: job.ready(deadline)):  # type: ignore[misc]
                self.results.versions[job.peer.name] = job.version

    def _stop(self) -> None:
        close_all(self._jobs)
        self._jobs = []

    def _guard(self, job: Job, action: Callable[[], Any]) -> bool:
        """Do it; a job that fails is ended and left out from now on."""
        try:
            action()
        except JobError as error:
            self._fail(job, error)
            return False
        return True

    def _fail(self, job: Job, error: JobError) -> None:
        self.say(f"{job.peer.name}, {job.ranks} ranks, is left out: {error}")
        self.results.failures.append({"peer": job.peer.name, "ranks": job.ranks, "reason": str(error)})
        if job in self._jobs:
            self._jobs.remove(job)
        close_all([job])

    def _late(self) -> bool:
        return time.monotonic() - self._began > self.options.stop_after

    # -- one case ------------------------------------------------------------------------------------------------

    def _cases(self, collective: str) -> Iterable[tuple[str, int]]:
        if collective == "barrier":
            return [("uint8", 0)]
        return [(dtype, nbytes) for dtype in self.options.dtypes for nbytes in self.options.sizes]

    def _measure(self, ranks: int, collective: str, dtype: str, nbytes: int) -> None:
        count = elements(collective, nbytes, dtype_of(dtype), ranks)
        nbytes = count * dtype_of(dtype).itemsize
        in_place = self.options.in_place and collective == "all_reduce"
        case = Measured(ranks, collective, dtype, nbytes, in_place, self.options.algorithm)
        modes = [mode for mode in self.options.modes if count or mode == "warm"]
        hold = self._fit_together(case)
        columns = []
        for job in list(self._jobs):
            if not self._late():
                columns += self._prepare(job, case, count, modes)
            if not hold:
                self._drop(job)
        turn = 0
        while turn < self.options.rounds + self.options.again and not self._late():
            if turn >= self.options.rounds and max(case.others) <= DISTURBED:
                break
            self._wait_for_calm()
            self._round(case, columns, turn, count, modes, hold)
            if turn >= self.options.rounds:
                case.remove_round(int(np.argmax(case.others)))
            turn += 1
        case.keep_calm_rounds(DISTURBED, _ENOUGH)
        for job in list(self._jobs):
            self._drop(job)
        self.results.cases.append(case)
        self.done(case)

    def _wait_for_calm(self) -> None:
        """Until other programs leave the machine alone, or patience is at an end."""
        end = time.monotonic() + self.options.patience
        while time.monotonic() < end:
            others = Others(pid for job in self._jobs for pid in job.pids)
            time.sleep(_LOOK)
            if others.used() <= DISTURBED * _LOOK:
                break

    def _round(
        self, case: Measured, columns: list[_Column], turn: int, count: int, modes: Sequence[str], hold: bool
    ) -> None:
        """Every column once, and what other programs did meanwhile."""
        others, began = Others(pid for job in self._jobs for pid in job.pids), time.monotonic()
        case.flag_ns.append(self._flag())
        first = turn % len(columns) if columns else 0
        for column in columns[first:] + columns[:first]:
            times = self._visit(column, case, count, modes, hold)
            for mode, us in zip(modes, times, strict=True):
                case.times.setdefault(mode, {}).setdefault(column.label, []).append(us)
        case.others.append(others.used() / (time.monotonic() - began))

    def _fit_together(self, case: Measured) -> bool:
        """May all jobs keep their arrays at the same time? The kinds of arrays: two each, and the memcpy's."""
        kinds = sum(len(job.peer.columns) for job in self._jobs) + 1
        return 2 * kinds * case.nbytes * case.ranks < _MEMORY * available_memory()

    def _drop(self, job: Job) -> None:
        if job in self._jobs:
            self._guard(job, lambda: job.ask(self.options.limit, "drop"))

    def _prepare(self, job: Job, case: Measured, count: int, modes: Sequence[str]) -> list[_Column]:
        found = []
        names = [*job.peer.columns, *([MEMCPY] if job.peer.library == OURS.library and count else [])]
        for name in names:
            column = _Column(name or job.peer.name, job, name)
            try:
                answers = self._make(column, case, count)
                if wrong := sum(answer["wrong"] for answer in answers):
                    raise UnsupportedError(f"{wrong} elements of its result are wrong")
                case.lines[column.label] = answers[0]["line"]
                for mode in modes:
                    column.plan[mode] = self._calibrate(column, mode)
            except UnsupportedError as error:
                case.left_out[column.label] = str(error)
            except JobError as error:
                case.left_out[column.label] = str(error)
                self._fail(job, error)
                return []
            else:
                found.append(column)
        return found

    def _visit(
        self, column: _Column, case: Measured, count: int, modes: Sequence[str], hold: bool
    ) -> list[float | None]:
        """The microseconds in each mode; None when the job has failed, now or before."""
        if column.job not in self._jobs:
            return [None] * len(modes)
        try:
            if not hold:
                self._make(column, case, count)
            found: list[float | None] = [
                self._batch(column, mode, *column.plan[mode], laps=_LAPS) for mode in modes
            ]
        except JobError as error:
            self._fail(column.job, error)
            return [None] * len(modes)
        if not hold:
            self._drop(column.job)
        return found

    def _make(self, column: _Column, case: Measured, count: int) -> list[dict[str, Any]]:
        if column.name == MEMCPY:
            return column.job.ask(self.options.limit, "prepare_memcpy", MEMCPY, case.nbytes)
        arguments = column.name, case.collective, case.dtype, count, case.in_place
        return column.job.ask(self.options.limit, "prepare", *arguments)

    def _calibrate(self, column: _Column, mode: str) -> tuple[int, int]:
        """How many calls to warm up, and how many to time."""
        calls = 1
        while True:
            begin = time.perf_counter()
            took = self._batch(column, mode, 0, calls, laps=1) * 1e-6
            spent = (time.perf_counter() - begin) / calls if mode == "fresh" else took
            if took * calls >= _WARM_UP or spent * calls >= self.options.batch or calls >= _MOST:
                break
            calls *= 4
        timed = int(np.clip(self.options.batch / spent, 3 if spent < _SLOW else 2, _MOST))
        return int(np.clip(_WARM_UP / spent, 1, 1000)), timed

    def _batch(self, column: _Column, mode: str, warm_up: int, calls: int, laps: int) -> float:
        """Microseconds per call: from when the last rank began until the last one was done."""
        each = 1
        if mode == "warm":
            laps = min(laps, calls)
            each = calls // laps
            answers = column.job.ask(self.options.limit, mode, column.name, warm_up, laps, each)
        else:
            answers = column.job.ask(self.options.limit, mode, column.name, warm_up, calls)
        stamps = np.array(answers)  # ranks, 2, laps or calls
        spans = stamps[:, 1].max(axis=0) - stamps[:, 0].max(axis=0)
        return float(statistics.median((spans / each / 1000).tolist()))

    def _flag(self) -> float | None:
        for job in list(self._jobs):
            if job.peer.library == OURS.library:
                try:
                    return next((ns for ns in job.ask(self.options.limit, "flag") if ns is not None), None)
                except JobError as error:
                    self._fail(job, error)
        return None
