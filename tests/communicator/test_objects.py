"""Collectives on objects, compared with plain Python; what cannot be pickled, read or believed."""

from __future__ import annotations

import object_failures as wrong
import object_ranks as todo
import pytest
from ranks import Pools, threads

SIZES = (1, 2, 3, 4, 7)


@pytest.mark.parametrize("n", SIZES)
def test_exchange_on_threads(n: int) -> None:
    for seed in range(3):
        threads(n, todo.exchange, seed, 2000, todo.WAYS[seed])


@pytest.mark.parametrize(("n", "nbytes"), [(2, 0), (3, 50_000), (4, 3_000_000)])
def test_exchange_on_processes(pools: Pools, n: int, nbytes: int) -> None:
    for seed in range(2):
        pools(n).run(todo.exchange, seed, nbytes, todo.WAYS[seed])


@pytest.mark.parametrize("way", todo.WAYS)
@pytest.mark.parametrize("n", SIZES)
def test_folds_on_threads(n: int, way: str) -> None:
    threads(n, todo.folds, way)


@pytest.mark.parametrize("way", todo.WAYS)
def test_folds_on_processes(pools: Pools, way: str) -> None:
    pools(3).run(todo.folds, way)


@pytest.mark.parametrize("form", todo.FORMS)
def test_unpicklable_on_each_rank(pools: Pools, form: str) -> None:
    for way in todo.WAYS:
        threads(3, wrong.refuse_all, form, way)
    pools(4).run(wrong.refuse_all, form, "async")


def test_several_unpicklable() -> None:
    threads(4, wrong.several)


@pytest.mark.parametrize("n", [2, 4])
def test_wrong_values(n: int) -> None:
    threads(n, wrong.wrong_values)


@pytest.mark.parametrize("way", todo.WAYS)
def test_bad_operator(way: str) -> None:
    threads(3, wrong.bad_operator, way)


@pytest.mark.parametrize(("n", "way"), [(2, "call"), (4, "async"), (3, "plan")])
def test_unreadable(n: int, way: str) -> None:
    threads(n, wrong.unreadable, way)


def test_among_other_calls(pools: Pools) -> None:
    threads(3, todo.among_others)
    pools(3).run(todo.among_others)


def test_issuing_never_waits(pools: Pools) -> None:
    assert max(pools(2).run(todo.issue_at_once)) < 0.5


def test_choices_hold_from_the_issue() -> None:
    threads(3, todo.choices_at_issue)


def test_in_a_group() -> None:
    threads(3, todo.in_a_group)


def test_pending_calls_end_with_their_communicator(pools: Pools) -> None:
    pools(2).run(wrong.closed_early)


def test_damaged_lengths(pools: Pools) -> None:
    threads(3, wrong.damaged)
    pools(3).run(wrong.damaged)


def test_enormous_lengths() -> None:
    threads(4, wrong.enormous)


def test_above_the_size_that_is_compared_with_memory(pools: Pools) -> None:
    pools(2).run(todo.large, 72 << 20)


@pytest.mark.parametrize(
    ("theirs", "mine", "words"),
    [
        (("all_gather_object", 0), ("gather_object", 0), ["all_gather_object", "gather_object"]),
        (("gather_object", 0), ("gather_object", 2), ["root is"]),
        (("reduce_object", 0), ("all_reduce_object", 0), ["reduce_object", "all_reduce_object"]),
        (("scatter_object", 0), ("scatter_object", 1), ["root is"]),
        (("scan_object", 0), ("exscan_object", 0), ["scan_object", "exscan_object"]),
        (("all_gather_object", 0), ("all_to_all_object", 0), ["all_gather("]),
    ],
)
def test_mixed_up(theirs: tuple[str, int], mine: tuple[str, int], words: list[str]) -> None:
    for text in threads(3, wrong.mixed_up, theirs, mine):
        assert all(word in text for word in words), text
