"""Which row of a table holds for a size, and what of a table survives being written down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queries import NBYTES, asked, series

from pycollectives.dispatch import Query, Row, Series, Table, Tuning
from pycollectives.dispatch.table import REACH, distance

GRID = tuple(Row(n, "ring", {"ring": 1e-6}) for n in (4096, 65536))
ONE = Series("all_reduce", "float", 4, 2, GRID)


@pytest.mark.parametrize(
    ("nbytes", "row"),
    [
        (0, None),
        (1023, None),
        (1024, 4096),
        (4096, 4096),
        (16383, 4096),
        (16385, 65536),
        (262144, 65536),
        (262145, None),
    ],
)
def test_nearest(nbytes: int, row: int | None) -> None:
    found = ONE.nearest(nbytes)
    assert (None if found is None else found.nbytes) == row


def test_a_gap_in_the_table_is_predicted() -> None:
    far = Series(
        "all_reduce", "float", 4, 2, (Row(8, "ring", {"ring": 1e-6}), Row(1 << 24, "ring", {"ring": 1e-3}))
    )
    assert far.nearest(65536) is None
    assert far.nearest(0) is far.nearest(1) is far.nearest(32) is far.rows[0]


@settings(max_examples=50)
@given(series("all_reduce", "float", 4), NBYTES)
def test_no_row_is_nearer(one: Series, nbytes: int) -> None:
    found = one.nearest(nbytes)
    gaps = [distance(row.nbytes, nbytes) for row in one.rows]
    if found is None:
        assert not gaps or min(gaps) > REACH
    else:
        assert distance(found.nbytes, nbytes) == min(gaps) <= REACH


@settings(max_examples=30)
@given(asked())
def test_written_down_and_read(both: tuple[Query, Tuning]) -> None:
    for each in both[1].table.series.values():
        assert Series.decode(json.loads(json.dumps(each.encode()))) == each


def test_other_ranks_cores_and_kinds() -> None:
    table = Table.of([ONE])
    query = Query("all_reduce", 4096, 4)
    assert table.find(query, 2) == GRID[0]
    assert table.find(query, 4) is None
    assert table.find(Query("all_reduce", 4096, 8), 2) is None
    assert table.find(Query("all_reduce", 4096, 4, kind="integer"), 2) == GRID[0]  # reduces like floats
    assert table.find(Query("all_reduce", 4096, 4, kind="half"), 2) is None
    assert table.pruned(4, 2) == table and table.pruned(8, 2) == Table()


def test_merging_keeps_sizes_that_were_not_measured_again() -> None:
    newer = Series("all_reduce", "float", 4, 2, (Row(4096, "chain", {"chain": 2e-6}),), "later")
    merged = Table.of([ONE]).merged([newer]).series[ONE.key]
    assert [(row.nbytes, row.winner) for row in merged.rows] == [(4096, "chain"), (65536, "ring")]
    assert merged.made == "later"
    alone = Table().merged([newer]).series
    assert alone == {newer.key: newer}


anything: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_series_is_refused_or_right(data: Any) -> None:
    """One field of a right one replaced by anything."""
    right = ONE.encode()
    field = data.draw(st.sampled_from([*right, "row"]))
    if field == "row":
        row = dict(right["rows"][0])
        row[data.draw(st.sampled_from([*row]))] = data.draw(anything)
        right["rows"] = [row, *right["rows"][1:]]
    else:
        right[field] = data.draw(anything)
    try:
        found = Series.decode(right)
    except ValueError:
        return
    for row in found.rows:
        assert row.winner in row.seconds and all(0 < time < 1e15 for time in row.seconds.values())
    assert isinstance(found.collective, str) and found.ranks >= 0
