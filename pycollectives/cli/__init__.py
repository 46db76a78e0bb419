"""The command `pycollectives`; one file per command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from .. import __version__
from ..errors import CollectiveError, InvalidArgumentError, UnsupportedError
from . import bench, doctor, explain, inspect, numerics, run, topo, trace, tune

app = typer.Typer(
    name="pycollectives",
    help="Collective communication: start jobs, measure, and see algorithms work.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    "run",
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
)(run.run)
app.command("bench")(bench.bench)
app.command("tune")(tune.tune)
app.command("explain")(explain.explain)
app.command("trace")(trace.trace)
app.command("topo")(topo.topo)
app.command("inspect")(inspect.inspect)
app.command("doctor")(doctor.doctor)
app.command("numerics")(numerics.numerics)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"pycollectives {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Collective communication: start jobs, measure, and see algorithms work."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Errors of the library are one line on standard error.

    Exit codes: 0 success, 1 a failure or a wrong result, 2 a wrong command line; `run` passes on its job's.
    """
    try:
        result = app(arguments, standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except CollectiveError as error:
        rank = "" if error.rank is None else f"rank {error.rank}: "
        print(f"pycollectives: {rank}{error}", file=sys.stderr)
        return 2 if isinstance(error, (InvalidArgumentError, UnsupportedError)) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"pycollectives: {error}", file=sys.stderr)
        return 1
    return result if isinstance(result, int) else 0
