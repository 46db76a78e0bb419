"""The verifier refuses messages that do not match, deadlocks, and orders that do not exist."""

from __future__ import annotations

import pytest
from proving import neighbours, prove, refused
from sequential import run_strictly

from pycollectives.algorithms.ring import ring_all_gather
from pycollectives.errors import ScheduleError
from pycollectives.schedule import NULL, Program
from pycollectives.schedule.verifier import verified

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
