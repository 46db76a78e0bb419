"""Start the ranks of a job on this host, pass on their output and signals, end them together."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pycollectives.bootstrap.job import Job
from pycollectives.errors import InvalidArgumentError

REPORT = "PYCOLLECTIVES_REPORT"


def launch(
    n: int,
    argv: Sequence[str],
    *,
    prefix: bool = False,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    module: bool = False,
    keep_going: bool = False,
    report: str | None = None,
    bind: bool = False,
) -> int:
    """Run ``argv`` as ``n`` ranks of one job and return the job's exit code.

    ``argv`` is a Python script with its arguments, a module with ``module``, or any executable command. Each
    rank is a process group of its own and dies with the launcher; rank 0 has the launcher's standard input, the
    others none. ``prefix`` puts "[rank] " before each line of output. ``env`` replaces the environment that
    the ranks start from. ``bind`` gives each rank its share of the cores (binding.py).

    The first rank that fails ends the job: the others get SIGTERM and, three seconds later, SIGKILL, and its
    exit code is returned (128 + the signal's number if it died of one). With ``keep_going`` the others run
    on, and the code is still that of the first to fail. After ``timeout`` seconds the job is ended with code
    124. When the job fails, standard error says which ranks kept the others waiting; all that the flight
    recorders hold is then written into the directory ``report`` (JSON, and a table as text; by default that of
    the variable PYCOLLECTIVES_REPORT, if it is set). From the main thread, SIGINT, SIGTERM, SIGHUP, SIGUSR1
    and SIGUSR2 are forwarded to every rank once.

    Raises InvalidArgumentError when there is nothing to run.
    """
    if n < 1:
        raise InvalidArgumentError(f"a job needs at least one rank, not {n}")
    command = _command(argv, module)
    settings = dict(os.environ if env is None else env)
    job = Job(n, prefix=prefix, timeout=timeout, keep_going=keep_going, bind=bind)
    job.report_folder = report or settings.get(REPORT) or None
    try:
        return job.run(command, settings)
    finally:
        job.close()


def _command(argv: Sequence[str], module: bool) -> list[str]:
    if not argv:
        raise InvalidArgumentError("there is no script to run")
    target = Path(argv[0])
    if module:
        return [sys.executable, "-m", *argv]
    if target.suffix in (".py", ".pyz", ".pyc") or (target / "__main__.py").is_file():
        if not target.exists():
            raise InvalidArgumentError(f"there is no script {argv[0]!r}")
        return [sys.executable, *argv]
    found = shutil.which(argv[0])
    if found is None and target.is_file():
        return [sys.executable, *argv]
    if found is None:
        raise InvalidArgumentError(f"{argv[0]!r} is neither a Python script nor a command")
    return [found, *argv[1:]]
