"""Algorithms that know hosts: right on every placement, and few of their messages leave a host."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import prod

import pytest

from pycollectives.algorithms.blueconnect import factorizations, primes
from pycollectives.errors import InvalidArgumentError, UnsupportedError
from pycollectives.schedule import ALGORITHMS, COLLECTIVES, Algorithm, Placement, find
from pycollectives.schedule.placement import compact
from pycollectives.schedule.verifier import verified

AWARE = [
    pytest.param(a, id=f"{a.collective}-{a.name}")
    for a in ALGORITHMS.values()
    if a.builtin and isinstance(a.parameter, Placement)
]
EVEN = ["1x4", "4x1", "2x2", "2x3", "3x2", "0,1,0,1", "0,1,2,0,1,2", "0,1,1,0"]
UNEVEN = ["3+1", "1+3", "2+1+1", "4+3", "0,1,1,0,2,0,1"]


def on(algorithm: Algorithm, text: str) -> Algorithm:
    return find(algorithm.collective, f"{algorithm.name}({text})")


def crossings(
    algorithm: Algorithm, root: int = 0, hosts: tuple[int, ...] | None = None
) -> tuple[Counter[int], dict[int, Fraction]]:
    """By rank: the messages that it sends to other hosts; by host: the part of the vector that leaves it."""
    hosts = hosts or algorithm.argument
    assert hosts is not None
    schedule = algorithm.schedule(len(hosts), root=root)
    messages: Counter[int] = Counter()
    moved: dict[int, Fraction] = dict.fromkeys(hosts, Fraction(0))
    for rank, mine in schedule.operations().items():
        for op in mine:
            for peer, chunks in op.parts if op.kind == "send" else ():
                if peer is not None and hosts[peer] != hosts[rank]:
                    messages[rank] += 1
                    moved[hosts[rank]] += Fraction(len(chunks.index), schedule.nchunks * schedule.channels)
    return messages, moved


@pytest.mark.parametrize("algorithm", AWARE)
def test_right_on_every_placement(algorithm: Algorithm) -> None:
    for text in EVEN + UNEVEN:
        placed = on(algorithm, text)
        assert placed.argument is not None
        size = len(placed.argument)
        if why := placed.obstacle(size):
            assert text in UNEVEN and "equally many" in why
            with pytest.raises(UnsupportedError, match="equally many"):
                placed.schedule(size)
            continue
        for root in range(size) if COLLECTIVES[algorithm.collective].rooted else [0]:
            proof = verified(placed, size, root)
            assert proof.rank_identical and proof.in_program_order


def test_names_of_placements() -> None:
    one = ALGORITHMS["all_reduce", "hierarchical"]
    for text, hosts in {
        "2x3": (0, 0, 0, 1, 1, 1),
        "3+1": (0, 0, 0, 1),
        "0,1,0,1": (0, 1, 0, 1),
        "7,7,3": (0, 0, 1),
    }.items():
        assert one.bind(text).argument == hosts
    assert [one.bind(text).name for text in ("2x3", "2+2", "3+1", "0,0,1,1", "1,0,1")] == [
        "hierarchical(2x3)", "hierarchical(2x2)", "hierarchical(3+1)", "hierarchical(2x2)", "hierarchical(0,1,0)",
    ]  # fmt: skip
    for wrong in ("", "2x0", "a,b", "2x2x2", "3+x", "0+1"):
        with pytest.raises(InvalidArgumentError, match="expected hierarchical"):
            one.bind(wrong)
    with pytest.raises(
        InvalidArgumentError, match=r"of 6 ranks, not 4; these do: hierarchical\(4x1\), hierarchical\(2x2\)"
    ):
        one.bind("2x3").schedule(4)
    assert compact((5, 5, 2, 5, 9)) == (0, 0, 1, 0, 2)


def test_a_communicator_names_the_hosts() -> None:
    one = ALGORITHMS["all_reduce", "hierarchical"]
    assert one.obstacle(4) == "it needs several hosts"
    assert one.on((0, 0, 0, 0)) is one
    assert one.on((0, 1, 0, 1)).argument == (0, 1, 0, 1) and one.on((0, 1, 0, 1)).name == "hierarchical"
    named = one.bind("2x2")
    assert named.on((0, 1, 0, 1)) is named  # the user's word counts
    ring = ALGORITHMS["all_reduce", "ring"]
    assert ring.on((0, 1)) is ring


@pytest.mark.parametrize("text", ["2x2", "3x4", "0,1,0,1", "0,1,2,0,1,2"])
def test_every_rank_of_a_host_carries_its_shard(text: str) -> None:
    placed = find("all_reduce", f"hierarchical({text})")
    hosts = placed.argument or ()
    n = max(hosts) + 1
    messages, moved = crossings(placed)
    assert set(messages.values()) == {2 * (n - 1)} and len(messages) == len(hosts)
    assert set(moved.values()) == {Fraction(2 * (n - 1), n)}  # the lower bound of one host


@pytest.mark.parametrize("text", ["2x2", "3x2", "4x3", "5x2", "0,1,0,1", "0,1,2,3,0,1,2,3"])
def test_other_algorithms_between_the_hosts(text: str) -> None:
    """On its shard every rank takes part in what the algorithm is for as many ranks as there are hosts."""
    for name in ("one_shot", "recursive_doubling", "halving_doubling"):
        placed = find("all_reduce", f"hierarchical_{name}({text})")
        hosts = placed.argument or ()
        messages, moved = crossings(placed)
        between, moves = crossings(find("all_reduce", name), hosts=tuple(range(max(hosts) + 1)))
        assert messages == {rank: between[hosts[rank]] for rank in range(len(hosts))}
        assert moved == moves


def test_unequal_hosts_share_the_shards() -> None:
    messages, moved = crossings(find("all_reduce", "hierarchical(3+1)"))
    assert messages == {0: 2, 1: 2, 2: 2, 3: 6}
    assert set(moved.values()) == {1}


@pytest.mark.parametrize("text", ["0,1,0,1,0,1", "0,1,2,0,1,2", "0,1,1,0,1,0"])
def test_the_ring_leaves_each_host_once(text: str) -> None:
    placed = find("all_reduce", f"host_ring({text})")
    hosts = placed.argument or ()
    assert len(crossings(placed)[0]) == max(hosts) + 1
    flat = find("all_reduce", "ring").schedule(len(hosts)).operations()
    leaving = {
        r for r, mine in flat.items() for op in mine if op.kind == "send" and hosts[op.peers[0]] != hosts[r]
    }
    assert len(leaving) > max(hosts) + 1  # what it is there for


@pytest.mark.parametrize("verb", ["all_reduce", "broadcast", "reduce", "barrier"])
@pytest.mark.parametrize("text", ["2x3", "3+1+2", "0,1,1,0,1"])
def test_only_leaders_use_the_network(verb: str, text: str) -> None:
    placed = find(verb, f"leaders({text})")
    hosts = placed.argument or ()
    for root in range(len(hosts)) if COLLECTIVES[verb].rooted else [0]:
        senders = set(crossings(placed, root)[0])
        assert len({hosts[r] for r in senders}) == len(senders)
        assert verb != "broadcast" or root in senders


def test_the_trees_use_two_ranks_of_a_host() -> None:
    placed = find("all_reduce", "host_double_tree(4x3)")
    operations = placed.schedule(12).operations()
    hosts = placed.argument or ()
    for channel, place in ((0, 0), (1, 2)):
        users = {
            r
            for r, mine in operations.items()
            for op in mine
            if op.channel == channel and op.kind == "send" and any(hosts[q] != hosts[r] for q in op.peers)
        }
        assert users == {3 * host + place for host in range(4)}


def test_blueconnect() -> None:
    assert factorizations(12) == [(12,), (2, 6), (2, 2, 3), (2, 3, 2), (3, 4), (3, 2, 2), (4, 3), (6, 2)]
    assert [primes(n) for n in (1, 2, 12, 7, 64)] == [(1,), (2,), (2, 2, 3), (7,), (2,) * 6]
    for size in range(1, 17):
        for factors in factorizations(size):
            assert prod(factors) == size
            name = "blueconnect(" + "x".join(map(str, factors)) + ")"
            proof = verified(find("all_reduce", name), size)
            assert proof.rank_identical and proof.in_program_order
            assert set(proof.bytes_sent) == {2 * Fraction(size - 1, size)}
    with pytest.raises(
        InvalidArgumentError, match=r"does not fit 6 ranks; these do: blueconnect\(6\), blueconnect\(2x3\)"
    ):
        find("all_reduce", "blueconnect(2x2)").schedule(6)


def test_most_bytes_of_blueconnect_stay_near() -> None:
    """Ranks of one host first: only the last level, on a k-th of the data, leaves it."""
    operations = find("all_reduce", "blueconnect(4x3)").schedule(12).operations()
    far = sum(
        len(op.parts[0][1].index) for op in operations[5] if op.kind == "send" and op.peers[0] // 4 != 1
    )
    near = sum(
        len(op.parts[0][1].index) for op in operations[5] if op.kind == "send" and op.peers[0] // 4 == 1
    )
    assert (near, far) == (2 * 9, 2 * 2)
