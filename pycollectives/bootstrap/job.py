"""Supervises the ranks of a job: output, signals, time limit, and the end of all when one fails."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from pycollectives import flight
from pycollectives.bootstrap.binding import cores_of
from pycollectives.bootstrap.broker import Broker
from pycollectives.bootstrap.output import Relay, Sink
from pycollectives.bootstrap.rank_process import RankProcess

GRACE_SECONDS = 3.0
_PROMPT_SECONDS = 0.1
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGINT, *_ENDING, signal.SIGUSR1, signal.SIGUSR2)
_TIMED_OUT = 124
_LINES = 12
_JUDGE_SECONDS = 1.0


class Job:
    """The ranks of one job, from their start to the end of the last one."""

    def __init__(self, n: int, *, prefix: bool, timeout: float | None, keep_going: bool, bind: bool) -> None:
        self.n = n
        self.bind = bind
        self.prefix = prefix
        self.keep_going = keep_going
        self.code: int | None = None
        self.ranks: list[RankProcess] = []
        self.broker = Broker(n, keep=True)
        self.limit = None if timeout is None else time.monotonic() + timeout
        self.timeout = timeout
        self.kill_at: float | None = None
        self.failed: list[tuple[RankProcess, int, str]] = []  # until it is clear which of them ends the job
        self.judge_at: float | None = None
        self.report_folder: str | None = None
        self.interrupts = 0
        self.starting = True
        self.waiting: list[int] = []  # signals that came while ranks were being started
        self.selector = selectors.DefaultSelector()
        self.wake_out, self.wake_in = socket.socketpair()
        self.wake_in.setblocking(False)
        self.wake_out.setblocking(False)
        self.selector.register(self.wake_in, selectors.EVENT_READ, lambda: self.wake_in.recv(4096))
        self.sinks = Sink(sys.stdout), Sink(sys.stderr)
        self.handlers: dict[int, Any] = {}

    def run(self, command: list[str], env: dict[str, str]) -> int:
        """Start, supervise, return the exit code."""
        self._catch_signals()
        self.broker.start()
        for rank in range(self.n):
            self._start(rank, command, env)
        self.starting = False
        for number in self.waiting:
            self._forward(number)
        while not all(rank.ended for rank in self.ranks):
            timed = [each for each in (self.limit, self.kill_at, self.judge_at) if each is not None]
            patience = max(0.0, min(timed) - time.monotonic()) if timed else None
            prompt = [
                relay for rank in self.ranks for relay in rank.relays if relay.eager and relay.unfinished
            ]
            if prompt:
                patience = min(_PROMPT_SECONDS, patience or _PROMPT_SECONDS)
            events = self.selector.select(patience)
            for key, _ in events:
                key.data()
            if not events:
                for relay in prompt:
                    relay.flush()
            self._check_clock()
        return self.code or 0

    def close(self) -> None:
        """Leave nothing behind, also after an exception."""
        failed = self.code is not None or not all(rank.ended for rank in self.ranks)
        for rank in self.ranks:
            if failed:
                rank.signal(signal.SIGKILL)  # what a failed job's ranks have left behind, too
            rank.ended = True
            rank.close()
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.selector.close()
        self.wake_in.close()
        self.wake_out.close()
        self.broker.close()

    def _start(self, rank: int, command: list[str], env: dict[str, str]) -> None:
        own = os.sched_getaffinity(0)
        if self.bind:  # a child has the affinity of the thread that starts it
            os.sched_setaffinity(0, cores_of(rank, self.n, sorted(own)))
        try:
            started = RankProcess(rank, self.n, command, env, self.sinks, prefix=self.prefix)
        finally:
            if self.bind:
                os.sched_setaffinity(0, own)
        self.ranks.append(started)
        for relay in started.relays:
            self.selector.register(relay.fd, selectors.EVENT_READ, self._pump(relay))
        self.selector.register(started.pidfd, selectors.EVENT_READ, lambda: self._ended(started))
        self.broker.attach(rank, started.channel, started.process.pid)

    def _pump(self, relay: Relay) -> Callable[[], None]:
        def pump() -> None:
            if not relay.pump():
                self.selector.unregister(relay.fd)
                os.close(relay.fd)
                # The closed pipe tells the rank that nobody reads; the relay keeps something to close.
                relay.fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

        return pump

    def _ended(self, rank: RankProcess) -> None:
        self.selector.unregister(rank.pidfd)
        rank.ended = True
        for relay in rank.relays:
            relay.drain()
        code, how = rank.outcome()
        self.broker.leave(rank.rank, how)
        if code != 0 and self.code is None:
            self.failed.append((rank, code, how))
        self._judge()

    def _judge(self) -> None:
        """The first rank that fails ends the job. A rank that others have seen raise may take longer to end than they."""
        if not self.failed or self.code is not None:
            return
        rank, code, how = self.failed[0]
        culprit = self.ranks[flight.first_to_raise(self.broker.recorders.snapshot(), rank.rank)]
        if culprit is not rank:
            if not culprit.ended and self.judge_at is None:
                self.judge_at = time.monotonic() + _JUDGE_SECONDS
            if not culprit.ended and time.monotonic() < (self.judge_at or 0.0):
                return
            rank, code, how = next((each for each in self.failed if each[0] is culprit), self.failed[0])
        self.judge_at = None
        self.code = code
        others = [each for each in self.ranks if not each.ended]
        self._say(f"rank {rank.rank} {how}" + ("; ending the job" if others and not self.keep_going else ""))
        self._report()
        if not self.keep_going:
            self._end(others)

    def _report(self) -> None:
        """Say who kept the others waiting. Before they are ended: then all would be gone."""
        snapshot = self.broker.recorders.snapshot()
        found = flight.findings(snapshot)
        for line in found[:_LINES]:
            self._say(line)
        if len(found) > _LINES:
            self._say(f"and {len(found) - _LINES} lines more")
        if self.report_folder is not None:
            try:
                self._say(f"the last calls of all ranks are in {flight.save(snapshot, self.report_folder)}")
            except OSError as error:
                self._say(f"the last calls cannot be written to {self.report_folder}: {error.strerror}")

    def _end(self, ranks: Iterable[RankProcess]) -> None:
        """Ask ranks to end, and see to it."""
        if self.kill_at is None:
            self.kill_at = time.monotonic() + GRACE_SECONDS
        for rank in ranks:
            rank.signal(signal.SIGTERM)
            rank.signal(signal.SIGCONT)

    def _check_clock(self) -> None:
        if self.judge_at is not None:
            self._judge()
        now = time.monotonic()
        alive = [rank for rank in self.ranks if not rank.ended]
        if self.limit is not None and now >= self.limit and alive:
            self.limit = None
            self.code = self.code or _TIMED_OUT
            self._say(f"the job did not end within {self.timeout:g} s; ending it")
            self._report()
            self._end(alive)
        if self.kill_at is not None and now >= self.kill_at and alive:
            self.kill_at = None
            names = ", ".join(str(rank.rank) for rank in alive)
            self._say(f"rank {names} did not end within {GRACE_SECONDS:g} s; killed")
            for rank in alive:
                rank.signal(signal.SIGKILL)

    def _say(self, text: str) -> None:
        self.sinks[1].write(f"pycollectives: {text}\n".encode(), self)

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup
                self.handlers[number] = signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGTSTP) != signal.SIG_IGN:
            self.handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._on_stop)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.starting:
            self.waiting.append(number)
        else:
            self._forward(number)
        with contextlib.suppress(OSError):
            self.wake_out.send(b"!")

    def _forward(self, number: int) -> None:
        """Ranks are in process groups of their own: a terminal's Ctrl-C reaches them only through this."""
        self.interrupts += number == signal.SIGINT
        for rank in self.ranks:
            if not rank.ended:
                rank.signal(number)
                rank.signal(signal.SIGCONT)
        if (number in _ENDING or self.interrupts > 1) and self.kill_at is None:
            self.kill_at = time.monotonic() + GRACE_SECONDS

    def _on_stop(self, _: int, __: FrameType | None) -> None:
        """Ctrl-Z: the whole job stops, and goes on with the launcher."""
        alive = [rank for rank in self.ranks if not rank.ended]
        for rank in alive:
            rank.signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for rank in alive:
            rank.signal(signal.SIGCONT)
