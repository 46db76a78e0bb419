"""Collectives on objects, compared with plain Python; what cannot be pickled, read or believed."""

from __future__ import annotations

import object_ranks as todo
import pytest
from ranks import Pools, threads

SIZES = (1, 2, 3, 4, 7)


@pytest.mark.parametrize("n", SIZES)
def test_exchange_on_threads(n: int) -> None:
    for seed in range(3):
        threads(n, todo.exchange, seed, 2000)


@pytest.mark.parametrize(("n", "nbytes"), [(2, 0), (3, 50_000), (4, 3_000_000)])
def test_exchange_on_processes(pools: Pools, n: int, nbytes: int) -> None:
    for seed in range(2):
        pools(n).run(todo.exchange, seed, nbytes)


@pytest.mark.parametrize("n", SIZES)
def test_folds_on_threads(n: int) -> None:
    threads(n, todo.folds)


def test_folds_on_processes(pools: Pools) -> None:
    pools(3).run(todo.folds)


@pytest.mark.parametrize("form", todo.FORMS)
def test_unpicklable_on_each_rank(pools: Pools, form: str) -> None:
    threads(3, todo.refuse_all, form)
    pools(4).run(todo.refuse_all, form)


def test_several_unpicklable() -> None:
    threads(4, todo.several)


@pytest.mark.parametrize("n", [2, 4])
def test_wrong_values(n: int) -> None:
    threads(n, todo.wrong_values)


def test_bad_operator() -> None:
    threads(3, todo.bad_operator)


@pytest.mark.parametrize("n", [2, 4])
def test_unreadable(n: int) -> None:
    threads(n, todo.unreadable)


def test_damaged_lengths(pools: Pools) -> None:
    threads(3, todo.damaged)
    pools(3).run(todo.damaged)


def test_enormous_lengths() -> None:
    threads(4, todo.enormous)


def test_above_the_size_that_is_compared_with_memory(pools: Pools) -> None:
    pools(2).run(todo.large, 72 << 20)


@pytest.mark.parametrize(
    ("theirs", "mine", "words"),
    [
        (("all_gather_object", 0), ("gather_object", 0), ["all_gather_object", "gather_object"]),
        (("gather_object", 0), ("gather_object", 2), ["root is"]),
        (("reduce_object", 0), ("all_reduce_object", 0), ["reduce_object", "all_reduce_object"]),
        (("scatter_object", 0), ("scatter_object", 1), ["root is"]),
        (("all_gather_object", 0), ("all_to_all_object", 0), ["all_gather("]),
    ],
)
def test_mixed_up(theirs: tuple[str, int], mine: tuple[str, int], words: list[str]) -> None:
    for text in threads(3, todo.mixed_up, theirs, mine):
        assert all(word in text for word in words), text
