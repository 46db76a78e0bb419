"""Commands that need ranks: they start their own, or are ranks of a job that exists."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from .. import _core
from ..bootstrap import launched, mpi, torchrun
from ..bootstrap.launcher import launch
from ..bootstrap.settings import number
from ..errors import InvalidArgumentError
from ..extended_dtypes import dtype_of
from ..schedule.registry import suggest

_TERMINAL = "PYCOLLECTIVES_TERMINAL"  # the launcher's standard output is a terminal of this many columns


def job_size() -> int | None:
    """The number of ranks of the job that this process belongs to; None outside of one, 0 if unknown."""
    if launched.present():
        return number(launched.SIZE)
    if (size := mpi.launched_size()) is not None:
        return size
    return number("WORLD_SIZE") if torchrun.present() else None


def become_ranks(n: int | None, default: int, *, timeout: float | None = None) -> None:
    """Returns in every rank. Outside of a job, runs this same command line as a job of `n` ranks and exits.

    Raises InvalidArgumentError when `n` contradicts the job that this process belongs to.
    """
    size = job_size()
    if size is None:
        raise typer.Exit(run_as_job(n or default, timeout=timeout))
    if n is not None and size not in (0, n):
        raise InvalidArgumentError(f"-n {n} inside a job of {size} ranks: leave -n out, its ranks are used")


def run_as_job(n: int, *, timeout: float | None = None) -> int:
    """Runs this same command line as a job of `n` ranks; returns its exit code."""
    env = dict(os.environ)
    if sys.stdout.isatty():
        env[_TERMINAL] = str(shutil.get_terminal_size().columns)
    return launch(n, ["pycollectives", *sys.argv[1:]], module=True, env=env, timeout=timeout)


def rank_counts(text: str) -> list[int]:
    """The numbers of ranks in `2,4,8`, each once. Raises InvalidArgumentError."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise InvalidArgumentError(f"-n {text!r}: expected numbers of ranks, such as 2,4,8")
    return list(dict.fromkeys(counts))


def console() -> Console:
    """The console of standard output; in ranks that this command has started, that of the launcher's."""
    columns = number(_TERMINAL)
    if columns:
        return Console(force_terminal=True, width=columns, highlight=False)
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def progress_bar(screen: Console, time: ProgressColumn, *, shown: bool) -> Progress:
    """A bar that is drawn only when it is told to: a thread that redraws it would disturb what is measured."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), time
    hidden = not (shown and screen.is_terminal)
    return Progress(*columns, console=screen, transient=True, auto_refresh=False, disable=hidden)


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype of that name; InvalidArgumentError for one that the library cannot reduce."""
    if name not in _core.DTYPES:
        known = ", ".join(_core.DTYPES)
        raise InvalidArgumentError(f"unknown dtype {name!r}{suggest(name, _core.DTYPES)}. Known: {known}")
    return dtype_of(name)
