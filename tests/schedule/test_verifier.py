"""The verifier: what it refuses and how it says so, and what a proof holds."""

from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from sequential import run_strictly

from pycollectives.algorithms.binomial import binomial_reduce
from pycollectives.algorithms.direct import one_shot, two_shot
from pycollectives.algorithms.double_tree import double_binary_tree
from pycollectives.algorithms.ring import ring, ring_all_gather
from pycollectives.errors import InvalidArgumentError, ScheduleError
from pycollectives.schedule import NULL, Algorithm, Program
from pycollectives.schedule.verifier import Proof, Stage, verified, verify

Author = Callable[[Program], None]
Place = tuple[int | None, int | None, int | None, int | None]  # rank, step, chunk, peer


def prove(collective: str, author: Author, size: int, root: int = 0) -> Proof:
    return verified(Algorithm(collective, "mine", author), size, root)


def refused(collective: str, author: Author, size: int, *texts: str) -> Place:
    """Where the error says the schedule is wrong; its message has all of `texts`."""
    with pytest.raises(ScheduleError) as caught:
        prove(collective, author, size)
    error = caught.value
    assert (error.collective, error.algorithm) == (collective, "mine")
    assert str(error).startswith(f"{collective} by 'mine' with {size} ranks: ")
    for text in texts:
        assert text in str(error), str(error)
    return error.rank, error.step, error.chunk, error.peer


def neighbours(p: Program) -> tuple[np.ndarray, np.ndarray]:
    return (p.rank + 1) % p.size, (p.rank - 1) % p.size


# -- messages --------------------------------------------------------------------------------------------


def test_send_without_receive() -> None:
    def wrong_source(p: Program) -> None:
        right, _ = neighbours(p)
        for step in p.steps(p.size - 1):
            p.send(p.chunk((p.rank - step) % p.size), to=right)
            p.recv(p.chunk((p.rank - step - 1) % p.size), source=right)

    place = refused(
        "all_gather",
        wrong_source,
        4,
        "rank 0, step 0: sends chunk 0 to rank 1, which never receives it (3 sends, 0 receives)",
        "rank 1 waits for rank 2 in step 0 instead: wrong peer?",
    )
    assert place == (0, 0, 0, 1)


def test_receive_without_send() -> None:
    def wrong_target(p: Program) -> None:
        p.chunks(1)
        p.send(p.chunk(0), to=p.select(p.rank == 0, 2))
        p.recv(p.chunk(0), source=p.select(p.rank == 1, 0))

    place = refused(
        "broadcast",
        wrong_target,
        3,
        "rank 1, step 0: recv waits for chunk 0 from rank 0, which never sends it",
        "rank 0 sends to rank 2 in step 0 instead: wrong peer?",
    )
    assert place == (1, 0, 0, 0)


def test_the_message_that_is_missing_in_the_middle() -> None:
    def forgetful(p: Program) -> None:
        for step in p.steps(3):
            p.send(p.chunk(step), to=p.select(p.rank == 0, 1))
            if step != 1:
                p.recv(p.chunk(step), source=p.select(p.rank == 1, 0))

    place = refused("broadcast", forgetful, 3, "sends chunk 1 to rank 1, which never receives it (3 sends, 2")
    assert place == (0, 1, 1, 1)


def test_message_on_another_channel() -> None:
    def crossed(p: Program) -> None:
        p.chunks(1)
        p.send(p.chunk(0), to=p.select(p.rank == 0, 1))
        with p.channel(1):
            p.recv(p.chunk(0), source=p.select(p.rank == 1, 0))

    refused(
        "broadcast",
        crossed,
        2,
        "channel 0: sends chunk 0",
        "waits for this rank on channel 1",
        "wrong channel?",
    )


def test_unequal_numbers_of_chunks() -> None:
    def author(p: Program) -> None:
        p.send(p.chunk(0, 2), to=p.select(p.rank == 0, 1))
        p.recv(p.chunk(0), source=p.select(p.rank == 1, 0))

    place = refused(
        "broadcast", author, 2, "sends chunks [0, 1] to rank 1", "as chunk 0: 2 chunks sent, room for 1"
    )
    assert place[0] == 0


def test_chunk_received_as_another_one() -> None:
    def off_by_one(p: Program) -> None:
        right, left = neighbours(p)
        for step in p.steps(p.size - 1):
            p.send(p.chunk((p.rank - step) % p.size), to=right)
            p.recv(p.chunk((p.rank - step) % p.size), source=left)

    place = refused(
        "all_gather", off_by_one, 4, "sends chunk 0 to rank 1, which receives it in step 0 as chunk 1"
    )
    assert place == (0, 0, 0, 1)


def test_messages_in_another_order() -> None:
    def author(p: Program) -> None:
        for step in p.steps(2):
            p.send(p.chunk(step), to=p.select(p.rank == 0, 1))
            p.recv(p.chunk(1 - step), source=p.select(p.rank == 1, 0))

    refused("broadcast", author, 2, "chunk 0 is expected in step 1: are the two ends in another order?")


def test_scratch_that_does_not_say_what_it_is_like() -> None:
    def author(p: Program) -> None:
        p.send(p.chunk(p.rank), to=1 - p.rank)
        p.recv(p.scratch(p.rank), source=1 - p.rank)

    refused("all_gather", author, 2, "which receives it in step 0 as scratch chunk 1", "say by like=")


# -- deadlock --------------------------------------------------------------------------------------------


def test_deadlock_shows_the_cycle() -> None:
    def nobody_starts(p: Program) -> None:
        right, left = neighbours(p)
        p.chunks(1)
        p.reduce(p.chunk(0), source=left)
        p.step()
        p.send(p.chunk(0), to=right)

    place = refused(
        "all_reduce",
        nobody_starts,
        3,
        "rank 0, step 0: reduce chunk 0 from 2 can never happen (deadlock); it waits for",
        "its message: rank 2, step 1: send chunk 0 to 0, which waits for",
        "an earlier operation on chunk 0: rank 2, step 0: reduce chunk 0 from 1, which waits for",
        "an earlier operation on chunk 0: rank 0, step 0: reduce chunk 0 from 2 (the first again)",
    )
    assert place == (0, 0, 0, 2)


def test_deadlock_of_many_ranks_is_cut_short() -> None:
    def nobody_starts(p: Program) -> None:
        right, left = neighbours(p)
        p.chunks(1)
        p.reduce(p.chunk(0), source=left)
        p.send(p.chunk(0), to=right)

    with pytest.raises(ScheduleError, match=r"\.\.\. \d+ more \.\.\.") as caught:
        prove("all_reduce", nobody_starts, 32)
    assert len(str(caught.value).splitlines()) == 12


def test_deadlock_in_a_queue_of_one_message() -> None:
    def two_at_once(p: Program) -> None:
        p.chunks(1)
        for op in (p.send, p.send, p.recv, p.recv):
            op(p.chunk(0), 1 - p.rank)

    refused(
        "all_reduce",
        two_at_once,
        2,
        "deadlock",
        "room in the queue to rank 1, until the message before is taken",
    )


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


# -- order -----------------------------------------------------------------------------------------------


def receive_first(p: Program) -> None:
    """A ring all-gather whose author receives before sending: right, but not one after the other."""
    right, left = neighbours(p)
    for step in p.steps(p.size - 1):
        p.recv(p.chunk((p.rank - step - 1) % p.size), source=left)
        p.send(p.chunk((p.rank - step) % p.size), to=right)


def test_receive_before_send() -> None:
    proof = prove("all_gather", receive_first, 4)
    assert not proof.in_program_order
    program_order = {rank: list(range(6)) for rank in range(4)}
    assert proof.order != program_order
    assert all(sorted(mine) == list(range(6)) for mine in proof.order.values())
    assert not run_strictly(proof.operations, program_order)
    assert run_strictly(proof.operations, proof.order)
    assert verified(ring_all_gather, 4).in_program_order
    assert verified(ring_all_gather, 4).order == program_order


def test_send_carries_the_value_at_issue() -> None:
    def swap(p: Program) -> None:
        """Both ranks send their chunk, then overwrite it, then add the kept one."""
        p.chunks(1)
        p.copy(p.chunk(0), into=p.scratch(0))
        p.send(p.chunk(0), to=1 - p.rank)
        p.recv(p.chunk(0), source=1 - p.rank)
        p.combine(p.scratch(0), into=p.chunk(0))

    proof = prove("all_reduce", swap, 2)
    assert [str(proof.tree(rank, 0)) for rank in range(2)] == ["0+1", "1+0"]
    assert not proof.rank_identical


def test_channels_do_not_wait_for_each_other() -> None:
    def author(p: Program) -> None:
        p.chunks(1)
        for c in range(2):  # channel 1: rank 1 first; in one queue this would be a deadlock
            with p.channel(c):
                first = p.rank == c
                p.reduce(p.chunk(0), source=p.select(first, NULL, 1 - p.rank))
                p.send(p.chunk(0), to=1 - p.rank)
                p.recv(p.chunk(0), source=p.select(first, 1 - p.rank, NULL))

    proof = prove("all_reduce", author, 2)
    assert proof.in_program_order


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
