"""Contracts of the collectives: what the verifier refuses of gather, scatter, all_to_all, scan and exscan."""

from __future__ import annotations

import pytest
from proving import Author, prove

from pycollectives.algorithms.bruck import bruck_all_to_all
from pycollectives.algorithms.direct import direct_all_to_all
from pycollectives.algorithms.prefix import linear_exscan, linear_scan
from pycollectives.errors import ScheduleError
from pycollectives.schedule import COLLECTIVES, Program
from pycollectives.schedule.verifier import Stage, verified


def test_contracts() -> None:
    held = {
        name: (
            [list(c.input_chunks(r, 3, 1, 3)) for r in range(3)],
            [list(c.output_chunks(r, 3, 1, 3)) for r in range(3)],
        )
        for name, c in COLLECTIVES.items()
    }
    everything, blocks, at_root = [[0, 1, 2]] * 3, [[0], [1], [2]], [[], [0, 1, 2], []]
    assert held["gather"] == (blocks, at_root)
    assert held["scatter"] == (at_root, blocks)
    assert held["all_to_all"] == (everything, everything)
    assert held["scan"] == (everything, everything)
    assert held["exscan"] == (everything, [[], [0, 1, 2], [0, 1, 2]])
    who = {
        name: list(c.contributors(1, 2, 3, 0, 3)) for name, c in COLLECTIVES.items()
    }  # to chunk 1 of rank 2
    assert [who[name] for name in ("gather", "scatter", "all_to_all", "scan", "exscan", "all_reduce")] == [
        [1], [0], [1], [0, 1, 2], [0, 1], [0, 1, 2]]  # fmt: skip
    assert [c.origin(3, 1, 2, 4) for c in (COLLECTIVES["all_to_all"], COLLECTIVES["gather"])] == [3, 3]
    assert [COLLECTIVES["all_to_all"].origin(c, 0, 2, 4) for c in range(4)] == [0, 1, 0, 1]
    needs_all = {name for name, c in COLLECTIVES.items() if not c.needs_all}
    assert needs_all == {"broadcast", "scatter", "scan", "exscan"}


def swapped(p: Program) -> None:
    """Every rank sends what is for the other one, but keeps what came as if it were its own."""
    p.send(p.input(p.rank ^ 1), to=p.rank ^ 1)
    p.recv(p.output(p.rank), source=p.rank ^ 1)
    p.copy(p.input(p.rank), into=p.output(p.rank ^ 1))


def own_chunk(p: Program) -> None:
    """Every rank sends the chunk that it should keep."""
    p.send(p.input(p.rank), to=p.rank ^ 1)
    p.recv(p.output(p.rank ^ 1), source=p.rank ^ 1)
    p.copy(p.input(p.rank), into=p.output(p.rank))


def forgetful(p: Program) -> None:
    p.send(p.input(p.others()), to=p.others())
    p.recv(p.output(p.others()), source=p.others())


def outsider(p: Program) -> None:
    """A rank that is not the root sends what it does not have."""
    p.send(p.chunk(0), to=p.select(p.rank == 1, 0))
    p.recv(p.chunk(0), source=p.select(p.rank == 0, 1))


def uneven(p: Program) -> None:
    p.send(p.input(0, 2), to=p.rank ^ 1)
    p.recv(p.output(0), source=p.rank ^ 1)


NO_VECTOR = "chunk 0, but all_to_all has no working vector: use input(), output() and scratch()"
MISSING = "ends with chunk 0 wrong: rank 0 missing; it is never written"
TOO_MUCH = "rank 1, step 0: ends with chunk 0 wrong: rank 1 too much; it is last written"


@pytest.mark.parametrize(
    ("collective", "author", "text"),
    [
        (
            "all_to_all",
            swapped,
            "rank 0, step 0: ends with chunk 0 wrong: rank 0 missing and rank 1 too much",
        ),
        ("all_to_all", own_chunk, "ends with chunk 1 wrong; it is their input chunk 1, not 0; it is last"),
        ("all_to_all", forgetful, f"rank 0: {MISSING}"),
        ("all_to_all", lambda p: p.send(p.chunk(0), to=p.rank ^ 1), f"send names {NO_VECTOR}"),
        ("all_to_all", lambda p: p.copy(p.input(0), into=p.chunk(0)), f"copy names {NO_VECTOR}"),
        ("all_to_all", lambda p: p.copy(p.output(0), into=p.output(1)), "copies output chunk 0, which is"),
        ("all_to_all", uneven, "2 chunks sent, room for 1"),
        ("all_to_all", lambda p: p.chunks(3), "3 chunks; the blocks of the ranks need a multiple of 2"),
        ("gather", lambda p: None, "rank 0: ends with chunk 1 wrong: rank 1 missing; it is never written"),
        ("gather", lambda p: p.copy(p.chunk(1), into=p.output(1), when=p.rank == 1), "has no output"),
        ("scatter", outsider, "rank 1, step 0: sends chunk 0, which is still empty"),
        ("scan", lambda p: None, f"rank 1: {MISSING}"),
        ("exscan", lambda p: None, f"rank 1: {MISSING}"),
        ("exscan", linear_scan.author, TOO_MUCH),
        ("scan", linear_exscan.author, "rank 1, step 0: ends with chunk 0 wrong: rank 1 missing"),
        ("exscan", lambda p: p.copy(p.input(0), into=p.output(0), when=p.rank == 0), "has no output"),
        ("all_reduce", lambda p: p.reduce(p.chunk(p.others()), source=p.others()), "names different chunks"),
    ],
)
def test_refused(collective: str, author: Author, text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        prove(collective, author, 3 if collective == "all_reduce" else 2)
    assert text in str(caught.value)


def test_input_and_output_of_all_to_all_are_different_places() -> None:
    """Written to output chunk 1, then read from input chunk 1: in place this would be the wrong data."""

    def author(p: Program) -> None:
        p.send(p.input(1 - p.rank), to=1 - p.rank)
        p.recv(p.output(1 - p.rank), source=1 - p.rank)
        p.copy(p.input(p.rank), into=p.scratch(0))
        p.copy(p.input(1 - p.rank), into=p.scratch(1))
        p.copy(p.scratch(0), into=p.output(p.rank))

    proof = prove("all_to_all", author, 2)
    assert str(proof.tree(0, 1)) == "1"
    assert proof.tree(0, 1).chunk == 0


def test_several_chunks_per_block() -> None:
    def author(p: Program) -> None:
        p.chunks(2 * p.size)
        p.send(p.input(2 * p.others(), 2), to=p.others())
        p.copy(p.input(2 * p.rank, 2), into=p.output(2 * p.rank, 2))
        p.recv(p.output(2 * p.others(), 2), source=p.others())

    proof = prove("all_to_all", author, 3)
    assert [(proof.tree(2, c).rank, proof.tree(2, c).chunk) for c in range(6)] == [
        (0, 4), (0, 5), (1, 4), (1, 5), (2, 4), (2, 5)]  # fmt: skip


def test_stages() -> None:
    """A prefix sum is partial wherever it is: it may be summed on. What is only moved stays original."""
    scan = verified(linear_scan, 3)
    assert scan.after[0] == [Stage.ORIGINAL]
    assert scan.after[2] == [Stage.PARTIAL]
    assert scan.message[1] == [(Stage.ORIGINAL,), (Stage.PARTIAL,)]
    moved = verified(bruck_all_to_all, 3)
    assert {stage for mine in moved.message.values() for part in mine for stage in part} == {Stage.ORIGINAL}


def test_only_blocks_of_one_size_pass_through_others() -> None:
    assert bruck_all_to_all.even_only
    assert not direct_all_to_all.even_only
