"""`pycollectives bench`: measure collectives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import TimeRemainingColumn

from ..bench import Case, Options, Report, cases, parse_sizes, report
from ..bench import measure as measure_case
from ..bench.distance import Distance
from ..errors import InvalidArgumentError
from ..settings import own_cores
from ..world import init
from .ranks import become_ranks, console, dtype_named, job_size, progress_bar

if TYPE_CHECKING:
    from ..communicator import Communicator


def bench(
    ranks: Annotated[
        int | None,
        typer.Option(
            "-n", "--ranks", min=1, help="Start this many ranks.", show_default="the job's, or the cores"
        ),
    ] = None,
    collective: Annotated[
        list[str] | None,
        typer.Option(
            "-c", "--collective", help="What to measure; repeat it, or `all`.", show_default="all_reduce"
        ),
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            "-a", "--algorithm", help="By which algorithm; repeat it, or `all`.", show_default="auto"
        ),
    ] = None,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Bytes of the vector: `8,1K,1M`, `8:64M:x4` or `1M:4M:+1M`.")
    ] = "8:16M:x4",
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", help="Kind of the elements; repeat it.", show_default="float32"),
    ] = None,
    op: Annotated[str, typer.Option("--op", help="Reduction operator.")] = "sum",
    in_place: Annotated[
        bool, typer.Option("--in-place/--out-of-place", help="The result overwrites the input.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh/--warm", help="Each rank writes its input anew before each call, untimed."),
    ] = False,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Arrays in symmetric memory.")] = False,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Timed calls.", show_default="by --min-time")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option("--warmup", min=0, help="Calls before these.", show_default="about 20 ms")
    ] = None,
    min_time: Annotated[
        float, typer.Option("--min-time", min=0, metavar="SECONDS", help="Timed calls take about this long.")
    ] = 0.3,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare every result with NumPy's.")
    ] = True,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything here.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows here.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw here: a .png or an .html file.")
    ] = None,
) -> None:
    """Measure collectives: time, bandwidth, skew, and whether the result is right.

    With -n, starts its own ranks; without it, takes those of the job it runs in (`pycollectives run`,
    `mpiexec`, `torchrun`). The time of a call is the slowest rank's. Sizes and busbw are those of nccl-tests:
    reduce_scatter counts its whole input, all_gather its whole result. Exit code 1 if a result is wrong.

    [bold]Examples[/bold]

      pycollectives bench -n 4 -c all_reduce -a all --sizes 8:64M:x4

      pycollectives bench -n 2 -c all --dtype bfloat16 --fresh --json result.json

      mpiexec -n 4 pycollectives bench --sizes 1M
    """
    size = job_size() or ranks or own_cores()
    kinds = [dtype_named(each) for each in dict.fromkeys(dtype or ["float32"])]
    todo = cases(
        collective or ["all_reduce"],
        algorithm or ["auto"],
        kinds,
        op,
        parse_sizes(sizes),
        size,
        in_place=in_place,
    )
    if plot is not None:
        report.check_plot(plot)
    for file in (json, csv, plot):
        if file is not None and not file.absolute().parent.is_dir():
            raise InvalidArgumentError(f"{file}: there is no folder {file.absolute().parent}")
    become_ranks(ranks, size)

    options = Options(in_place, fresh, symmetric, iterations, warmup, min_time, check)
    with init() as comm:
        result = _measure_all(comm, todo, options)
        if comm.rank == 0:
            if json is not None:
                result.write_json(json)
            if csv is not None:
                result.write_csv(csv)
            if plot is not None:
                result.plot(plot)
        comm.barrier()
    if comm.rank == 0 and result.wrong:
        raise typer.Exit(1)


def _measure_all(comm: Communicator, todo: list[Case], options: Options) -> Report:
    """Collective: measure every case; rank 0 shows each row as soon as it is there."""
    result = Report(comm.size, options)
    distance = Distance(comm)
    screen = console()
    quiet = comm.rank != 0

    def show(*text: Any, **how: Any) -> None:
        if not quiet:
            screen.print(*text, **how, soft_wrap=True, markup=False)

    about = report.machine()
    ranks = f"{comm.size} rank" + "s" * (comm.size > 1)
    show(f"{ranks} on {about['cpu']}, {about['cores']} cores, {about['simd']}", style="bold")
    how = [
        "in place" if options.in_place else "out of place",
        "fresh buffers" if options.fresh else "warm buffers",
    ]
    show("; ".join(how + ["symmetric memory"] * options.symmetric) + "; " + report.LEGEND, style="dim")
    with progress_bar(screen, TimeRemainingColumn(), shown=not quiet) as bar:
        task, section = bar.add_task("", total=len(todo)), ""
        for case in todo:
            if case.collective != section:
                section = case.collective
                show(f"\n{section}", style="bold")
                show(report.heading())
            bar.update(task, description=f"{section} {case.nbytes} B")
            bar.refresh()
            row = measure_case(comm, case, options, distance)
            result.rows.append(row)
            show(report.line(row), style="bold red" if row.wrong else "")
            bar.advance(task)
    if result.wrong:
        show(f"\n{result.wrong} elements are wrong", style="bold red")
    return result
