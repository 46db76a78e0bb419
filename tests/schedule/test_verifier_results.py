"""The verifier refuses wrong results, reads of what is not there, and operations that may not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from proving import Author, Place, neighbours, prove, refused

from pycollectives.algorithms.binomial import binomial_reduce
from pycollectives.algorithms.ring import ring
from pycollectives.errors import ScheduleError
from pycollectives.schedule import Program
from pycollectives.schedule.verifier import verified, verify

# -- results ---------------------------------------------------------------------------------------------


def test_missing_contributions() -> None:
    def half_a_ring(p: Program) -> None:
        right, left = neighbours(p)
        for step in p.steps(p.size - 1):
            p.send(p.chunk((p.rank - step) % p.size), to=right)
            p.reduce(p.chunk((p.rank - step - 1) % p.size), source=left)

    text = (
        "rank 0: ends with chunk 0 wrong: ranks 1, 2, 3 missing; it is never written; rank 3 has it complete"
    )
    assert refused("all_reduce", half_a_ring, 4, text) == (0, None, 0, None)


def test_contribution_that_stays_behind() -> None:
    def overwritten(p: Program) -> None:
        p.chunks(1)
        p.send(p.chunk(0), to=p.select(p.rank == 0, 1))
        p.recv(p.chunk(0), source=p.select(p.rank == 1, 0))  # reduce was meant
        p.step()
        p.send(p.chunk(0), to=p.select(p.rank == 1, 0))
        p.recv(p.chunk(0), source=p.select(p.rank == 0, 1))

    place = refused(
        "all_reduce",
        overwritten,
        2,
        "chunk 0 wrong: rank 1 missing; it is last written in step 1: recv chunk 0",
    )
    assert place == (0, 1, 0, None)


def test_contribution_counted_twice() -> None:
    def reduces_again(p: Program) -> None:
        right, left = neighbours(p)
        for step in p.steps(p.size - 1):
            p.send(p.chunk((p.rank - step) % p.size), to=right)
            p.reduce(p.chunk((p.rank - step - 1) % p.size), source=left)
        with p.phase("all-gather"):
            for step in p.steps(p.size - 1):
                p.send(p.chunk((p.rank + 1 - step) % p.size), to=right)
                p.reduce(p.chunk((p.rank - step) % p.size), source=left)

    place = refused(
        "all_reduce",
        reduces_again,
        3,
        "step 2 (all-gather): reduce of chunk",
        "twice: what arrives contains all that is here; did you mean recv?",
    )
    assert place == (0, 2, 0, 2)


def test_contributions_counted_twice_by_a_combine() -> None:
    def author(p: Program) -> None:
        p.chunks(1)
        p.copy(p.chunk(0), into=p.scratch(0))
        p.combine(p.chunk(0), into=p.scratch(0))

    refused("all_reduce", author, 2, "combine of chunk 0 counts the contribution of rank 0 twice")


def test_result_at_the_wrong_rank() -> None:
    def to_the_last_rank(p: Program) -> None:
        p.chunks(1)
        p.send(p.chunk(0), to=p.select(p.rank == 0, 1))
        p.reduce(p.chunk(0), source=p.select(p.rank == 1, 0))

    place = refused(
        "reduce", to_the_last_rank, 2, "rank 1 missing; it is never written; rank 1 has it complete"
    )
    assert place == (0, None, 0, None)
    prove("reduce", to_the_last_rank, 2, root=1)


def test_barrier_that_does_not_hear_of_all() -> None:
    def one_step(p: Program) -> None:
        right, left = neighbours(p)
        p.chunks(1)
        p.send(p.chunk(0), to=right)
        p.reduce(p.chunk(0), source=left)

    place = refused(
        "barrier", one_step, 4, "rank 0, step 0: passes the barrier without having heard of ranks 1, 2"
    )
    assert place == (0, 0, 0, 1)
    refused("barrier", lambda p: None, 2, "without having heard of rank 1")
    prove("barrier", one_step, 2)


# -- empty chunks ----------------------------------------------------------------------------------------


def test_send_of_an_empty_chunk() -> None:
    def ring_of(chunk: Callable[[int], int]) -> Author:
        def author(p: Program) -> None:
            right, left = neighbours(p)
            for step in p.steps(p.size - 1):
                p.send(p.chunk((p.rank - chunk(step)) % p.size), to=right)
                p.recv(p.chunk((p.rank - chunk(step) - 1) % p.size), source=left)

        return author

    text = "sends chunk 2, which is still empty: it is first written in step 1, later in the program"
    assert refused("all_gather", ring_of(lambda step: 2 - step), 4, text) == (0, 0, 2, None)
    text = "sends chunk 3, which is still empty: nothing is written to it before"
    assert refused("all_gather", ring_of(lambda step: step + 1), 4, text) == (0, 0, 3, None)


def test_reduce_into_an_empty_chunk() -> None:
    def author(p: Program) -> None:
        p.chunks(1)
        p.send(p.chunk(0), to=p.select(p.rank == 0, 1))
        p.reduce(p.chunk(0), source=p.select(p.rank == 1, 0))

    place = refused("broadcast", author, 2, "reduces into chunk 0, which is still empty; did you mean recv?")
    assert place == (1, 0, 0, None)


@pytest.mark.parametrize(
    ("author", "text"),
    [
        (
            lambda p: p.copy(p.scratch(0), into=p.chunk(0)),
            "copies scratch chunk 0, which is still empty: nothing",
        ),
        (
            lambda p: p.combine(p.chunk(0), into=p.scratch(0)),
            "combines into scratch chunk 0, which is still empty",
        ),
        (lambda p: p.copy(p.output(0), into=p.scratch(0)), "copies output chunk 0, which is still empty"),
    ],
)
def test_local_read_of_an_empty_chunk(author: Author, text: str) -> None:
    assert refused("all_reduce", author, 2, text) == (0, 0, 0, None)


def test_scratch_read_as_another_chunk() -> None:
    def author(p: Program) -> None:
        p.copy(p.chunk(0), into=p.scratch(7, like=0))
        p.copy(p.scratch(7, like=1), into=p.chunk(1))

    refused("all_reduce", author, 2, "copies scratch chunk 7 as chunk 1, but it holds chunk 0")


# -- single operations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "author", "text", "place"),
    [
        ("all_reduce", lambda p: p.recv(p.input(0), source=1),
         "recv writes input chunk 0: the input is read only", (0, 0, 0, None)),
        ("all_reduce", lambda p: p.copy(p.chunk(1), into=p.input(1)), "copy writes input chunk 1",
         (0, 0, 1, None)),
        ("all_reduce", lambda p: p.send(p.chunk(2), to=p.rank + 1), "names peer 3, but ranks are 0..2",
         (2, 0, 2, 3)),
        ("all_reduce", lambda p: p.send(p.chunk(2), to=p.rank - 1), "names peer -1", (0, 0, 2, -1)),
        ("all_reduce", lambda p: p.send(p.chunk(2), to=0), "names the rank itself as its peer", (0, 0, 2, 0)),
        ("all_reduce", lambda p: p.send(p.chunk(0), to=p.peers(p.rank ^ 1, p.rank ^ 1)), "names peer 1 twice",
         (0, 0, 0, 1)),
        ("all_reduce", lambda p: p.recv(p.chunk(0), source=p.others()),
         "recv puts what ranks 1 and 2 send into the same chunk 0: did you mean reduce?", (0, 0, 0, 2)),
        ("all_reduce", lambda p: p.send(p.chunk(1, 4), to=p.rank ^ 1),
         "names chunk 1 twice in one set [1, 2, 0, 1]: there are only 3 chunks",
         (0, 0, 1, 1)),
        ("all_reduce", lambda p: p.send(p.indices([1, 1]), to=p.rank ^ 1), "names chunk 1 twice",
         (0, 0, 1, 1)),
        ("all_reduce", lambda p: p.copy(p.chunk(0, 2), into=p.output(1, 2)), "onto itself (chunk 1)",
         (0, 0, 1, None)),
        ("all_reduce", lambda p: p.combine(p.scratch(2), into=p.scratch(2)), "onto itself (chunk 2)",
         (0, 0, 2, None)),
        ("all_reduce", lambda p: p.copy(p.chunk(0), into=p.chunk(1)), "data of chunk 0 would end in chunk 1",
         (0, 0, 1, None)),
        ("all_reduce", lambda p: p.copy(p.chunk(0), into=p.scratch(1)), "say by like=", (0, 0, 1, None)),
        ("all_reduce", lambda p: p.copy(p.chunk(0, 2), into=p.scratch(0)), "copy of 2 chunks into 1",
         (0, 0, 0, None)),
        ("all_reduce", lambda p: p.copy(p.chunk(2), into=p.scratch(p.rank - 1, like=2)),
         "scratch chunk -1: scratch is numbered from 0", (0, 0, -1, None)),
        ("reduce_scatter", lambda p: p.copy(p.chunk(1), into=p.output(1)),
         "writes output chunk 1, but the output of this rank holds chunk 0: use chunk()", (0, 0, 1, None)),
        ("reduce", lambda p: p.copy(p.chunk(1), into=p.output(1), when=p.rank > 0), "this rank has no output",
         (1, 0, 1, None)),
        ("all_gather", lambda p: p.send(p.input(1), to=p.rank ^ 1),
         "reads input chunk 1, but the input of this rank holds chunk 0", (0, 0, 1, 1)),
        ("all_reduce", lambda p: p.copy(p.input(0), into=p.output(0)), "onto itself (chunk 0): chunk() reads",
         (0, 0, 0, None)),
        ("all_reduce",
         lambda p: [p.copy(p.chunk(0), into=p.scratch(0)), p.copy(p.scratch(0), into=p.chunk(0)),
                    p.copy(p.input(0), into=p.scratch(0))],
         "copies input chunk 0 after chunk 0 was written (in place: the same); keep a copy in scratch",
         (0, 0, 0, None)),
    ],
)  # fmt: skip
def test_what_an_operation_may_not_do(collective: str, author: Author, text: str, place: Place) -> None:
    assert refused(collective, author, 3, text) == place


def test_the_schedule_as_a_whole() -> None:
    refused("all_gather", lambda p: p.chunks(4), 3, "4 chunks; the blocks of the ranks need a multiple of 3")
    with pytest.raises(ScheduleError, match=r"only all ranks together can be verified, not \[0, 2\]"):
        verify(ring.schedule(3, [0, 2]))
    with pytest.raises(ScheduleError, match="there is no root 3"):
        verified(binomial_reduce, 3, 3)
