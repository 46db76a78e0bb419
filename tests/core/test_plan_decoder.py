"""Damaged plans: refused with an error, whatever is wrong. The native fuzz (tests/native) also executes what passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pycollectives as pc
from pycollectives import _core
from pycollectives.schedule import COLLECTIVES, find, names
from pycollectives.schedule.lowering import lower

TABLES = ("instructions", "operands", "refs", "connections", "peers", "channels", "scratch_like")
NUMBERS = ("size", "rank", "nchunks", "max_message", "max_connections", "steps")
EDGES = (0, 1, 2, 3, 7, 16, 255, 4096, 2**24, 2**31 - 1, -1, -2, -(2**31))
SIZE = 4


def plan(verb: str, name: str, rank: int = 1) -> dict[str, Any]:
    return lower(find(verb, name), SIZE, rank, 0).arrays()


def prepared(arrays: dict[str, Any], verb: str, count: int = 100) -> Any:
    made, contract = _core.Plan(**arrays), COLLECTIVES[verb]
    held_in = contract.input_chunks(1, SIZE, 0, made.nchunks)
    held_out = contract.output_chunks(1, SIZE, 0, made.nchunks)
    each = [count] * (SIZE if contract.in_blocks else 1)
    apart = each if contract.apart else []
    return _core.Prepared(
        plan=made, dtype=_core.DTYPES.index("float32"), op=0, epilogue=0, factor=1.0, wide=False,
        blocks=each, sent_blocks=apart, taken_blocks=apart,
        held_in=(held_in.start, len(held_in)), held_out=(held_out.start, len(held_out)),
        pool_bytes=1 << 20, segment_bytes=4096, fingerprint=1, count=count, verb=0, algorithm=0,
        record_dtype=0, record_op=0, root=0, deterministic=False,
    )  # fmt: skip


KINDS = [(verb, name) for verb in COLLECTIVES for name in names(verb) if not find(verb, name).obstacle(SIZE)]


@pytest.mark.parametrize(("verb", "name"), KINDS)
def test_whole_plans_are_taken(verb: str, name: str) -> None:
    assert prepared(plan(verb, name), verb).slices >= 1


@given(st.sampled_from(KINDS), st.data())
def test_damaged_plans_are_refused_or_harmless(kind: tuple[str, str], data: st.DataObject) -> None:
    arrays = plan(*kind)
    for _ in range(data.draw(st.integers(1, 3))):
        field = data.draw(st.sampled_from(TABLES + NUMBERS))
        value = data.draw(st.one_of(st.sampled_from(EDGES), st.integers(-(2**31), 2**31 - 1)))
        if field in NUMBERS:
            arrays[field] = value
            continue
        table = arrays[field] = np.array(arrays[field]).ravel()
        how = data.draw(st.sampled_from(["set", "cut", "double"]))
        if how == "set" and table.size:
            table[data.draw(st.integers(0, table.size - 1))] = value
        elif how == "cut":
            arrays[field] = table[: data.draw(st.integers(0, table.size))]
        else:
            arrays[field] = np.concatenate([table, table])
    try:
        made = prepared(arrays, kind[0])
    except (
        pc.ScheduleError,
        pc.UnsupportedError,
        TypeError,
    ):  # TypeError: a negative number for an unsigned one
        return
    assert made.slot_bytes > 0


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("no channel", lambda a: a.update(channels=a["channels"][:0])),
        ("more operands than ranks", lambda a: a["instructions"].__setitem__((0, 1), 7) or many_operands(a)),
        ("wrong width", lambda a: a.update(refs=a["refs"].ravel()[:-1])),
        ("it writes the input", lambda a: a["refs"].__setitem__((slice(None), 0), 0)),
        ("too many chunks", lambda a: a.update(nchunks=2**20 + 4)),
        ("source", lambda a: a["operands"].__setitem__((slice(None), 0), 1)),
        ("place of a chunk", lambda a: a["refs"].__setitem__((0, 0), 6)),
    ],
)
def test_what_is_wrong_is_said(what: str, change: Any) -> None:
    arrays = {
        name: np.array(value) if name in TABLES else value
        for name, value in plan("all_reduce", "ring").items()
    }
    change(arrays)
    with pytest.raises(pc.ScheduleError, match=f"damaged plan: .*{what}"):
        prepared(arrays, "all_reduce")


def many_operands(arrays: dict[str, Any]) -> None:
    """Room for the seven operands of the first instruction."""
    arrays["operands"] = np.concatenate([arrays["operands"]] * 9)


def test_chunks_that_a_rank_does_not_hold() -> None:
    arrays = {
        name: np.array(value) if name in TABLES else value
        for name, value in plan("all_gather", "ring").items()
    }
    own = arrays["refs"][:, 0] == 0
    assert own.any() and (arrays["refs"][own, 1] == 1).all()
    arrays["refs"][own, 1] = 0  # rank 1 holds only chunk 1 of the input
    with pytest.raises(pc.ScheduleError, match="a chunk beyond the input"):
        prepared(arrays, "all_gather")
