"""Ranks that do not agree: what each of them is told, and that nobody is told so in vain."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import agreement_ranks
import pytest
from ranks import Pools, threads

LINES = Path(agreement_ranks.__file__).read_text().splitlines()


def line(text: str) -> int:
    return next(i for i, each in enumerate(LINES, 1) if text in each)


def test_no_false_alarm_in_ten_thousand_calls(pools: Pools) -> None:
    assert pools(4).run(agreement_ranks.mixed_calls, 10_000, timeout=100) == [10_000] * 4


def test_no_false_alarm_among_threads() -> None:
    assert threads(3, agreement_ranks.mixed_calls, 2000) == [2000] * 3


def test_everybody_is_told_who_called_what_where(fresh: Any) -> None:
    at = f"agreement_ranks.py:{line('comm.all_reduce(x)')}"
    expected = (
        f"the ranks disagree in call 1: rank 2 called all_reduce(float32[409598], sum) at {at} while ranks 0, 1, 3 "
        f"called all_reduce(float32[409600], sum) at {at}"
    )
    for text, seconds in fresh(4).run(agreement_ranks.uneven_trainer):
        assert text == expected and seconds < 1.0


def test_a_rank_that_comes_late_to_something_else(pools: Pools) -> None:
    results = pools(3).run(agreement_ranks.late_and_different)
    came = results[1][1]
    for text, _, end in results:
        assert end - came < 0.5 and "rank 1 called all_reduce(float64[4], sum)" in text, text
        assert "ranks 0, 2 called all_reduce(float64[3], sum)" in text


def test_ranks_that_have_returned_raise_at_their_next_call(pools: Pools) -> None:
    results = pools(3).run(agreement_ranks.returned_already)
    assert results[1][0] == "got 7.0"  # right, and rank 2 had not come
    for first, second in results:
        assert first.startswith("got") or "rank 2 called broadcast(float64[2000], root=1)" in first, first
        assert "rank 2 called broadcast(float64[2000], root=1)" in second, second
        assert "ranks 0, 1 called broadcast(float64[2000], root=0)" in second


def test_groups_name_their_lines_and_what_differs(pools: Pools) -> None:
    at = f"agreement_ranks.py:{line('# one line')} (rank 0) and agreement_ranks.py:{line('# another one')} (rank 1)"
    for text in pools(4).run(agreement_ranks.several_lines):
        assert re.search(r"rank 2 called .* by ring at agreement_ranks\.py:\d+", text), text
        assert re.search(
            r"ranks 0, 1 called all_reduce\(float64\[5\], sum\) by \w+ at " + re.escape(at), text
        ), text


def test_a_rank_that_waits_for_a_message_is_told(pools: Pools) -> None:
    for text in pools(3).run(agreement_ranks.message_meanwhile):
        assert "disagree" in text


@pytest.mark.parametrize("verb", ["all_gatherv", "reduce_scatterv", "gatherv"])
def test_counts_of_blocks_are_compared(pools: Pools, verb: str) -> None:
    for text in pools(3).run(agreement_ranks.uneven_counts, verb):
        assert f"rank 1 called {verb.removesuffix('v')}(" in text and "while ranks 0, 2 called" in text, text
