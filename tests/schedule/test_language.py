"""The schedule language: NULL, select, chunk sets, labels, symbolic loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from proving import Author, operations

from pycollectives.algorithms.binomial import binomial_broadcast, binomial_reduce
from pycollectives.algorithms.ring import ring
from pycollectives.errors import ScheduleError
from pycollectives.schedule import (
    NULL,
    Algorithm,
    Operation,
    Program,
)
from pycollectives.schedule.program import Loop, Op
from pycollectives.schedule.values import Deferred, Maybe, Symbol, columns, resolve, rows, select
from pycollectives.schedule.verifier import verified


def chunks(author: Author, size: int) -> list[list[tuple[int, ...]]]:
    """Per rank the chunks of the parts of its first operation; [] where it vanished."""
    found = Algorithm("all_reduce", "test", author).schedule(size).operations()
    return [[part.index for _, part in mine[0].parts] if mine else [] for mine in found.values()]


# -- NULL and select -------------------------------------------------------------------------------------


def test_arithmetic_keeps_null() -> None:
    some = select(np.array([True, False, True]), np.array([1, 2, 3]), NULL)
    assert rows((some + 1) % 3, 3) == [[2], [None], [1]]
    assert rows(10 - some, 3) == [[9], [None], [7]]
    assert rows((some > 1) & (some < 9), 3) == [[False], [None], [True]]
    assert rows(some + some[::-1], 3) == [[4], [None], [4]]
    assert NULL + 1 is NULL
    assert 1 - NULL is NULL
    assert np.arange(3) % NULL is NULL
    assert some + NULL is NULL
    assert repr(some) == "Maybe([1, NULL, 3])"


def test_null_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="use select"):
        bool(NULL)
    with pytest.raises(TypeError, match="no branch on the rank"):
        bool(Maybe([1], [True]))


def test_select() -> None:
    assert select(True, 1, 2) == 1
    assert rows(select(np.array([True, False]), NULL, 7), 2) == [[None], [7]]
    assert rows(select(np.array([True, False]), NULL, NULL), 2) == [[None], [None]]
    assert rows(select(Maybe([1, 1], [True, False]), 5, 6), 2) == [[5], [6]]  # a NULL condition is false
    assert not isinstance(select(np.array([True, False]), 1, 2), Maybe)
    per_peer = np.array([[1, 2], [3, 4]])
    assert rows(select(np.array([True, False]), per_peer, NULL), 2) == [[1, 2], [None, None]]
    assert rows(select(per_peer > 2, per_peer, np.array([8, 9])), 2) == [[8, 8], [3, 4]]


def test_values_that_are_no_ranks() -> None:
    for wrong, text in (
        (np.array([0.5, 1.0]), "divide with //"),
        (np.zeros((2, 2, 2), int), "at most two axes"),
        (np.arange(3), "3 rows where 2 ranks"),
    ):
        with pytest.raises(ValueError, match=text):
            rows(wrong, 2)

    def halves(p: Program) -> None:
        p.send(p.chunk(p.rank / 2), to=(p.rank + 1) % p.size)

    with pytest.raises(ScheduleError, match=r"all_reduce by .test.: .*divide with //"):
        operations(halves, 4)


def test_operations_with_null_peers_vanish() -> None:
    def author(p: Program) -> None:
        p.send(p.chunk(0), to=p.select(p.rank == 1, 0))
        p.recv(p.chunk(0), source=p.peers(NULL, p.select(p.rank == 0, 1)))
        p.send(p.chunk(p.select(p.rank > 1, p.rank)), to=(p.rank + 1) % p.size)
        p.recv(p.chunk(0), source=NULL)
        p.copy(p.chunk(0), into=p.scratch(0), when=p.rank == 2)

    assert operations(author, 3) == {
        0: ["recv chunk 0 from 1"],
        1: ["send chunk 0 to 0"],
        2: ["send chunk 2 to 0", "copy chunk 0 into scratch chunk 0"],
    }


# -- chunk sets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choose", "expected"),
    [
        (lambda p: p.chunk(-1), [[(2,)]] * 3),
        (lambda p: p.chunk(p.rank, 2), [[(0, 1)], [(1, 2)], [(2, 0)]]),
        (lambda p: p.chunk(0, p.rank), [[], [(0,)], [(0, 1)]]),
        (lambda p: p.chunk(2, 2, step=2), [[(2, 1)]] * 3),
        (lambda p: p.chunk(p.rank, 3, step=-1), [[(0, 2, 1)], [(1, 0, 2)], [(2, 1, 0)]]),
        (lambda p: p.chunk(0, 1, step=p.rank), [[(0,)]] * 3),
        (lambda p: p.chunk(0, 2, step=p.select(p.rank > 0, p.rank)), [[], [(0, 1)], [(0, 2)]]),
        (lambda p: p.blocks(p.rank, 1, 2), [[(0, 2)], [(1,)], [(2,)]]),
        (lambda p: p.blocks(0, 2, 3), [[(0, 1)]] * 3),
        (lambda p: p.blocks(2, 2, 3), [[(2,)]] * 3),
        (lambda p: p.indices([2, 0]), [[(2, 0)]] * 3),
        (lambda p: p.indices(p.others()), [[(1, 2)], [(0, 2)], [(0, 1)]]),
        (lambda p: p.indices(p.peers(p.rank, p.select(p.rank > 0, 0))), [[(0,)], [(1, 0)], [(2, 0)]]),
        (lambda p: p.indices(p.peers(p.select(p.rank == 1, 4))), [[], [(1,)], []]),
    ],
)
def test_chunk_sets(choose: Callable[[Program], Any], expected: list[list[tuple[int, ...]]]) -> None:
    assert chunks(lambda p: p.send(choose(p), to=(p.rank + 1) % p.size), 3) == expected


def test_chunks_per_peer() -> None:
    def author(p: Program) -> None:
        p.send(p.chunk(p.others(), p.others()), to=p.others())

    assert operations(author, 3) == {
        0: ["send chunk 1 to 1; chunks [2, 0] to 2"],
        1: ["send chunks [2, 0] to 2"],
        2: ["send chunk 1 to 1"],
    }


def test_scratch_knows_the_chunk_it_is_like() -> None:
    author: Author = lambda p: p.copy(p.chunk(p.rank), into=p.scratch(5, like=p.rank))  # noqa: E731
    found = Algorithm("all_reduce", "test", author).schedule(3).operations()
    assert [mine[0].into.like for mine in found.values() if mine[0].into] == [(0,), (1,), (2,)]
    plain = Algorithm("all_reduce", "test", lambda p: p.copy(p.chunk(1), into=p.scratch(4))).schedule(3)
    assert [mine[0].into.contents for mine in plain.operations().values() if mine[0].into] == [(1,)] * 3


def test_spaces_of_chunk_sets() -> None:
    def author(p: Program) -> None:
        p.copy(p.input(p.rank, 2), into=p.scratch(0, 2, like=p.rank))
        p.send(p.blocks(1, 1, 2, space="scratch"), to=(p.rank + 1) % p.size)
        p.copy(p.scratch(0, 3), into=p.output(p.rank, 3, step=-1))

    assert operations(author, 3)[1] == [
        "copy input chunks [1, 2] into scratch chunks [0, 1]",
        "send scratch chunk 1 to 2",
        "copy scratch chunks [0, 1, 2] into output chunks [1, 0, 2]",
    ]


def test_chunks_that_do_not_exist_vanish_with_their_peer() -> None:
    """A count may be nonsense where there is nobody to talk to."""
    left_over: Author = lambda p: p.send(p.chunk(p.rank, 2 - p.rank), to=p.select(p.rank < 2, 3))  # noqa: E731
    assert operations(left_over, 4) == {
        0: ["send chunks [0, 1] to 3"],
        1: ["send chunk 1 to 3"],
        2: [],
        3: [],
    }


def test_algorithms_that_agree_on_the_number_of_chunks_can_follow_each_other() -> None:
    def author(p: Program) -> None:
        binomial_reduce(p)
        p.chunks(1)
        binomial_broadcast(p)

    assert verified(Algorithm("all_reduce", "test", author), 5).steps == 6


@pytest.mark.parametrize(
    ("author", "text"),
    [
        (lambda p: p.grid(2, 2), "a grid of 2 x 2 does not have 3 ranks"),
        (lambda p: p.send(p.chunk(p.others()), to=p.peers(0)), "chunks for 2 peers in an operation with 1"),
        (lambda p: p.send(p.chunk(0, -1), to=0), "a set of -1 chunks"),
        (lambda p: p.chunks(0), "cannot be cut into 0 chunks"),
        (lambda p: [p.send(p.chunk(0), to=0), p.chunks(2)], "before the first operation"),
        (lambda p: p.channel(-1).__enter__(), "no channel -1"),
        (lambda p: p.rank == 0 or p.rank == 1, "use select"),
        (lambda p: p.view([0, 3]), "must lie in 0..2"),
        (lambda p: p.view([1, 1]), "names a rank twice"),
        (lambda p: p.view([0, 1]).send(p.chunk(0), to=2), "peer 2 of a view of 2 ranks"),
        (lambda p: p.view([0, 1]).send(p.chunk(0), to=-1), "peer -1 of a view"),
    ],
)
def test_what_an_author_may_not_say(author: Author, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        operations(author, 3)


# -- labels ----------------------------------------------------------------------------------------------


def test_steps_phases_and_channels_are_labels() -> None:
    def author(p: Program) -> None:
        for c in range(2):
            with p.channel(c, order="reverse" if c else None), p.phase(f"half {c}"):
                for _ in p.steps(2 + c):
                    p.send(p.chunk(0), to=(p.rank + 1) % p.size)
        p.send(p.chunk(0), to=(p.rank + 1) % p.size)

    schedule = Algorithm("all_reduce", "test", author).schedule(2)
    found = [(op.step, op.phase, op.channel) for op in schedule.operations()[0]]
    halves = [(0, "half 0", 0), (1, "half 0", 0), (0, "half 1", 1), (1, "half 1", 1), (2, "half 1", 1)]
    assert found == [*halves, (0, "", 0)]
    assert schedule.channels == 2
    assert schedule.program.channel_order == {1: "reverse"}


# -- symbolic loops --------------------------------------------------------------------------------------


def test_a_deferred_value_is_evaluated_per_step() -> None:
    step = Symbol()
    value = select(step % 2 == 0, (np.arange(3) + step) % 3, NULL)
    assert isinstance(value, Deferred)
    assert rows(resolve(value, {step: 4}), 3) == [[1], [2], [0]]
    assert rows(resolve(value, {step: 1}), 3) == [[None]] * 3
    assert rows(resolve(columns(step, 7), {step: 2}), 1) == [[2, 7]]
    assert resolve((np.arange(3)[:, None] + step)[1], {step: 4}).tolist() == [5]
    for concrete in (int, bool, range, list):
        with pytest.raises(TypeError, match="symbolic step"):
            concrete(step)


def test_symbolic_ring_equals_the_unrolled_one() -> None:
    symbolic, unrolled = ring.schedule(100, symbolic=True), ring.schedule(100)
    assert [type(node) for node in symbolic.program.nodes] == [Loop, Loop]
    assert [type(node) for node in unrolled.program.nodes] == [Op] * (2 * 2 * 99)
    assert symbolic.operations() == unrolled.operations()


def test_what_does_not_depend_on_the_step_is_evaluated_once() -> None:
    ops = [op for op in ring.schedule(100, symbolic=True).unrolled() if op.kind == "send" and op.step < 99]
    assert len(ops) == 99
    assert len({id(op.peers) for op in ops}) == 1
    assert len({id(op.chunk.first) for op in ops}) == 99


def test_symbolic_ring_of_131072_ranks() -> None:
    n, ranks = 131072, [0, 1, 131071]
    schedule = ring.schedule(n, ranks, symbolic=True)
    loops = [node for node in schedule.program.nodes if isinstance(node, Loop)]
    assert [(loop.count, len(loop.body)) for loop in loops] == [(n - 1, 2), (n - 1, 2)]
    send = loops[1].body[0]
    assert resolve(send.chunk.first, {loops[1].symbol: 70000}).tolist() == [61073, 61074, 61072]
    assert send.peers.tolist() == [1, 2, 0]
    assert resolve(send.step, {loops[1].symbol: 7}) == n - 1 + 7


def test_unroll_and_nested_loops() -> None:
    def author(p: Program) -> None:
        for outer in p.steps(70, unroll=True):
            p.send(p.chunk(outer), to=(p.rank + 1) % p.size)
        for outer in p.steps(80):
            for inner in p.steps(64):  # a symbolic loop holds no other
                p.send(p.chunk(outer + inner), to=(p.rank + 1) % p.size)

    schedule = Algorithm("all_reduce", "test", author).schedule(100, symbolic=True)
    assert [type(node) for node in schedule.program.nodes] == [Op] * 70 + [Loop]
    assert len(schedule.program.nodes[-1].body) == 64  # type: ignore[union-attr]


def test_peers_of_views_in_a_symbolic_loop() -> None:
    def author(p: Program) -> None:
        some = p.view(np.arange(99, -1, -2))
        for step in p.steps(64):
            some.send(
                p.chunk(step), to=p.peers((some.rank + 1) % some.size, (some.rank + 2 + step % 3) % some.size)
            )

    made = Algorithm("all_reduce", "test", author)
    assert made.schedule(100, symbolic=True).operations() == made.schedule(100).operations()


def test_operations_read_well() -> None:
    found: dict[int, list[Operation]] = ring.schedule(3).operations()
    assert [str(op) for op in found[0][:2]] == ["send chunk 0 to 1", "reduce chunk 2 from 2"]
    assert operations(lambda p: p.send(p.chunk(0), to=p.peers(0, 1)), 3)[2] == ["send chunk 0 to 0, 1"]
    assert operations(lambda p: p.send(p.chunk(0), to=p.others()), 12)[0] == [
        "send chunk 0 to 1, 2, 3, 4, 5, 6, 7, 8, ..."
    ]
