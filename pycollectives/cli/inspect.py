"""`pycollectives inspect`: what a running job does."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..bootstrap.inspector import ask
from ..flight import report


def inspect(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The launcher, or any rank of the job.")],
    calls: Annotated[int, typer.Option("--calls", min=1, help="Show so many calls of each rank.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that is recorded, as JSON.")] = False,
) -> None:
    """Show the last calls of the ranks of a running job, and who keeps the others waiting.

    The job is asked over a private socket; it answers the user who runs it, nobody else. It need not be able to
    run Python code: the ranks keep their records in shared memory. Works for jobs of `pycollectives run`, mpiexec
    and torchrun.
    """
    snapshot = ask(pid)
    typer.echo(json.dumps(snapshot, indent=1) if as_json else report(snapshot, calls))
