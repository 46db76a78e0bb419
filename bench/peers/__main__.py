"""`python -m bench.peers`: see README.md beside this file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pycollectives.bench import parse_sizes
from pycollectives.bench.report import machine

from . import catalogue
from .controller import Controller, Options
from .install import InstallError, install
from .results import Measured, Results
from .tables import size, tables

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "barrier")
app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich", help=__doc__)
Environments = Annotated[
    Path,
    typer.Option("--environments", envvar="PEERS_ENVIRONMENTS", help="Where the virtual environments are."),
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
    ranks: Annotated[str, typer.Option("--ranks", "-n", help="Numbers of ranks.")] = "2,4,8",
    collectives: Annotated[str, typer.Option("--collectives", "-c", help="Or `all`.")] = "all",
    sizes: Annotated[
        str, typer.Option("--sizes", help="Bytes of the whole vector: a list, or start:end:x4.")
    ] = "8:256M:x4",
    dtypes: Annotated[str, typer.Option("--dtypes", help="float32, bfloat16, ...")] = "float32",
    peers: Annotated[str, typer.Option("--peers", help=f"Or `all`: {', '.join(catalogue.PEERS)}.")] = "all",
    modes: Annotated[str, typer.Option("--modes", help="warm, fresh.")] = "warm,fresh",
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 9,
    batch: Annotated[
        float, typer.Option("--batch", help="Seconds of timed calls per column, mode and round.")
    ] = 0.02,
    in_place: Annotated[bool, typer.Option("--in-place", help="All-reduce overwrites its input.")] = False,
    stop_after: Annotated[
        float, typer.Option("--stop-after", help="Seconds; then what was measured is reported.")
    ] = float("inf"),
    json: Annotated[Path | None, typer.Option("--json", help="Write everything here.")] = None,
    environments: Environments = catalogue.ENVIRONMENTS,
) -> None:
    """Measure pycollectives and its peers, interleaved."""
    screen = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 200)
    chosen = []
    failures = []
    for peer in _peers(peers):
        try:
            install(peer, environments)
        except InstallError as error:
            screen.print(f"{peer.name} cannot be installed: {error}", style="red", markup=False)
            failures.append({"peer": peer.name, "ranks": 0, "reason": f"not installed: {error}"})
        else:
            chosen.append(peer)
    options = Options(
        peers=chosen,
        ranks=[int(n) for n in _list(ranks)],
        collectives=COLLECTIVES if collectives == "all" else _list(collectives),
        dtypes=_list(dtypes),
        sizes=parse_sizes(sizes),
        modes=_list(modes),
        rounds=rounds,
        batch=batch,
        in_place=in_place,
        environments=environments,
        stop_after=stop_after,
    )

    def done(case: Measured) -> None:
        ratios = [f"{mode} {case.ratio(mode, 'array') or '-'}" for mode in case.times]
        screen.print(
            f"{case.ranks} ranks {case.collective} {case.dtype} {size(case.nbytes)}: {', '.join(ratios)}",
            style="dim",
            markup=False,
        )
        for column, why in case.left_out.items():
            screen.print(f"  {column}: {why}", style="dim", markup=False)

    controller = Controller(options, lambda text: screen.print(text, style="red", markup=False), done)
    results = controller.run()
    results.failures[:0] = failures
    results.machine = machine()
    results.commands = [sys.argv[1:]]
    if json is not None:
        results.write(json)
    _show(screen, results)


@app.command()
def report(
    pieces: Annotated[list[Path], typer.Argument(help="JSON files of `run`.")],
) -> None:
    """Put pieces together and show them."""
    screen = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 200)
    _show(screen, Results.read(pieces))


def _show(screen: Console, results: Results) -> None:
    for table in tables(results):
        screen.print(table)
    for failure in results.failures:
        screen.print(
            f"left out: {failure['peer']} ({failure['ranks']} ranks): {failure['reason']}",
            style="red",
            markup=False,
        )


if __name__ == "__main__":
    app()
