"""`pycollectives explain`: why a call is run as it is."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict
from typing import Annotated

import typer

from .. import dispatch, settings
from ..bench.cases import parse_size
from ..calls import Calls
from ..errors import InvalidArgumentError
from ..explaining import explain_call
from ..schedule.registry import contract_of
from ..topology import domains
from .ranks import job_size


def explain(
    collective: Annotated[str, typer.Argument(help="`all_reduce`, `broadcast`, ...")],
    nbytes: Annotated[
        str, typer.Option("--nbytes", "-b", help="Bytes of the whole vector: `8`, `64K`.")
    ] = "1M",
    ranks: Annotated[
        int | None,
        typer.Option(
            "-n", "--ranks", min=1, help="For this many ranks.", show_default="the job's, or the cores"
        ),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option("-a", "--algorithm", help="As if the call named this one.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="Kind of the elements.")] = "float32",
    op: Annotated[str, typer.Option("--op", help="Reduction operator.")] = "sum",
    root: Annotated[int, typer.Option("--root", min=0, help="Of rooted collectives.")] = 0,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="One order of reduction.")] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", help="What another library would take: `mpich`, `openmpi`, `nccl` or `all`."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every algorithm for a call: predicted and measured times, why each lost, which way the data take.

    Starts no ranks: it says what the ranks of a job on this machine would choose.

    [bold]Examples[/bold]

      pycollectives explain all_reduce --nbytes 64K -n 4

      pycollectives explain reduce_scatter --dtype bfloat16 --policy all
    """
    contract_of(collective)
    size = ranks or job_size() or settings.own_cores()
    if root >= size:
        raise InvalidArgumentError(f"root {root} is not in 0..{size - 1}")
    decided = settings.decide(size, nested=False, domains=domains.asked(range(size), size) or ())
    named, reason = algorithm, "asked for by --algorithm"
    if named is None and (named := decided.algorithms.get(collective)) is not None:
        reason = f"asked for by {dispatch.VARIABLE}"
    found = explain_call(
        Calls(0, size, decided),
        collective,
        0 if collective == "barrier" else parse_size(nbytes),
        named=named,
        reason=reason,
        root=root,
        deterministic=deterministic,
        dtype=dtype,
        op=op,
        policy=policy,
    )
    typer.echo(json_text.dumps(asdict(found), indent=1) if json else str(found))
