"""The evaluations that a proof compares, and what it holds."""

from __future__ import annotations

import itertools
import pickle
import re
from fractions import Fraction

import pytest
from proving import neighbours, prove, refused
from sequential import run_strictly

from pycollectives.algorithms.binomial import binomial_reduce
from pycollectives.algorithms.direct import one_shot, two_shot
from pycollectives.algorithms.double_tree import double_binary_tree
from pycollectives.algorithms.ring import ring, ring_all_gather
from pycollectives.errors import InvalidArgumentError, ScheduleError
from pycollectives.schedule import NULL, Algorithm, Program
from pycollectives.schedule.verifier import Stage, verified, verify

# -- the three evaluations -------------------------------------------------------------------------------


def test_rank_alone_must_give_the_same() -> None:
    def by_position(p: Program) -> None:
        p.chunks(1)
        first = p.rank == p.rank.min()  # alone, every rank is the first
        p.send(p.chunk(0), to=p.select(first, 1))
        p.recv(p.chunk(0), source=p.select(first, NULL, 0))

    place = refused(
        "broadcast", by_position, 2, "evaluated alone its operation 0 is: send chunk 0 to 1; among all"
    )
    assert place == (1, 0, 0, None)

    def chunks_by_position(p: Program) -> None:
        p.chunks(3 * len(p.rank))
        p.send(p.chunk(3 * p.rank, 3), to=p.others())
        p.recv(p.chunk(3 * p.others(), 3), source=p.others())

    refused("all_gather", chunks_by_position, 3, "evaluated alone it has chunks, channels = 3, 1, else 9, 1")

    def more_alone(p: Program) -> None:
        one_shot.author(p)
        p.copy(p.chunk(0), into=p.scratch(0), when=len(p.rank) == 1)

    refused("all_reduce", more_alone, 3, "alone it has 3 operations, else 2; the first more is: copy chunk 0")


def test_symbolic_steps_must_give_the_same() -> None:
    def counts_itself(p: Program) -> None:
        right, left = neighbours(p)
        done: list[int] = []
        for _ in p.steps(p.size - 1):
            p.send(p.chunk((p.rank - len(done)) % p.size), to=right)
            p.recv(p.chunk((p.rank - len(done) - 1) % p.size), source=left)
            done.append(1)

    prove("all_gather", counts_itself, 64)
    place = refused(
        "all_gather", counts_itself, 66, "rank 0, step 1: evaluated with symbolic steps its operation 2"
    )
    assert place[:2] == (0, 1)


def test_errors_pickle() -> None:
    with pytest.raises(ScheduleError) as caught:
        prove("barrier", lambda p: None, 2)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.rank, copy.chunk) == (str(caught.value), 0, 0)


# -- what a proof holds ----------------------------------------------------------------------------------


def test_reduction_trees() -> None:
    assert str(verified(one_shot, 4).tree(2, 0)) == "0+1+2+3"
    assert str(verified(ring, 4).tree(0, 0)) == "((0+1)+2)+3"
    assert str(verified(ring, 4).tree(0, 2)) == "(0+(2+3))+1"
    assert str(verified(double_binary_tree, 4).tree(3, 0, channel=1)) == "(0+1+2)+3"
    assert list(verified(ring, 4).tree(1, 2).leaves()) == [0, 2, 3, 1]
    assert str(verified(ring_all_gather, 4).tree(1, 2)) == "2"
    with pytest.raises(InvalidArgumentError, match="rank 1 holds no chunk 0"):
        verified(binomial_reduce, 2).tree(1, 0)


def test_rank_identical_needs_one_tree() -> None:
    def each_its_own_way(p: Program) -> None:
        """In step k everyone adds what rank k had at first."""
        p.chunks(1)
        p.copy(p.chunk(0), into=p.scratch(0))
        for other in p.steps(p.size):
            p.send(p.scratch(0), to=p.select(p.rank == other, p.others()))
            p.reduce(p.chunk(0), source=p.select(p.rank == other, NULL, other))

    proof = prove("all_reduce", each_its_own_way, 3)
    assert [str(proof.tree(r, 0)) for r in range(3)] == ["(0+1)+2", "(0+1)+2", "1+(0+2)"]
    assert not proof.rank_identical


def test_stages() -> None:
    original, partial, complete = Stage.ORIGINAL, Stage.PARTIAL, Stage.COMPLETE
    proof = verified(ring, 3)
    messages = [original, original, partial, partial, complete, complete, complete, complete]
    assert proof.message[1] == [(stage,) for stage in messages]
    assert proof.before[1] == [original, original, partial, original, complete, original, complete, partial]
    assert proof.after[1] == [original, partial, partial, complete, complete, complete, complete, complete]
    assert proof.message[0] == proof.message[1]

    proof = verified(two_shot, 3)
    assert proof.message[0] == [(original,) * 2, (original,) * 2, (complete,) * 2, (complete,) * 2]
    proof = verified(ring_all_gather, 3)
    assert proof.before[0] == [original, Stage.EMPTY, original, Stage.EMPTY]
    assert proof.after[0] == [original] * 4


def test_stage_of_a_mixed_message_is_partial() -> None:
    def author(p: Program) -> None:
        """Rank 1 reduces chunk 0, then sends it together with its own chunk 1."""
        first, second = p.rank == 0, p.rank == 1
        p.send(p.chunk(0), to=p.select(first, 1))
        p.reduce(p.chunk(0), source=p.select(second, 0))
        p.send(p.chunk(0, 2), to=p.select(second, 0))
        p.recv(p.scratch(0, 2), source=p.select(first, 1))
        p.copy(p.scratch(0), into=p.chunk(0), when=first)
        p.combine(p.scratch(1), into=p.chunk(1), when=first)
        p.send(p.chunk(1), to=p.select(first, 1))
        p.recv(p.chunk(1), source=p.select(second, 0))

    proof = prove("all_reduce", author, 2)
    assert proof.message[1][1] == (Stage.PARTIAL,)
    assert proof.message[0][2:4] == [(Stage.COMPLETE,), (Stage.ORIGINAL,)]
    assert proof.left_fold is False  # rank 0 combines 1+0
    assert str(proof.tree(1, 1)) == "1+0"


def test_bytes_and_steps() -> None:
    proof = verified(ring, 5)
    assert proof.steps == 8
    assert proof.bytes_sent == (Fraction(8, 5),) * 5
    assert sum(verified(double_binary_tree, 6).bytes_sent) == 2 * 5


# -- against brute force ---------------------------------------------------------------------------------


def test_all_rings_with_wrong_offsets() -> None:
    """The verifier accepts a ring exactly where running it gives the right result."""
    n, right_ones = 3, 0
    for a, b, c, d in itertools.product(range(n), repeat=4):

        def author(p: Program, offsets: tuple[int, ...] = (a, b, c, d)) -> None:
            right, left = neighbours(p)
            for step in p.steps(n - 1):
                p.send(p.chunk(p.rank + offsets[0] - step), to=right)
                p.reduce(p.chunk(p.rank + offsets[1] - step), source=left)
            for step in p.steps(n - 1):
                p.send(p.chunk(p.rank + offsets[2] - step), to=right)
                p.recv(p.chunk(p.rank + offsets[3] - step), source=left)

        schedule = Algorithm("all_reduce", "mine", author).schedule(n)
        operations = schedule.operations()
        ended = run_strictly(operations, {rank: list(range(len(mine))) for rank, mine in operations.items()})
        truth = bool(ended) and all(
            ended[r][k] == {(q, k): 1 for q in range(n)} for r in range(n) for k in range(n)
        )
        try:
            verify(schedule)
        except ScheduleError as error:
            assert not truth, (a, b, c, d, str(error))
            assert re.match("all_reduce by 'mine' with 3 ranks: rank \\d", str(error))
        else:
            assert truth, (a, b, c, d)
            right_ones += 1
    assert right_ones == n  # one for every place to start
