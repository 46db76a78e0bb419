"""`pycollectives doctor`: what this machine offers, and what to do about what is missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from .probes import Finding, examine
from .ranks import console

_MARKS = {"ok": "[green]ok[/green]", "missing": "[red]missing[/red]", "note": "[yellow]note[/yellow]"}


def doctor(
    ranks: Annotated[
        int | None,
        typer.Option("-n", "--ranks", min=1, help="For this many ranks.", show_default="the cores"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine this machine: cores, vector instructions, shared memory, MPI, CUDA; advice for what is missing.

    What can be tried is tried, not looked up. Most of what is `missing` costs speed or one feature only; exit
    code 1 if something is missing that everything needs.

    [bold]Example[/bold]

      pycollectives doctor -n 8 --json
    """
    findings = examine(ranks)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in findings], indent=1))
    else:
        _show(findings)
    if any(each.vital and each.status == "missing" for each in findings):
        raise typer.Exit(1)


def _show(findings: list[Finding]) -> None:
    screen = console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for style, wrap in (("bold", False), (None, False), (None, True)):
        table.add_column(style=style, no_wrap=not wrap)
    for each in findings:
        advice = f"\n[dim]-> {escape(each.advice)}[/dim]" if each.advice else ""
        table.add_row(each.name, _MARKS[each.status], escape(each.value) + advice)
    screen.print(table)
