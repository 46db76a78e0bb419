"""Ranks as threads of one process."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pycollectives.bootstrap.matching import Contribution, Outcome, Table
from pycollectives.bootstrap.rendezvous import (
    LOOK_SECONDS,
    ExchangeError,
    Rendezvous,
    check_arguments,
    check_process,
)
from pycollectives.bootstrap.wire import Descriptors
from pycollectives.errors import BootstrapError, InvalidArgumentError

_LONGEST_SLEEP = 3600.0

Result = TypeVar("Result")


class ThreadGroup:
    """Where ``size`` threads meet."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pid = os.getpid()
        self._table = Table(size)
        self._condition = threading.Condition()
        self._outcomes: dict[int, Outcome | None] = {}
        self._tickets = 0

    def rendezvous(self, rank: int) -> ThreadRendezvous:
        """The rendezvous of one thread."""
        return ThreadRendezvous(self, rank)

    def leave(self, rank: int, reason: str) -> None:
        """Note that a rank has gone; ``reason`` continues the sentence "rank 1 ..."."""
        with self._condition:
            self._deliver(self._table.leave(rank, reason))

    def exchange(
        self,
        rank: int,
        key: str,
        index: int,
        count: int,
        payload: bytes,
        descriptors: Descriptors,
        timeout: float,
        members: frozenset[int] | None,
        look: Callable[[], None] | None,
    ) -> Outcome:
        """Contribute, and wait for the end."""
        deadline = time.monotonic() + timeout
        with self._condition:
            self._tickets += 1
            ticket = self._tickets
            self._outcomes[ticket] = None
            try:
                part = Contribution(rank, ticket, index, payload, descriptors, deadline, timeout, members)
                self._deliver(self._table.join(key, count, part))
                while (outcome := self._outcomes[ticket]) is None:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        self._deliver(self._table.expire(time.monotonic()))
                    else:
                        self._condition.wait(min(left, _LONGEST_SLEEP if look is None else LOOK_SECONDS))
                        if look is not None:
                            look()
                return outcome
            finally:
                if self._outcomes.pop(ticket) is None:
                    self._table.withdraw(rank, ticket)

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.ticket in self._outcomes:
                self._outcomes[outcome.ticket] = outcome
        if outcomes:
            self._condition.notify_all()


class ThreadRendezvous:
    """The rendezvous of one of several threads."""

    kind = "threads"

    def __init__(self, group: ThreadGroup, rank: int) -> None:
        self.rank = rank
        self.size = group.size
        self._group = group
        self._closed = False

    def exchange(
        self,
        key: str,
        index: int,
        count: int,
        payload: bytes,
        fds: Sequence[int],
        timeout: float,
        members: Sequence[int] | None = None,
        look: Callable[[], None] | None = None,
    ) -> list[tuple[bytes, list[int]]]:
        """See `Rendezvous.exchange`."""
        check_process(self._group.pid)
        check_arguments(self.size, key, index, count, timeout)
        if self._closed:
            raise BootstrapError("the rendezvous is closed", rank=self.rank)
        owned = Descriptors.copy_of(fds)
        outcome = self._group.exchange(
            self.rank,
            key,
            index,
            count,
            bytes(payload),
            owned,
            timeout,
            None if members is None else frozenset(members),
            look,
        )
        if outcome.parts is None:
            raise ExchangeError(
                outcome.error,
                cause=outcome.cause,
                missing=outcome.missing,
                rank=self.rank,
                peer=outcome.peer,
                collective="exchange",
            )
        copies = [Descriptors.copy_of(part.descriptors.fds) for part in outcome.parts]
        return [(part.payload, copy.take()) for part, copy in zip(outcome.parts, copies, strict=True)]

    def release(self, key: str) -> None:
        """See `Rendezvous.release`: the ranks are one process, and end together."""

    def close(self) -> None:
        """See `Rendezvous.close`."""
        if not self._closed:
            self._closed = True
            if self._group.pid == os.getpid():
                self._group.leave(self.rank, "has closed its rendezvous")


class _Run:
    """One `run_threads` under way."""

    def __init__(self, size: int, abort: Callable[[Any], None]) -> None:
        self.group = ThreadGroup(size)
        self.abort = abort
        self.results: list[Any] = [None] * size
        self.failure: BaseException | None = None
        self._lock = threading.Lock()
        self._communicators: dict[int, Any] = {}

    def run(
        self, rank: int, make: Callable[[Rendezvous], Any], fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        """The body of one thread."""
        rendezvous = self.group.rendezvous(rank)
        try:
            communicator = make(rendezvous)
            with self._lock:
                self._communicators[rank] = communicator
                failed = self.failure is not None
            if failed:
                self._abort(communicator)
            self.results[rank] = fn(communicator, *args)
        except BaseException as error:
            self.fail(error, rank)
        finally:
            rendezvous.close()

    def fail(self, error: BaseException, rank: int | None) -> None:
        """Keep the first failure and let nobody wait for the failed rank."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = error
            own = [self._communicators[rank]] if rank in self._communicators else []
            others = [each for other, each in self._communicators.items() if other != rank]
        ranks = range(self.group.size) if rank is None else [rank]
        for each in ranks:
            self.group.leave(
                each, f"raised {type(error).__name__}: {error}" if rank is not None else "was interrupted"
            )
        for communicator in own + others:
            self._abort(communicator)

    def _abort(self, communicator: Any) -> None:
        with contextlib.suppress(Exception):  # the failure that led here is the one to report
            self.abort(communicator)


def _abort(communicator: Any) -> None:
    if callable(abort := getattr(communicator, "abort", None)):
        abort()


def run_threads(
    n: int,
    fn: Callable[..., Result],
    *args: Any,
    make: Callable[[Rendezvous], Any] = lambda rendezvous: rendezvous,
    abort: Callable[[Any], None] = _abort,
) -> list[Result]:
    """Run ``fn(make(rendezvous), *args)`` in ``n`` threads, one per rank; return the results by rank.

    When a rank raises, ``abort`` is called with what ``make`` made for each rank (by default it calls the method of
    that name, if there is one), exchanges that wait for it
    fail, all threads are joined, and the exception of the rank that failed first is raised. Raises
    InvalidArgumentError when ``n`` is less than 1.
    """
    if n < 1:
        raise InvalidArgumentError(f"run_threads needs at least one thread, not {n}")
    run = _Run(n, abort)
    threads = [
        threading.Thread(
            target=contextvars.copy_context().run,
            args=(run.run, rank, make, fn, args),
            name=f"pycollectives-rank-{rank}",
            daemon=True,
        )
        for rank in range(n)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C
        run.fail(error, None)
        for thread in threads:
            thread.join(timeout=5.0)
        raise
    if run.failure is not None:
        try:
            raise run.failure
        finally:
            del run  # the traceback must not keep the communicators alive
    return run.results
