"""`pycollectives tune`: measure this machine and remember the fastest algorithms."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import TimeElapsedColumn

from ..bench import parse_sizes
from ..cost import hardware
from ..dispatch import Tuning, tuning_file
from ..errors import InvalidArgumentError
from ..schedule import COLLECTIVES
from ..schedule.registry import contract_of
from ..settings import own_cores
from ..tune import QUICK, Pace, Plan, Result, report, run
from ..world import init
from .ranks import console, dtype_named, job_size, progress_bar, rank_counts, run_as_job

if TYPE_CHECKING:
    from ..communicator import Communicator


def tune(
    ranks: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--ranks",
            metavar="N[,N...]",
            help="Numbers of ranks to measure with, one job after the other.",
            show_default="the job's, or the cores",
        ),
    ] = None,
    collective: Annotated[
        list[str] | None,
        typer.Option("-c", "--collective", help="What to measure; repeat it.", show_default="all"),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            help="Bytes of the vector, as in `bench`.",
            show_default="8:16M:x4, with --quick 8:2M:x16",
        ),
    ] = None,
    dtypes: Annotated[
        str, typer.Option("--dtypes", help="Kinds of elements to reduce, by one dtype of each.")
    ] = "float32,bfloat16",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes and rounds: seconds instead of minutes.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write here.", show_default="in the cache directory"),
    ] = None,
) -> None:
    """Measure this machine, and remember the fastest algorithms.

    First the parameters of the cost model (time per message, byte and reduction), then the algorithms of each
    collective against each other, size by size. Results are checked before they are timed, rounds are interleaved, and
    an algorithm displaces the predicted one only if it wins by 5 % in most rounds. Communicators made afterwards on this
    machine use what was learnt; a later run adds to it. In a job on several hosts only the parameters of the network are
    measured, and kept on the host of rank 0, whose file counts. PYCOLLECTIVES_TUNING=off turns it off, =FILE takes another file.
    Exit code 1 if a result is wrong.

    [bold]Examples[/bold]

      pycollectives tune --quick

      pycollectives tune -n 2,4,8 -c all_reduce --sizes 1K:64M:x4

      mpiexec -n 4 pycollectives tune

      mpiexec -n 8 -hosts a,b pycollectives tune
    """
    for verb in collective or ():
        contract_of(verb)
    plan = Plan(
        collective or list(COLLECTIVES),
        [dtype_named(name.strip()) for name in dtypes.split(",")],
        parse_sizes(sizes or ("8:2M:x16" if quick else "8:16M:x4")),
        QUICK if quick else Pace(),
    )
    path = output or tuning_file.path_in_use()
    if path is None:
        raise InvalidArgumentError(f"{tuning_file.VARIABLE} is off: name a file by --output")
    os.environ[tuning_file.VARIABLE] = str(path.absolute())
    wanted = rank_counts(ranks) if ranks else []
    size = job_size()
    if size is None:
        codes = [run_as_job(n) for n in wanted or [own_cores()]]
        raise typer.Exit(max(codes))
    if wanted and size not in (0, *wanted):
        raise InvalidArgumentError(
            f"-n {ranks} inside a job of {size} ranks: leave -n out, its ranks are used"
        )

    with init() as comm:
        comm.timeout = 120.0  # no single call takes that long
        result = _measure(comm, plan)
        if comm.rank == 0:
            _keep(result, path)
        comm.barrier()
    if comm.rank == 0 and result.wrong:
        raise typer.Exit(1)


def _measure(comm: Communicator, plan: Plan) -> Result:
    """Collective: measure everything; rank 0 shows how far it is and what came out."""
    screen, shows = console(), comm.rank == 0
    settings = comm.settings
    machine = hardware().defaults(settings.tuning.machine.cores, settings.segment_bytes)
    steps = 1 if settings.hosts else 1 + sum(map(len, plan.cases(comm.size)))
    if shows:
        ranks = f"{comm.size} rank" + "s" * (comm.size > 1)
        ranks += f", {len(set(comm.hosts))} hosts, the first one" if settings.hosts else ""
        screen.print(f"{ranks} on {hardware().key()}", style="bold", markup=False)
    with progress_bar(screen, TimeElapsedColumn(), shown=shows) as bar:
        task = bar.add_task("", total=steps, completed=-1)

        def step(what: str) -> None:
            bar.update(task, description=what, advance=1)
            bar.refresh()

        result = run(comm, plan, Tuning(machine), step)
    if shows:
        screen.print(report.parameters(result, machine))
        if text := report.remark(result):
            screen.print(text, style="yellow", markup=False, soft_wrap=True)
        if result.outcomes:
            screen.print()
            screen.print(report.winners(result))
            screen.print(report.LEGEND, style="dim", markup=False, soft_wrap=True)
        for (verb, name, nbytes), count in result.wrong.items():
            text = f"{verb} by {name}, {nbytes} bytes: {count} elements are wrong; it was left out"
            screen.print(text, style="bold red", markup=False)
    return result


def _keep(result: Result, path: Path) -> None:
    """Add what was learnt to the file."""
    before = tuning_file.load().content or tuning_file.TuningFile()
    screen = console()
    merged = tuning_file.TuningFile(
        {**before.parameters, **result.calibration.parameters},
        before.table.merged(result.series),
        result.calibration.flag_ns or before.flag_ns,
        result.made,
    )
    tuning_file.save(merged, path)
    screen.print(f"\nkept in {path}", style="dim", markup=False, soft_wrap=True)
