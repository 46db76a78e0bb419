"""`pycollectives numerics`: the error of each algorithm against a wider reference, and the price of determinism."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from ..bench.accuracy import DATA, OPERATORS, Cost, Error, cost, measure
from ..bench.cases import parse_sizes
from ..errors import InvalidArgumentError
from ..world import init
from .ranks import become_ranks, console, dtype_named, rank_counts

_REDUCING = ("all_reduce", "reduce", "reduce_scatter")


def numerics(
    ranks: Annotated[str, typer.Option("-n", "--ranks", help="Numbers of ranks, such as `2,4,8`.")] = "2,4,8",
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", help="Kind of the elements; repeat it.", show_default="bfloat16, float32"),
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option("-a", "--algorithm", help="Only this one; repeat it.", show_default="all"),
    ] = None,
    collective: Annotated[
        str, typer.Option("-c", "--collective", help=f"One of: {', '.join(_REDUCING)}.")
    ] = "all_reduce",
    op: Annotated[str, typer.Option("--op", help=f"One of: {', '.join(OPERATORS)}.")] = "sum",
    elements: Annotated[int, typer.Option("--elements", min=1, help="Numbers per rank.")] = 10_000,
    data: Annotated[str, typer.Option("--data", help=f"One of: {', '.join(DATA)}.")] = "normal",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random numbers.")] = 1,
    price: Annotated[
        bool,
        typer.Option(
            "--cost",
            help="Measure instead what deterministic=True costs, on as many processes as -n says first.",
        ),
    ] = False,
    sizes: Annotated[
        str, typer.Option("--sizes", help="With --cost: bytes of the vector.")
    ] = "8,4K,64K,1M,16M",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the error of each algorithm against the exact result, by dtype and number of ranks.

    Errors are in units in the last place (ulp) of the exact result, which is computed in long double. Every
    algorithm really runs, on ranks that are threads. "bound" is the largest error in units of u Σ|x|, where u
    is the rounding unit of the accumulation type: at most P - 1 for any order of a sum.

    [bold]Examples[/bold]

      pycollectives numerics -n 4,16 --dtype float16 --data cancelling

      pycollectives numerics --cost -n 2
    """
    counts = rank_counts(ranks)
    if collective not in _REDUCING:
        raise InvalidArgumentError(f"collective is {collective!r}; measured are {', '.join(_REDUCING)}")
    if price:
        _price(counts[0], parse_sizes(sizes), as_json)
        return
    kinds = [dtype_named(name).name for name in dtype or ["bfloat16", "float32"]]
    found = [
        each
        for kind in kinds
        for n in counts
        for each in measure(collective, kind, n, op, elements, data, seed, algorithm or ())
    ]
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], indent=1))
    else:
        console().print(_errors(found, f"{collective}({op}) of {elements} {data} numbers"))


def _errors(found: list[Error], title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for name in (
        "dtype",
        "ranks",
        "algorithm",
        "largest ulp",
        "mean ulp",
        "bound u Σ|x|",
        "equal on all",
        "left fold",
    ):
        table.add_column(name, justify="left" if name in ("dtype", "algorithm") else "right")
    last: tuple[str, int] | None = None
    for each in found:
        if last not in (None, (each.dtype, each.ranks)):
            table.add_section()
        last = each.dtype, each.ranks
        equal, fold = ("yes" if yes else "no" for yes in (each.same_bits, each.left_fold))
        numbers = (f"{each.largest:.3g}", f"{each.mean:.3g}", f"{each.bound:.3g}")
        table.add_row(each.dtype, str(each.ranks), each.algorithm, *numbers, equal, fold)
    return table


def _price(ranks: int, sizes: list[int], as_json: bool) -> None:
    become_ranks(ranks, ranks)
    with init() as comm:
        found = [cost(comm, nbytes, 400 if nbytes <= 1 << 16 else 60) for nbytes in sizes]
        if comm.rank != 0:
            return
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], indent=1))
        return
    console().print(_costs(found))


def _costs(found: list[Cost]) -> Table:
    table = Table(
        title=f"all_reduce of float32 on {found[0].ranks} ranks", box=box.SIMPLE, title_justify="left"
    )
    for name in ("bytes", "free us", "by", "deterministic us", "by", "ratio"):
        table.add_column(name, justify="left" if name == "by" else "right")
    for each in found:
        ratio = f"{each.deterministic / each.free:.2f}"
        free, fixed = each.algorithms
        table.add_row(str(each.nbytes), f"{each.free:.1f}", free, f"{each.deterministic:.1f}", fixed, ratio)
    return table
