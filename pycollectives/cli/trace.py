"""`pycollectives trace`: what every rank holds after every step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ..errors import UnsupportedError
from ..schedule import COLLECTIVES, find
from ..teach import Trace, check_arguments, example, example_length
from ..teach import trace as run_trace
from ..world import init, run_threads
from .ranks import become_ranks, console, dtype_named, job_size

if TYPE_CHECKING:
    from ..communicator import Communicator


def trace(
    collective: Annotated[str, typer.Argument(help=f"One of: {', '.join(COLLECTIVES)}.", show_default=False)],
    algorithm: Annotated[
        str | None,
        typer.Option(
            "-a",
            "--algorithm",
            help="Its algorithm; a torus takes a shape: 'torus(2x3)'.",
            show_default="the selector's choice",
        ),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("-n", "--ranks", min=1, help="Number of ranks.", show_default="4")
    ] = None,
    elements: Annotated[
        int | None,
        typer.Option("--elements", min=1, help="Length of the vector.", show_default="one per chunk"),
    ] = None,
    op: Annotated[str, typer.Option("--op", help="Reduction operator.")] = "sum",
    root: Annotated[int, typer.Option("--root", min=0, help="Root of broadcast and reduce.")] = 0,
    dtype: Annotated[str, typer.Option("--dtype", help="Kind of the elements.")] = "int64",
    operations: Annotated[
        bool, typer.Option("--operations", help="Show what each rank did in each step, too.")
    ] = False,
    threads: Annotated[
        bool, typer.Option("--threads", help="Ranks are threads of one process, not processes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run an algorithm on real ranks and show the state of every rank after every step.

    The data are 1, 2, 3, ... over all ranks, as in the textbooks; "." is where a rank has nothing yet, and
    what a step has changed is marked. Scratch memory, where the algorithm needs
    any, stands behind it: s0, s1, ... in the table, behind the bar in plain text.

    [bold]Examples[/bold]

      pycollectives trace all_reduce --algorithm ring -n 4

      pycollectives trace broadcast -a binomial -n 6 --root 2 --operations
    """
    size = (None if threads else job_size()) or ranks or 4
    kind = dtype_named(dtype)
    check_arguments(collective, size, kind, op, root)
    if algorithm is not None and (why := find(collective, algorithm).obstacle(size)):
        raise UnsupportedError(f"{collective} by {algorithm!r} on {size} ranks: {why}")
    if elements is not None:
        example(collective, 0, size, elements, kind)

    def body(comm: Communicator) -> Trace:
        name = algorithm or comm.explain(collective, nbytes=8 * comm.size).chosen
        count = elements or example_length(collective, name, comm.size)
        x = example(collective, comm.rank, comm.size, count, kind)
        return run_trace(comm, collective, name, x, op, root=root)

    if threads:
        found = run_threads(size, body)[0]
    else:
        become_ranks(ranks, size)
        with init() as comm:
            found = body(comm)
            if comm.rank != 0:
                return
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
        return
    screen = console()
    if screen.is_terminal:
        screen.print(_table(found, operations))
    else:
        typer.echo(found.text(operations=operations))


def _table(found: Trace, operations: bool) -> Table:
    """One table; a section per step, changed values highlighted."""
    length, scratch = found.start.values.shape[1], found.scratch
    table = Table(title=found.title, box=box.SIMPLE, title_justify="left", header_style="dim")
    table.add_column("")
    table.add_column("rank", justify="right")
    for i in range(length):
        table.add_column(str(i), justify="right")
    for i in range(scratch):
        table.add_column(f"s{i}", justify="right")
    if operations:
        table.add_column("operations")
    for step in found:
        for rank in range(found.size):
            row = zip(step.cells(rank), (*step.changed[rank], *step.scratch.changed[rank]), strict=True)
            cells = [Text(cell, "bold green" if changed else "") for cell, changed in row]
            did = ["; ".join(step.operations[rank])] if operations else []
            table.add_row(step.title if rank == 0 else "", str(rank), *cells, *did)
        table.add_section()
    return table
