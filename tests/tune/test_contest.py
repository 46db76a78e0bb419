"""Hysteresis on made-up timings: noise changes nothing, a real difference is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycollectives.tune import judge, settle
from pycollectives.tune.arena import Heat
from pycollectives.tune.calibration import least_squares
from pycollectives.tune.contest import MARGIN, survivors

SEEDS = st.integers(0, 2**32 - 1)


def noisy(true: list[float], rounds: int, seed: int, jitter: float) -> Any:
    """Times of shape (entrants, rounds): rounds up to 40 times longer as a whole, each time up to `jitter` longer."""
    random = np.random.default_rng(seed)
    disturbed = np.where(random.random(rounds) < 0.3, random.uniform(1, 40, rounds), 1.0)
    return np.array(true)[:, None] * disturbed * random.uniform(1, 1 + jitter, (len(true), rounds))


@given(SEEDS, st.integers(1, 8), st.integers(5, 21), st.data())
def test_equals_never_displace_the_incumbent(seed: int, entrants: int, rounds: int, data: Any) -> None:
    incumbent = data.draw(st.integers(0, entrants - 1))
    verdict = judge(noisy([1e-5] * entrants, rounds, seed, MARGIN), incumbent)
    assert (verdict.winner, verdict.ratio, verdict.wins) == (incumbent, 1.0, 1.0)


@given(SEEDS, st.integers(2, 8), st.integers(5, 21), st.floats(0.01, 0.8), st.data())
def test_a_clear_winner_is_found(seed: int, entrants: int, rounds: int, ratio: float, data: Any) -> None:
    order = data.draw(st.permutations(range(entrants)))
    fast, incumbent = order[0], order[1]
    true = [1e-5] * entrants
    true[fast] *= ratio
    verdict = judge(noisy(true, rounds, seed, 0.1), incumbent)
    assert verdict.winner == fast and verdict.wins >= 0.7 and verdict.ratio == pytest.approx(ratio, rel=0.11)


@given(SEEDS, st.integers(5, 21))
def test_winning_now_and_then_is_not_enough(seed: int, rounds: int) -> None:
    """Half the time in fewer than 70 % of the rounds, the same otherwise."""
    times = np.full((2, rounds), 1e-5)
    won = np.random.default_rng(seed).permutation(rounds)[: int(0.69 * rounds)]
    times[1, won] /= 2
    assert judge(times, 0).winner == 0


@given(SEEDS, st.integers(2, 8), st.integers(5, 9))
def test_scaling_all_times_changes_nothing(seed: int, entrants: int, rounds: int) -> None:
    times = np.random.default_rng(seed).uniform(1, 3, (entrants, rounds))
    for factor in (0.5, 1024.0):
        assert judge(times, 0) == judge(times * factor, 0)


@given(SEEDS, st.integers(3, 20))
def test_disturbed_rounds_are_left_out_but_never_most_of_them(seed: int, rounds: int) -> None:
    random = np.random.default_rng(seed)
    disturbed = random.random(rounds) < 0.4
    noise = np.where(disturbed, 60e-6, 0.5e-6) * random.uniform(1, 1.5, rounds)
    times = np.arange(rounds, dtype=float)[None, :] + 1
    kept = [int(time) - 1 for time in Heat(times, noise).quiet()[0]]
    assert kept == sorted(kept) and len(kept) >= rounds / 2
    calm = [i for i in range(rounds) if not disturbed[i]]
    assert set(calm) <= set(kept)
    if len(calm) >= (rounds + 1) // 2:
        assert kept == calm


def test_a_winner_that_stands_alone_gives_way_if_it_wins_by_little() -> None:
    little, much = {"a": 1.0, "b": 0.97}, {"a": 1.0, "b": 0.5}
    assert settle(["a", "b", "a"], [little] * 3) == ["a", "a", "a"]
    assert settle(["a", "b", "a"], [little, much, little]) == ["a", "b", "a"]
    assert settle(["a", "b", "b"], [little] * 3) == ["a", "b", "b"]
    assert settle(["a", "b", "a"], [{}, {"b": 1.0}, {}]) == ["a", "b", "a"]
    assert settle(["a"], [little]) == ["a"] and settle([], []) == []


@given(SEEDS, st.integers(1, 10), st.integers(1, 4))
def test_the_best_and_the_protected_survive(seed: int, entrants: int, rounds: int) -> None:
    times = np.random.default_rng(seed).uniform(1, 100, (entrants, rounds))
    kept = survivors(times, [entrants - 1], 2.0)
    assert int(times.min(axis=1).argmin()) in kept and entrants - 1 in kept
    assert all(times[i].min() <= 2 * times.min() or i == entrants - 1 for i in kept)


@given(st.lists(st.floats(1e-7, 1e-4), min_size=2, max_size=2), SEEDS)
def test_a_fit_finds_the_parameters(true: list[float], seed: int) -> None:
    random = np.random.default_rng(seed)
    features = [[1.0, float(steps)] for steps in (1, 2, 3, 6, 14)]
    times = [float(np.dot(each, true)) for each in features]
    assert least_squares(features, times) == pytest.approx(true, rel=1e-5, abs=1e-11)
    rough = [time * random.uniform(0.9, 1.1) for time in times]
    found = least_squares(features, rough)
    assert min(found) > 0
    fitted = [float(np.dot(each, found)) for each in features]
    assert fitted == pytest.approx(times, rel=0.25)


def test_no_parameter_is_negative() -> None:
    assert least_squares([[1.0, 1.0], [1.0, 2.0]], [2e-6, 1e-6])[1] == 1e-12  # falls with the steps
