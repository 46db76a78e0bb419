"""`pycollectives run`: start a job, on this host or on several."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..bootstrap import remote
from ..bootstrap.launcher import launch


def run(
    ranks: Annotated[
        int | None, typer.Option("-n", "--ranks", min=1, help="Number of ranks.", show_default="the cores")
    ] = None,
    prefix: Annotated[
        bool, typer.Option("--prefix", help="Begin each line of output with its rank.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="End the job after this time.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Let the other ranks run on when one has failed.")
    ] = False,
    bind: Annotated[
        bool, typer.Option("--bind", help="Bind each rank to its share of the cores, in order.")
    ] = False,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="DIR",
            envvar="PYCOLLECTIVES_REPORT",
            help="Write the last calls there on a failure.",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts", metavar="A,B", help="Start the ranks on these hosts, by mpiexec; a:4 for 4 of them."
        ),
    ] = None,
    module: Annotated[bool, typer.Option("-m", "--module", help="TARGET is a Python module.")] = False,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET [ARGS]...", help="A Python script, a module (with -m) or a command."),
    ] = None,
) -> None:
    """Run a script on N ranks of this host, or of several.

    The options of `pycollectives run` come first: all that follows TARGET is the script's own, unchanged.
    A rank that fails ends the job with its exit code; after --timeout the code is 124. Standard error then says
    which ranks kept the others waiting, and in which call. With --hosts the ranks are started by
    the mpiexec that is installed here, in blocks, and the hosts need the same files in the same places.

    [bold]Examples[/bold]

      pycollectives run -n 4 train.py --epochs 3

      pycollectives run -n 4 --prefix -m mypackage.train

      pycollectives run --hosts a,b -n 8 train.py
    """
    if not command:
        raise typer.BadParameter("there is nothing to run: name a script, a module (-m) or a command")
    if hosts is not None:
        if prefix or keep_going or bind:
            raise typer.BadParameter(
                "--prefix, --keep-going and --bind are not for --hosts: use mpiexec's own options"
            )
        raise typer.Exit(
            remote.launch(remote.parse_hosts(hosts, ranks), command, module=module, timeout=timeout)
        )
    n = len(os.sched_getaffinity(0)) if ranks is None else ranks
    if ranks is None and command[1:2] == ["-n"]:
        typer.echo(
            f"pycollectives: starting {n} ranks; `-n` behind {command[0]} is its own option, before it the number of ranks",
            err=True,
        )
    code = launch(
        n,
        command,
        prefix=prefix,
        timeout=timeout,
        module=module,
        keep_going=keep_going,
        report=report,
        bind=bind,
    )
    raise typer.Exit(code)
