"""Starting a job on several hosts: by the mpiexec that belongs to mpi4py's MPI library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pycollectives.errors import BootstrapError, InvalidArgumentError


def parse_hosts(text: str, ranks: int | None) -> list[tuple[str, int]]:
    """The hosts in "a,b" or "a:4,b:2" with their numbers of ranks.

    Hosts without a number share what is left of `ranks` in blocks as equal as can be, the first ones get more; without
    `ranks` they get one each. Raises InvalidArgumentError where that cannot be.
    """
    named: list[tuple[str, int | None]] = []
    for part in text.split(","):
        found = re.fullmatch(r"([^\s:]+)(?::([1-9]\d*))?", part.strip())
        if found is None:
            raise InvalidArgumentError(f"--hosts {text!r}: expected names as in a,b or a:4,b:2")
        named.append((found[1], None if found[2] is None else int(found[2])))
    if len({name for name, _ in named}) < len(named):
        raise InvalidArgumentError(f"--hosts {text!r} names a host twice")
    fixed, free = sum(number or 0 for _, number in named), sum(number is None for _, number in named)
    total = fixed + free if ranks is None else ranks
    left = total - fixed
    if left < free or (not free and left):
        raise InvalidArgumentError(f"{total} ranks do not fit --hosts {text!r}")
    shares = iter([left // free + (i < left % free) for i in range(free)] if free else [])
    return [(name, next(shares) if number is None else number) for name, number in named]


def mpiexec() -> Path:
    """The mpiexec of this environment, else the first on the PATH. Raises BootstrapError."""
    here = Path(sys.executable).parent / "mpiexec"
    found = str(here) if here.exists() else shutil.which("mpiexec")
    if found is None:
        raise BootstrapError(
            "there is no mpiexec: install an MPI, for example pip install 'pycollectives[mpich]'"
        )
    return Path(found)


def command(
    hosts: Sequence[tuple[str, int]],
    target: Sequence[str],
    *,
    module: bool = False,
    timeout: float | None = None,
) -> list[str]:
    """The command line of mpiexec for a script, a module or a program. Raises BootstrapError without mpiexec."""
    program = mpiexec()
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    slots = ",".join(f"{name}:{number}" for name, number in hosts)
    by = "--host" if "OpenRTE" in done.stdout or "Open MPI" in done.stdout else "-hosts"
    line = [str(program), by, slots, "-n", str(sum(number for _, number in hosts))]
    if timeout is not None:
        line = ["timeout", "--kill-after=10", f"{timeout}s", *line]
    if module:
        return [*line, sys.executable, "-m", "pycollectives", "-m", *target]
    if target[0].endswith(".py"):
        return [*line, sys.executable, "-m", "pycollectives", *target]
    return [*line, *target]


def launch(
    hosts: Sequence[tuple[str, int]],
    target: Sequence[str],
    *,
    module: bool = False,
    timeout: float | None = None,
) -> int:
    """Run a job on these hosts; returns mpiexec's exit code. A rank that fails ends the job."""
    return subprocess.run(
        command(hosts, target, module=module, timeout=timeout), env=dict(os.environ), check=False
    ).returncode
