"""The choice of an algorithm: a function of the call and of what rank 0 sent, and never one that cannot run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queries import CORES, asked, queries

from pycollectives import dispatch
from pycollectives.cost import Machine, predict
from pycollectives.dispatch import (
    ANYTHING,
    Needs,
    Query,
    Row,
    Series,
    Table,
    Tuning,
    choose,
    entrants,
    obstacle,
    race,
)
from pycollectives.errors import InvalidArgumentError, UnsupportedError
from pycollectives.schedule import COLLECTIVES, find, names
from pycollectives.schedule.verifier import verified
from pycollectives.settings import Settings


def usable(query: Query) -> list[str]:
    return [
        name
        for name in entrants(query.collective, query.size)
        if not obstacle(find(query.collective, name), query)
    ]


@settings(max_examples=50)
@given(asked())
def test_never_one_that_cannot_run(both: tuple[Query, Tuning]) -> None:
    query, tuning = both
    can = usable(query)
    if not can:
        with pytest.raises(UnsupportedError, match="can run this call"):
            choose(query, tuning)
        return
    chosen = choose(query, tuning)
    assert chosen.name in can
    if query.needs.left_fold:
        assert verified(chosen, query.size, query.root).left_fold
    if query.needs.rank_order:
        assert verified(chosen, query.size, query.root).rank_order
    if not query.needs.even:
        assert not chosen.even_only


@settings(max_examples=50)
@given(asked())
def test_the_same_on_every_rank(both: tuple[Query, Tuning]) -> None:
    """What rank 0 sends is what it has; the choice depends on nothing else."""
    query, tuning = both
    sent = Settings.decode(Settings(1 << 20, 1 << 17, tuning).encode())
    assert sent.tuning == tuning
    assert race(query, sent.tuning) == race(query, tuning) == race(query, tuning)
    if usable(query):
        assert choose(query, sent.tuning) == choose(query, tuning)


@settings(max_examples=50)
@given(asked())
def test_what_was_measured_counts(both: tuple[Query, Tuning]) -> None:
    query, tuning = both
    row, can = tuning.table.find(query, CORES), usable(query)
    if row is None or not can:
        return
    chosen, timed = choose(query, tuning).name, set(can) & set(row.seconds)
    if row.winner in can:
        assert chosen == row.winner
    elif timed:
        assert row.seconds[chosen] == min(row.seconds[name] for name in timed)
    else:
        assert chosen == choose(query, replace(tuning, table=Table())).name


@settings(max_examples=50)
@given(queries(), st.floats(1e-9, 1e-3), st.floats(1e-12, 1e-6))
def test_without_a_table_the_prediction_decides(query: Query, alpha: float, beta: float) -> None:
    machine = Machine(alpha=alpha, turn=alpha, beta=beta, beta_memory=beta, cores=CORES)
    if can := usable(query):
        times = {
            name: predict(
                find(query.collective, name), query.size, query.nbytes, machine, query.root, query.kind
            )
            for name in can
        }
        # What comes to the same in three digits is a tie.
        assert times[choose(query, Tuning(machine)).name] <= min(times.values()) * 1.01


@given(queries(), st.data())
def test_the_user_overrules(query: Query, data: Any) -> None:
    name = data.draw(st.sampled_from(entrants(query.collective, query.size)))
    if why := obstacle(find(query.collective, name), query):
        with pytest.raises(UnsupportedError) as caught:
            choose(query, Tuning(Machine()), name)
        assert why in str(caught.value) and "these can:" in str(caught.value)
    else:
        assert choose(query, Tuning(Machine()), name).name == name


def test_a_misspelt_name_suggests_the_near_one() -> None:
    with pytest.raises(InvalidArgumentError, match="did you mean 'ring'"):
        choose(Query("all_reduce", 8, 4), Tuning(Machine()), "rnig")


def test_deterministic_takes_left_folds_whatever_was_measured() -> None:
    rows = tuple(
        Row(1 << k, "ring", {"ring": 1e-9, "chain": 2e-3, "two_shot": 1e-3}) for k in range(3, 30, 2)
    )
    tuning = Tuning(Machine(cores=CORES), Table.of([Series("all_reduce", "float", 4, CORES, rows)]))
    for nbytes in (0, 8, 5000, 1 << 20, 1 << 28):
        assert choose(Query("all_reduce", nbytes, 4), tuning).name == "ring"
        assert choose(Query("all_reduce", nbytes, 4, needs=Needs(left_fold=True)), tuning).name == "two_shot"


@pytest.mark.parametrize("size", [2, 4, 6, 8, 12])
def test_torus_shapes_are_entrants_of_their_own(size: int) -> None:
    found = entrants("all_reduce", size)
    assert set(names("all_reduce")) <= set(found) and len(set(found)) == len(found)
    shapes = {name for name in found if "(" in name}
    expected = {2: set(), 4: set(), 6: {"torus(3x2)"}, 8: {"torus(4x2)"}}
    assert shapes == expected.get(size, {"torus(2x6)", "torus(4x3)", "torus(6x2)"})
    for name in found:
        find("all_reduce", name)


def test_every_verb_has_a_choice_without_any_tuning() -> None:
    for verb in COLLECTIVES:
        for size in (1, 2, 3, 5, 8):
            kind = dispatch.kind_of(verb, "float32")
            for nbytes in (0, 8, 1 << 12, 1 << 24):
                assert choose(Query(verb, nbytes, size, needs=ANYTHING, kind=kind), Tuning(Machine(cores=2)))
