"""A real session on two ranks, and what communicators make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SMALL = "tune", "--quick", "--sizes", "8,4K,256K"
PROGRAM = """
import numpy as np
import pycollectives as pc

with pc.init() as comm:
    assert (comm.all_reduce(np.ones(1024, np.float32)) == comm.size).all()
    found = comm.explain("all_reduce", nbytes=4096)
    if comm.rank == 0:
        print(found.chosen)
        print(found)
"""


def test_learns_and_is_used(command: Any, tmp_path: Path) -> None:
    chosen = "-c", "all_reduce", "-c", "all_gather", "-c", "barrier"
    done = command(*SMALL, "-n", "2", *chosen, XDG_CACHE_HOME=str(tmp_path / "cache"))
    for word in ("turn", "gamma_half", "flag", "winner", "all_gather", "kept in"):
        assert word in done.stdout
    (path,) = (tmp_path / "cache" / "pycollectives").iterdir()
    content = json.loads(path.read_text())
    assert content["schema"] == 2 and {"gamma", "turn"} <= set(
        content["parameters"]
    )  # others not where ranks share a core
    assert all(0 < value < 1 for value in content["parameters"].values())
    found = {(s["collective"], s["kind"]): s for s in content["series"]}
    assert set(found) == {
        ("all_reduce", "float"),
        ("all_reduce", "half"),
        ("all_gather", "bytes"),
        ("barrier", "bytes"),
    }
    for (verb, _), series in found.items():
        assert series["ranks"] == 2
        assert [row["nbytes"] for row in series["rows"]] == ([0] if verb == "barrier" else [8, 4096, 262144])
        for row in series["rows"]:
            assert row["winner"] in row["seconds"] and min(row["seconds"].values()) > 0
    assert len(found["all_reduce", "float"]["rows"][0]["seconds"]) > 5

    (tmp_path / "program.py").write_text(PROGRAM)
    used = command("run", "-n", "2", "program.py", XDG_CACHE_HOME=str(tmp_path / "cache")).stdout
    winner = found["all_reduce", "float"]["rows"][1]["winner"]
    assert used.splitlines()[0] == winner and content["made"] in used and "measured to be the fastest" in used
    forced = command(
        "run",
        "-n",
        "2",
        "program.py",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        PYCOLLECTIVES_ALGORITHM="all_reduce=ring",
    ).stdout
    assert "asked for by PYCOLLECTIVES_ALGORITHM" in forced and forced.startswith("ring")


def test_adds_to_the_file_for_several_numbers_of_ranks(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    some = "-c", "broadcast", "--sizes", "1K", "--output", "t.json"
    command("tune", "--quick", "-n", "1,3", *some)
    first = json.loads(file.read_text())
    assert [s["ranks"] for s in first["series"]] == [1, 3]
    command("run", "-n", "2", "-m", "pycollectives", "tune", "--quick", *some)
    both = json.loads(file.read_text())
    assert [s["ranks"] for s in both["series"]] == [1, 3, 2]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-c", "al_reduce"), "did you mean 'all_reduce'"),
        (("-n", "2,x"), "expected numbers of ranks"),
        (("-n", "0"), "expected numbers of ranks"),
        (("--dtypes", "float31"), "unknown dtype 'float31'"),
        (("--sizes", "many"), "not a size"),
    ],
)
def test_wrong_arguments(command: Any, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in command("tune", *arguments, code=2).stderr


def test_turned_off_needs_a_file(command: Any) -> None:
    assert "name a file by --output" in command("tune", "--quick", code=2, PYCOLLECTIVES_TUNING="off").stderr
