from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TEXTBOOK = json.loads((Path(__file__).parents[1] / "data" / "ring_trace_4.json").read_text())


def test_ring_is_the_textbooks(command: Any) -> None:
    """Ranks are processes, their memory is shared memory."""
    found = json.loads(command("trace", "all_reduce", "--algorithm", "ring", "-n", "4", "--json").stdout)
    assert found["ranks"] == 4 and found["start"] == TEXTBOOK["start"]
    assert [step["states"] for step in found["steps"]] == TEXTBOOK["reduce_scatter"] + TEXTBOOK["all_gather"]
    assert [step["phase"] for step in found["steps"]] == ["reduce-scatter"] * 3 + ["all-gather"] * 3
    assert found["steps"][0]["changed"] == [[3], [0], [1], [2]]


def test_text(command: Any) -> None:
    text = command("trace", "broadcast", "-a", "binomial", "-n", "3", "--root", "1", "--threads").stdout
    start, *steps = text.split("\n\n")[1:]
    assert start.splitlines() == ["start", "  rank 0    .", "  rank 1    2", "  rank 2    ."]
    assert [line.split()[-1] for step in steps for line in step.splitlines()[1:]] == [
        *("2*", "2", "."),
        *("2", "2", "2*"),
    ]
    text = command("trace", "reduce", "-n", "2", "--operations").stdout
    assert "send chunk 0 to 0" in text and "reduce chunk 0 from 1" in text


def test_inside_a_job(command: Any, tmp_path: Path) -> None:
    same = ["-m", "pycollectives", "trace", "all_gather", "--json"]
    found = json.loads(command("run", "-n", "2", *same).stdout)
    assert found["ranks"] == 2 and found["start"] == [[1, None], [None, 2]]
    done = command("run", "-n", "2", *same, "-n", "3", code=2)
    assert "inside a job of 2 ranks" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["all_reduse"], "unknown collective 'all_reduse'; did you mean 'all_reduce'?"),
        (["all_reduce", "-a", "rings"], "did you mean 'ring'?"),
        (["all_reduce", "-a", "torus(3x3)"], "these do: torus(1x4), torus(2x2), torus(4x1)"),
        (["all_gather", "-a", "neighbor_exchange", "-n", "3"], "it needs an even number of ranks"),
        (["all_gather", "--elements", "7"], "needs a multiple of 4 elements, not 7"),
        (["broadcast", "--root", "4"], "root 4 is not in 0..3"),
        (["all_reduce", "--op", "medium"], "unknown operator 'medium'"),
        (["all_reduce", "--dtype", "float33"], "unknown dtype 'float33'"),
        (["all_reduce", "--dtype", "bfloat16"], "trace float32 instead"),
        (["all_reduce", "--dtype", "float32", "--op", "band"], "band is not defined for float32"),
    ],
)
def test_wrong_arguments_are_one_line(command: Any, arguments: list[str], text: str) -> None:
    done = command("trace", *arguments, code=2)
    assert done.stdout == "" and text in done.stderr
    assert len(done.stderr.splitlines()) == 1
