"""Footprints, read for all ranks at once, against counting one by one; descriptions of algorithms."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable
from fractions import Fraction

import pytest

import pycollectives.algorithms  # noqa: F401
from pycollectives.cost import Footprint, Machine, describe, footprint, predict, stretch
from pycollectives.cost.partial import partial_bytes
from pycollectives.errors import InvalidArgumentError, ScheduleError, UnsupportedError
from pycollectives.schedule import ALGORITHMS, COLLECTIVES, Algorithm, Operation, Program, find

BUILTIN = [pytest.param(a, id=f"{a.collective}-{a.name}") for a in ALGORITHMS.values() if a.builtin]


def chunks(op: Operation) -> int:
    return sum(len(part.index) for _, part in op.parts)


def finish(programs: list[deque[Operation]], takes: Callable[[Operation], int]) -> int:
    """The time of one channel by what an operation takes: ranks advance one by one as messages come."""
    size = len(programs)
    start, now, done, step = [0] * size, [0] * size, [0] * size, [0] * size
    queues: dict[tuple[int, int], deque[int]] = defaultdict(deque)
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            while program:
                op = program[0]
                if op.kind in ("recv", "reduce") and not all(queues[q, rank] for q in op.peers):
                    break
                program.popleft()
                moved = True
                if op.step != step[rank]:
                    start[rank] = now[rank] = done[rank] = max(now[rank], done[rank])
                    step[rank] = op.step
                if op.kind == "send":
                    for peer in op.peers:
                        queues[rank, peer].append(now[rank])
                    done[rank] = max(done[rank], now[rank] + takes(op))
                elif op.into is None:
                    sent = max(queues[q, rank].popleft() for q in op.peers)
                    now[rank] = max(now[rank], max(sent, start[rank]) + takes(op))
                    done[rank] = max(done[rank], now[rank])
    assert not any(programs)
    return max(*now, *done, 0)


def counted(algorithm: Algorithm, size: int, root: int) -> Footprint:
    schedule = algorithm.schedule(size, root=root)
    operations = schedule.operations()

    def most(kinds: str, count: Callable[[Operation], int]) -> int:
        return max(sum(count(op) for op in mine if op.kind in kinds.split()) for mine in operations.values())

    def at_once(op: Operation) -> int:
        return max(len(part.index) for _, part in op.parts) if op.kind == "send" else chunks(op)

    def longest(takes: Callable[[Operation], int]) -> int:
        parts = (
            [deque(o for o in mine if o.channel == c and o.into is None) for mine in operations.values()]
            for c in range(schedule.channels)
        )
        return max(finish(programs, takes) for programs in parts)

    received = [op for mine in operations.values() for op in mine if op.kind in ("recv", "reduce")]
    share = Fraction(1, schedule.nchunks * schedule.channels)
    return Footprint(
        steps=longest(lambda op: 1),
        messages=most("recv reduce", lambda op: len(op.parts)),
        sent=most("send", chunks) * share,
        received=most("recv reduce", chunks) * share,
        reduced=most("reduce combine", chunks) * share,
        copied=most("copy", chunks) * share,
        total=sum(map(chunks, received)) * share,
        path=longest(at_once) * share,
        largest=max(map(chunks, received), default=0) * share,
        channels=schedule.channels,
    )


@pytest.mark.parametrize("algorithm", BUILTIN)
def test_footprint_against_counting(algorithm: Algorithm) -> None:
    for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13):
        placed = algorithm.on(
            tuple(rank * 2 // size for rank in range(size))
        )  # two hosts, for those that need them
        if not placed.obstacle(size):
            for root in {0, size // 2, size - 1} if COLLECTIVES[algorithm.collective].rooted else {0}:
                assert footprint(placed, size, root) == counted(placed, size, root), (size, root)
    with pytest.raises(UnsupportedError if placed.obstacle(13) else AssertionError):
        footprint(placed, 13)
        raise AssertionError


def odd_one(p: Program) -> None:
    """Messages in flight over several steps, sets of every kind, a step that is asked for its number."""
    p.chunks(8)
    right, left = (p.rank + 1) % p.size, (p.rank - 1) % p.size
    p.send(p.blocks(p.rank % 3, 2, 3), to=right)
    p.step()
    p.send(p.indices(p.peers(0, p.select(p.rank % 2 == 0, 3))), to=left)
    for step in p.steps(2):
        p.send(p.chunk(0, int(step) + 1), to=p.peers(p.select(p.rank > 1, right), left))
    p.recv(p.blocks(left % 3, 2, 3), source=left)
    p.recv(p.indices(p.peers(0, p.select(right % 2 == 0, 3))), source=right)
    for step in p.steps(2):
        p.recv(p.chunk(0, step + 1), source=p.peers(right, p.select(left > 1, left)))
        p.combine(p.scratch(0), into=p.chunk(0), when=p.rank == step)


def receive_first(p: Program) -> None:
    for step in p.steps(p.size - 1):
        p.recv(p.chunk((p.rank - step - 1) % p.size), source=(p.rank - 1) % p.size)
        p.send(p.chunk((p.rank - step) % p.size), to=(p.rank + 1) % p.size)


def crossing(p: Program) -> None:
    """In between as many messages are received as were sent, but others."""
    p.chunks(1)
    p.send(p.chunk(0), to=p.select(p.rank == 0, 1))
    p.step()
    p.recv(p.chunk(0), source=p.select(p.rank == 3, 2))
    p.recv(p.chunk(0), source=p.select(p.rank == 1, 0))
    p.send(p.chunk(0), to=p.select(p.rank == 2, 3))


@pytest.mark.parametrize("author", [odd_one, crossing])
def test_schedules_of_other_kinds(author: Callable[[Program], None]) -> None:
    mine = Algorithm("all_reduce", "mine", author)
    assert footprint(mine, 4) == counted(mine, 4, 0)


def test_a_deadlock_in_program_order_ends() -> None:
    assert footprint(Algorithm("all_gather", "mine", receive_first), 4).received == Fraction(3, 4)


def test_unreadable_schedules() -> None:
    with pytest.raises(ScheduleError, match="all_reduce by 'mine': "):
        footprint(Algorithm("all_reduce", "mine", lambda p: p.recv(p.chunk(0), source=p.rank + 1)), 4)


def test_large_worlds_are_quick() -> None:
    begin = time.process_time()
    assert footprint(find("all_reduce", "halving_doubling"), 65536).steps == 32
    assert footprint(find("all_reduce", "torus(64x64)"), 4096).steps == 4 * 63
    assert footprint(find("all_reduce", "double_binary_tree"), 65536).steps == 32
    assert footprint(find("all_reduce", "ring"), 4096).steps == 2 * 4095
    assert time.process_time() - begin < 20  # about 2 on an idle core


def test_predicted_time() -> None:
    machine = Machine(alpha=1.0, turn=1.0, beta=1.0, gamma=1.0, cores=64)
    ring, double = find("all_reduce", "ring"), find("all_reduce", "recursive_doubling")
    assert predict(ring, 16, 0, machine) > predict(double, 16, 0, machine)
    assert predict(ring, 16, 1000, machine) < predict(double, 16, 1000, machine)


def test_whole_messages_wait_for_each_other_and_slices_do_not() -> None:
    machine = Machine(alpha=1e-6, message=1e-9, beta=1e-10, beta_memory=1e-10, cores=8)
    chain, tree = find("broadcast", "chain"), find("broadcast", "binomial")
    assert footprint(tree, 8).path == 3 and footprint(chain, 8).path == 7
    assert footprint(tree, 8).received == footprint(chain, 8).received == 1
    small, large = 64 << 10, 64 << 20
    assert predict(chain, 8, small, machine) > 2 * predict(tree, 8, small, machine)
    assert predict(chain, 8, large, machine) == pytest.approx(large * 1e-10, rel=0.02)
    assert stretch(footprint(chain, 8), 8, small, machine) == 7


def test_ranks_that_share_a_core_do_all_the_work_one_after_the_other() -> None:
    machine = Machine(alpha=1e-9, turn=1e-9, enter=1e-9, message=1e-12, beta=1e-9, beta_memory=1e-9, cores=1)
    flat = find("broadcast", "flat")
    assert footprint(flat, 5).total == 4
    assert predict(flat, 5, 1 << 20, machine) == pytest.approx(4 * (1 << 20) * 1e-9, rel=1e-3)


def test_bytes_that_leave_the_caches_cost_more() -> None:
    machine = Machine(beta=1e-10, beta_memory=1e-9, cache=1 << 20)
    assert machine.moving(1 << 20) == 1e-10
    assert machine.moving(1 << 40) == pytest.approx(1e-9, rel=1e-3)
    assert 1e-10 < machine.moving(1 << 21) < 1e-9


def test_partial_sums_of_narrow_floats_travel_wide() -> None:
    machine = Machine(beta=1e-9, beta_memory=1e-9, gamma=1e-15, gamma_half=1e-15, cores=64)
    ring, direct = find("reduce_scatter", "ring"), find("reduce_scatter", "direct")
    n = 1 << 20
    for one, more in ((ring, 2 / 4), (direct, 0)):  # of 3/4 received, the second and third hop are sums
        extra = predict(one, 4, n, machine, kind="half") - predict(one, 4, n, machine)
        assert extra == pytest.approx(more * n * 1e-9, rel=1e-3, abs=1e-12)
    wide = find("all_reduce", "ring")
    assert partial_bytes(wide, 9) == footprint(wide, 9).reduced  # an upper bound where a proof takes long


def test_descriptions() -> None:
    ring = describe(find("all_reduce", "ring"), 8)
    assert (ring.name, ring.steps, ring.sent, ring.rank_order, ring.left_fold) == (
        "ring",
        14,
        Fraction(7, 4),
        False,
        False,
    )
    assert ring.cost == "2(P-1) α + 2(P-1)/P n β + (P-1)/P n γ"
    assert (ring.restrictions, ring.obstacle) == ((), "")
    assert str(ring) == f"ring: {ring.cost}; 14 steps; sends 7/4 n and receives 7/4 n per rank at most"
    chain = describe(find("reduce", "chain"), 8, root=3)
    assert (chain.rank_order, chain.left_fold, chain.steps) == (True, True, 8)
    exchange = find("all_gather", "neighbor_exchange")
    assert describe(exchange, 6).restrictions == ("needs an even number of ranks",)
    refused = describe(exchange, 5)
    assert (refused.steps, refused.sent, refused.obstacle) == (
        None,
        None,
        "it needs an even number of ranks, not 5",
    )
    assert str(refused) == "neighbor_exchange: P/2 α + (P-1)/P n β; it needs an even number of ranks, not 5"
    torus = describe(find("all_reduce", "torus(2x4)"), 8)
    assert (torus.name, torus.steps, torus.restrictions) == ("torus(2x4)", 8, ("takes ROWSxCOLUMNS",))
    with pytest.raises(InvalidArgumentError, match="does not fit 9 ranks"):
        describe(find("all_reduce", "torus(2x4)"), 9)
    assert describe(find("all_to_all", "bruck"), 5).restrictions == ("needs blocks of one size",)
    assert describe(find("all_to_all", "bruck"), 5).rank_order is None
    assert describe(find("all_reduce", "ring"), 100).rank_order is None
