"""The tables of the README, made from the code: prints them, or rewrites the README with --write.

python docs/tables.py [--write]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pycollectives.algorithms  # noqa: F401 - registers
from pycollectives.schedule import COLLECTIVES, find, names

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- table: python docs/tables.py -->\n", "<!-- end of table -->\n"


def algorithms() -> str:
    """One row per collective and algorithm, with its alpha-beta-gamma cost."""
    rows = ["| collective | algorithm | cost |", "|---|---|---|"]
    for verb in COLLECTIVES:
        for i, name in enumerate(sorted(names(verb))):
            rows.append(f"| {verb if i == 0 else ''} | `{name}` | {find(verb, name).cost} |")
    notation = "P ranks, n bytes of the whole vector, α per message, β per byte moved, γ per byte reduced"
    return "\n".join(rows) + f"\n\n({notation})\n"


def rewritten(text: str) -> str:
    """The README with the current table."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + algorithms() + END + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="rewrite README.md")
    if parser.parse_args().write:
        README.write_text(rewritten(README.read_text()))
    else:
        print(algorithms())


if __name__ == "__main__":
    main()
