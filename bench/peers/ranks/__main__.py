"""One rank: `python -m bench.peers.ranks MODULE DOOR`. The module has `start() -> Library`.

It does what the controller behind the socket DOOR asks for. Between two requests it is
blocked in a read, in no library, so that it costs the others nothing.
"""

from __future__ import annotations

import importlib
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from pycollectives.bench.arrays import CaseArrays
from pycollectives.bench.cases import Case
from pycollectives.extended_dtypes import dtype_of
from pycollectives.schedule import COLLECTIVES

from .library import Library, UnsupportedCaseError
from .timing import Timed

_BUSY = 0.010  # seconds: a few ticks of the kernel's clock


class Bound(NamedTuple):
    """What is timed, and what is done before each fresh call and after all of them."""

    timed: Timed
    refill: Callable[[], object]
    clear: Callable[[], object]


def _nothing() -> None:
    """There is nothing to clear."""


class Rank:
    """Answers requests: each is the name of a method and its arguments."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.bound: dict[str, Bound] = {}
        self.kept: dict[tuple[str, bool], CaseArrays] = {}

    def prepare(self, column: str, collective: str, dtype: str, count: int, in_place: bool) -> dict[str, Any]:
        """Make the arrays of a case, call once and check. Columns with arrays of the same kind share them."""
        lib = self.library
        op = "sum" if COLLECTIVES[collective].reduces and count else None
        case = Case(collective, None, dtype_of(dtype), op, count)
        over = lib.in_place(case, in_place)
        key = lib.arrays_of(column), over
        if key not in self.kept:
            make = partial(lib.make, column)
            self.kept[key] = CaseArrays(case, lib.rank, lib.size, make, in_place=over, everywhere=True)
        arrays = self.kept[key]
        line, names = lib.bind(column, case, arrays)
        timed = Timed(line, names)
        arrays.refill()
        arrays.spoil()
        lib.barrier()
        timed.once()
        wrong = arrays.wrong()
        clear = arrays.clear if over and op else _nothing  # sums over sums would run away
        clear()
        self.bound[column] = Bound(timed, arrays.refill, clear)
        return {"line": line, "wrong": wrong, "in_place": over}

    def prepare_memcpy(self, column: str, nbytes: int) -> dict[str, Any]:
        """No collective: every rank copies `nbytes` for itself, all at the same time."""
        source, target = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
        line = "copyto(target, source)"
        timed = Timed(line, {"copyto": np.copyto, "target": target, "source": source})
        self.bound[column] = Bound(timed, lambda: source.fill(1), _nothing)
        return {"line": line, "wrong": 0, "in_place": False}

    def drop(self) -> None:
        """Let go of all arrays."""
        self.bound.clear()
        self.kept.clear()

    def warm(self, column: str, warm_up: int, laps: int, calls: int) -> tuple[list[int], list[int]]:
        """Stamps of laps of calls."""
        if warm_up:
            _compute()
        self.library.barrier()
        return self.bound[column].timed.warm(self.library.barrier, warm_up, laps, calls)

    def fresh(self, column: str, warm_up: int, calls: int) -> tuple[list[int], list[int]]:
        """Stamps of single calls."""
        bound = self.bound[column]
        if warm_up:
            _compute()
        self.library.barrier()
        found = bound.timed.fresh(self.library.barrier, bound.refill, warm_up, calls)
        bound.clear()
        return found

    def flag(self) -> float | None:
        """How far apart the cores are."""
        _compute()
        return self.library.flag()


def _compute() -> None:
    """Be busy for a moment, as a program is between two collectives. Ranks that have just been woken may be on one core;
    the kernel spreads them when both want to run."""
    until = time.monotonic() + _BUSY
    while time.monotonic() < until:
        pass


def _end_with(door: socket.socket) -> None:
    """Ends this process when the controller is gone, also out of a call that hangs. Sleeps until then."""

    def watch() -> None:
        poll = select.poll()
        poll.register(door.fileno(), select.POLLRDHUP)
        poll.poll()
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Say hello, then serve."""
    name, path = sys.argv[1:]
    door = socket.socket(socket.AF_UNIX)
    door.connect(path)
    _end_with(door)
    connection = Connection(os.dup(door.fileno()))
    try:
        library: Library = importlib.import_module(name).start()
    except BaseException as error:
        connection.send(("error", f"{type(error).__name__}: {error}", traceback.format_exc()))
        raise
    connection.send(("hello", (library.rank, library.size, os.getpid(), library.version), ""))
    rank = Rank(library)
    while True:
        method, arguments = connection.recv()
        if method == "quit":
            break
        try:
            connection.send(("done", getattr(rank, method)(*arguments), ""))
        except UnsupportedCaseError as error:
            connection.send(("unsupported", str(error), ""))
        except Exception as error:
            connection.send(("error", f"{type(error).__name__}: {error}", traceback.format_exc()))
    rank.drop()
    sys.stdout.flush()


main()
