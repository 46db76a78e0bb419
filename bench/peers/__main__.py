"""pycollectives beside the other libraries that a Python user could install. See bench/peers/README.md."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pycollectives.bench import parse_sizes
from pycollectives.bench.report import machine

from . import catalogue
from .algorithms import CONTESTS
from .controller import Controller, Options
from .goals import judge
from .install import InstallError, install
from .results import Measured, Results, size
from .tables import goals_table, tables

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "barrier")
WIDTH = 200  # columns, where the output is no terminal
app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich", help=__doc__)

Ranks = Annotated[str, typer.Option("--ranks", "-n", help="Numbers of ranks: `2,4,8`.")]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Each column is measured once in each.")]
Again = Annotated[
    int, typer.Option("--again", help="So many rounds at most are repeated when other programs disturb.")
]
Patience = Annotated[
    float,
    typer.Option("--patience", metavar="SECONDS", help="Wait so long for other programs before a round."),
]
Batch = Annotated[
    float, typer.Option("--batch", metavar="SECONDS", help="Timed calls per column, mode and round.")
]
Modes = Annotated[
    str, typer.Option("--modes", help="warm: the same buffers; fresh: rewritten before each call.")
]
StopAfter = Annotated[
    float, typer.Option("--stop-after", metavar="SECONDS", help="Then what was measured is reported.")
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything here.")]
Environments = Annotated[
    Path,
    typer.Option(
        "--environments", envvar="PEERS_ENVIRONMENTS", metavar="DIR", help="The virtual environments."
    ),
]


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _peers(names: str) -> list[catalogue.Peer]:
    wanted = list(catalogue.PEERS) if names == "all" else ["ours", *_list(names)]
    for name in wanted:
        if name not in catalogue.PEERS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(catalogue.PEERS)}")
    return [catalogue.PEERS[name] for name in dict.fromkeys(wanted)]


@app.command()
def run(
    ranks: Ranks = "2,4,8",
    collectives: Annotated[
        str, typer.Option("--collectives", "-c", help=f"`all`: {', '.join(COLLECTIVES)}.")
    ] = "all",
    sizes: Annotated[
        str, typer.Option("--sizes", help="Bytes of the whole vector: `8,4K,1M`, or `8:256M:x4`.")
    ] = "8:256M:x4",
    dtypes: Annotated[str, typer.Option("--dtypes", help="`float32,bfloat16`.")] = "float32",
    peers: Annotated[str, typer.Option("--peers", help=f"`all`: {', '.join(catalogue.PEERS)}.")] = "all",
    modes: Modes = "warm,fresh",
    rounds: Rounds = 9,
    again: Again = 9,
    patience: Patience = 2.0,
    batch: Batch = 0.02,
    in_place: Annotated[bool, typer.Option("--in-place", help="All-reduce overwrites its input.")] = False,
    stop_after: StopAfter = float("inf"),
    json: Json = None,
    environments: Environments = catalogue.ENVIRONMENTS,
) -> None:
    """Measure pycollectives and its peers, interleaved."""
    screen = _console()
    failures: list[dict[str, object]] = []
    options = Options(
        peers=[each for each in _peers(peers) if _installed(screen, each, environments, failures)],
        ranks=[int(n) for n in _list(ranks)],
        collectives=COLLECTIVES if collectives == "all" else _list(collectives),
        dtypes=_list(dtypes),
        sizes=parse_sizes(sizes),
        modes=_list(modes),
        rounds=rounds,
        again=again,
        patience=patience,
        batch=batch,
        in_place=in_place,
        environments=environments,
        stop_after=stop_after,
    )
    _finish(screen, _measure(screen, options), failures, json)


@app.command()
def algorithms(
    ranks: Ranks = "4,8",
    only: Annotated[str, typer.Option("--only", help="`ring,torus`; an algorithm's name.")] = "",
    modes: Modes = "warm",
    rounds: Rounds = 9,
    again: Again = 9,
    patience: Patience = 2.0,
    batch: Batch = 0.02,
    stop_after: StopAfter = float("inf"),
    json: Json = None,
    environments: Environments = catalogue.ENVIRONMENTS,
) -> None:
    """The classic algorithms: pycollectives against the same one inside Open MPI and MPICH."""
    screen = _console()
    failures: list[dict[str, object]] = []
    whole = Results()
    end = time.monotonic() + stop_after
    for contest in CONTESTS:
        if only and contest.algorithm not in _list(only):
            continue
        options = Options(
            peers=[each for each in contest.peers() if _installed(screen, each, environments, failures)],
            ranks=[int(n) for n in _list(ranks)],
            collectives=(contest.collective,),
            sizes=contest.sizes,
            modes=_list(modes),
            rounds=rounds,
            again=again,
            patience=patience,
            batch=batch,
            algorithm=contest.algorithm,
            environments=environments,
            stop_after=end - time.monotonic(),
        )
        if options.stop_after <= 0:
            break
        found = _measure(screen, options)
        whole.cases += found.cases
        whole.failures += found.failures
        whole.versions |= found.versions
        whole.complete = found.complete
        if not found.complete:
            break
    _finish(screen, whole, failures, json)


@app.command()
def report(
    pieces: Annotated[list[Path], typer.Argument(help="JSON files of `run` and `algorithms`.")],
    json: Json = None,
    text: Annotated[
        Path | None, typer.Option("--text", metavar="FILE", help="Write the tables here.")
    ] = None,
    chart: Annotated[
        list[Path] | None,
        typer.Option("--chart", metavar="FILE", help="Draw the ratios: .png, .svg; repeat it."),
    ] = None,
) -> None:
    """Put pieces together: tables, goals, a chart. Of a case that several pieces have, the last one counts."""
    screen = _console(record=text is not None)
    results = Results.read(pieces)
    if json is not None:
        results.write(json)
    _show(screen, results)
    if text is not None:
        text.write_text("\n".join(line.rstrip() for line in screen.export_text().splitlines()) + "\n")
    if chart:
        from .chart import draw

        draw(results, chart)


def _console(record: bool = False) -> Console:
    return Console(soft_wrap=True, width=None if sys.stdout.isatty() and not record else WIDTH, record=record)


def _installed(
    screen: Console, peer: catalogue.Peer, environments: Path, failures: list[dict[str, object]]
) -> bool:
    try:
        install(peer, environments)
    except InstallError as error:
        screen.print(f"{peer.name} cannot be installed: {error}", style="red", markup=False)
        failures.append({"peer": peer.name, "ranks": 0, "reason": f"not installed: {error}"})
        return False
    return True


def _measure(screen: Console, options: Options) -> Results:
    """Ctrl-C and SIGTERM end it early."""

    def done(case: Measured) -> None:
        name = f"{case.collective} {case.algorithm} {case.dtype} {size(case.nbytes)}"
        ratios = [f"{mode} {case.ratio(mode, 'array') or '-'}" for mode in case.times]
        screen.print(f"{case.ranks} ranks {name}: {', '.join(ratios)}", style="dim", markup=False)
        for column, why in case.left_out.items():
            screen.print(f"  {column}: {why}", style="dim", markup=False)
        screen.file.flush()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        return Controller(options, lambda text: screen.print(text, style="red", markup=False), done).run()
    finally:
        signal.signal(signal.SIGTERM, before)


def _finish(screen: Console, results: Results, failures: list[dict[str, object]], json: Path | None) -> None:
    results.failures[:0] = failures
    results.machine = machine()
    results.commands = [sys.argv[1:]]
    results.settings = {
        name: value for name, value in os.environ.items() if name.startswith("PYCOLLECTIVES_")
    }
    if revision := _revision():
        results.versions["revision"] = revision
    if json is not None:
        results.write(json)
    _show(screen, results)


def _revision() -> str:
    """Of this repository; empty outside one."""
    command = ["git", "-C", str(catalogue.ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except OSError:
        return ""


def _show(screen: Console, results: Results) -> None:
    for table in tables(results):
        screen.print(table)
    if verdicts := judge(results):
        screen.print(goals_table(verdicts))
    for failure in results.failures:
        text = f"left out: {failure['peer']} ({failure['ranks']} ranks): {failure['reason']}"
        screen.print(text, style="red", markup=False)


if __name__ == "__main__":
    app()
