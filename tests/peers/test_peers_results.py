"""Ratios, goals, pieces, and what is shown of them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.peers.__main__ import app
from bench.peers.algorithms import CONTESTS
from bench.peers.goals import Verdict, judge
from bench.peers.ranks.timing import Timed
from bench.peers.results import Measured, Results, geometric_mean, ratio, size
from pycollectives.schedule import find

TIMES = st.floats(0.01, 1e6)


def case(nbytes: int, ours: float, peer: float, **more: object) -> Measured:
    times = {
        "warm": {
            "array": [ours] * 3,
            "empty": [ours / 2] * 3,
            "memcpy": [ours / 2.5] * 3,
            "mpich": [peer] * 3,
        }
    }
    usual = {"ranks": 2, "collective": "all_reduce", "dtype": "float32", "nbytes": nbytes, "in_place": False}
    return Measured(**usual | {"times": times, "flag_ns": [50.0, 300.0, None]} | more)  # type: ignore[arg-type]


@given(st.lists(st.tuples(TIMES, TIMES), min_size=2, max_size=9), TIMES)
def test_a_ratio_is_taken_within_each_round(pairs: list[tuple[float, float]], slow: float) -> None:
    ours, theirs = zip(*pairs, strict=True)
    found = ratio(ours, theirs)
    assert found is not None
    assert found.median == pytest.approx(statistics.median(a / b for a, b in pairs))
    assert found.low <= found.median <= found.high
    together = ratio([t * slow for t in ours], [t * slow for t in theirs])  # a slow machine changes nothing
    assert together is not None and together.median == pytest.approx(found.median)


def test_rounds_that_are_missing_do_not_count() -> None:
    found = ratio([1.0, None, 3.0, 4.0], [2.0, 2.0, None, 2.0])
    assert found is not None and found.median == 1.25
    assert ratio([None], [1.0]) is None
    assert ratio([], []) is None


@given(st.lists(TIMES, min_size=1, max_size=20))
def test_geometric_mean(values: list[float]) -> None:
    assert geometric_mean(values) == pytest.approx(statistics.geometric_mean(values))
    assert geometric_mean([]) is None


def test_the_fastest_peer_is_no_column_of_ours() -> None:
    one = case(8, 1.0, 5.0)
    one.times["warm"]["gloo"] = [4.0, 100.0, 4.0]
    one.times["warm"]["impi"] = [None, None, None]
    assert one.fastest_peer("warm") == "gloo"
    assert one.peers("warm") == ["mpich", "gloo"]
    assert one.fastest_peer("fresh") is None
    assert one.ratio("fresh", "array") is None


def test_disturbed_rounds_do_not_count_if_enough_are_calm() -> None:
    one = case(8, 1.0, 2.0)
    one.times["warm"]["array"] = [1.0, 9.0, 1.5]
    one.others = [0.0, 0.9, 0.02]
    one.keep_calm_rounds(0.1, 3)
    assert one.others == [0.0, 0.9, 0.02]
    one.keep_calm_rounds(0.1, 2)
    assert (one.others, one.flag_ns, one.times["warm"]["array"]) == ([0.0, 0.02], [50.0, None], [1.0, 1.5])


def verdicts(*cases: Measured) -> dict[str, Verdict]:
    return {each.goal.split(": ")[-1]: each for each in judge(Results(list(cases)))}


def test_goals_of_two_ranks() -> None:
    found = verdicts(case(8, 0.3, 1.0), case(2 << 20, 0.9, 1.0))
    every = found["array / fastest peer, every size"]
    assert (every.limit, every.found, every.where, every.met) == (0.7, 0.9, "2 MiB", False)
    mean = found["array / fastest peer, geometric mean"]
    assert (mean.limit, mean.met) == (0.5, False)
    assert mean.found == pytest.approx(0.27**0.5)
    assert found["empty / fastest peer, every size"].met
    memory = found["empty / memcpy, from 1 MiB, every size"]
    assert (memory.found, memory.limit, memory.met) == (pytest.approx(1.25), 1.5, True)


def test_goals_of_other_collectives_ranks_and_algorithms() -> None:
    assert verdicts(case(8, 1.04, 1.0, collective="broadcast"))["array / fastest peer, every size"].met
    eight = verdicts(case(8, 0.55, 1.0, ranks=8))
    assert not eight["array / fastest peer, geometric mean"].met
    assert eight["array / fastest peer, geometric mean"].limit == 0.5
    ring = verdicts(case(8, 1.01, 1.0, ranks=4, algorithm="ring"))
    assert [each.met for each in ring.values()] == [False]


def test_goal_of_half_precision() -> None:
    found = verdicts(case(1024, 1.0, 2.0), case(1024, 1.2, 2.0, dtype="bfloat16"))
    [half] = [each for goal, each in found.items() if goal.startswith("bfloat16")]
    assert half.found == pytest.approx(1.2) and not half.met


@pytest.mark.parametrize(
    ("nbytes", "text"), [(8, "8 B"), (1024, "1 KiB"), (1536, "1536 B"), (32 << 20, "32 MiB")]
)
def test_size(nbytes: int, text: str) -> None:
    assert size(nbytes) == text


def test_pieces_are_put_together_and_drawn(tmp_path: Path) -> None:
    first = Results(
        [case(8, 5.0, 1.0), case(64, 2.0, 1.0)], [{"peer": "gloo", "ranks": 2, "reason": "no network"}]
    )
    second = Results(
        [case(8, 0.25, 1.0), case(8, 3.0, 2.0, ranks=4, collective="broadcast")], versions={"a": "1"}
    )
    paths = [tmp_path / "1.json", tmp_path / "2.json"]
    first.write(paths[0])
    second.write(paths[1])
    whole, text, svg, png = (tmp_path / name for name in ("all.json", "all.txt", "all.svg", "all.png"))
    arguments = ["report", *map(str, paths), "--json", str(whole), "--text", str(text)]
    done = CliRunner().invoke(
        app, [*arguments, "--chart", str(svg), "--chart", str(png)], catch_exceptions=False
    )
    assert done.exit_code == 0
    read = Results.read([whole])
    assert {(c.ranks, c.collective, c.nbytes): c.median("warm", "array") for c in read.cases} == {
        (2, "all_reduce", 8): 0.25,  # the later piece counts
        (2, "all_reduce", 64): 2.0,
        (4, "broadcast", 8): 3.0,
    }
    assert read.cases[0] == second.cases[0]
    assert json.loads(whole.read_text())["versions"] == {"a": "1"}
    assert "all_reduce, 2 ranks, float32, warm buffers" in text.read_text()
    assert "0.25 (0.25–0.25)" in text.read_text()
    assert "near 1, far 1" in text.read_text()
    assert "left out: gloo (2 ranks): no network" in text.read_text()
    drawn = svg.read_text()
    assert "2 ranks, warm buffers" in drawn and "4 ranks, warm buffers" in drawn and "broadcast" in drawn
    assert png.read_bytes().startswith(b"\x89PNG")


def test_the_algorithms_of_the_contests_exist() -> None:
    for contest in CONTESTS:
        assert find(contest.collective, contest.algorithm).obstacle(4) == ""
        ours, *others = contest.peers()
        assert ours.variables == {"PYCOLLECTIVES_ALGORITHM": f"{contest.collective}={contest.algorithm}"}
        assert [peer.name for peer in others] == ["openmpi-sm", "mpich"]


def test_a_line_is_timed_as_it_stands() -> None:
    seen: list[str] = []
    timed = Timed("call('x')", {"call": seen.append})
    begins, ends = timed.warm(lambda: seen.append("line up"), 2, 3, 4)
    assert seen == ["x"] * 2 + ["line up"] + ["x"] * 12
    assert len(begins) == len(ends) == 3 and begins[1:] == ends[:-1]
    seen.clear()
    begins, ends = timed.fresh(lambda: seen.append("line up"), lambda: seen.append("refill"), 1, 2)
    assert seen == ["refill", "line up", "x"] * 3
    assert len(begins) == len(ends) == 2 and all(b <= e for b, e in zip(begins, ends, strict=True))
