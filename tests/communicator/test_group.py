"""`comm.group()`: several calls become one, with the same results; mistakes; what goes alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import group_ranks as todo
import pytest
from ranks import Pools, threads


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_random_groups_on_threads(n: int) -> None:
    threads(n, todo.random_groups, 1, 8, 20, 300)


def test_random_groups_on_processes(pools: Pools) -> None:
    for seed in range(2):
        pools(2).run(todo.random_groups, seed, 8, 30, 20_000)
        pools(4).run(todo.random_groups, seed, 8, 30, 20_000)


@pytest.mark.parametrize("fn", [todo.counts, todo.mixed, todo.errors, todo.apart, todo.used])
@pytest.mark.parametrize("n", [2, 3])
def test_on_threads(n: int, fn: Callable[..., Any]) -> None:
    threads(n, fn)


@pytest.mark.parametrize("fn", [todo.mixed, todo.errors])
def test_of_one_rank(fn: Callable[..., Any]) -> None:
    threads(1, fn)


def test_on_processes(pools: Pools) -> None:
    for fn in (todo.counts, todo.mixed, todo.errors, todo.apart, todo.used):
        pools(3).run(fn)


@pytest.mark.parametrize("name", todo.LISTS)
def test_different_lists(name: str) -> None:
    threads(3, todo.mismatch, name)


def test_different_lists_on_processes(fresh: Any) -> None:
    fresh(2).run(todo.mismatch, "types of equal size")


def test_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVES_FUSION_BYTES", "40")
    threads(2, todo.threshold)


def test_repeated() -> None:
    assert threads(2, todo.training, 50) == [1, 1]
