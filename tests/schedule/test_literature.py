"""Steps and bytes read off the schedules against the formulas of the literature, exactly, at every size.

Bytes are those of the busiest rank in units of the whole vector. P ranks; q = 2^F the power of two below.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction

import pytest

import pycollectives.algorithms  # noqa: F401
from pycollectives.algorithms.torus import squarest
from pycollectives.cost import Footprint, footprint
from pycollectives.schedule import ALGORITHMS, COLLECTIVES

SIZES = [*range(1, 65), 128, 256, 512, 1024]
LARGE = [2048, 4096]
Formula = tuple[int, Fraction | int, Fraction | int, Fraction | int]  # steps, sent, received, reduced


def up(n: int) -> int:
    return (n - 1).bit_length()


def down(n: int) -> int:
    return n.bit_length() - 1


def share(n: int) -> Fraction:
    return Fraction(n - 1, n)


def power(n: int) -> bool:
    return n & (n - 1) == 0


def torus_steps(n: int) -> int:
    return sum(squarest(n)) - 2


def nccl_depth(n: int) -> int:
    """The depth of NCCL's binary tree, from its rule for parents."""

    def depth(rank: int) -> int:
        if rank == 0:
            return 0
        bit = rank & -rank
        parent = (rank ^ bit) | (bit << 1)
        return 1 + depth(parent if parent < n else rank ^ bit)

    return max(depth(rank) for rank in range(n))


def sanders_depth(n: int) -> int:
    """h - 1 with h = ceil(log2(p + 2)) for an even number of ranks; an odd one has a root more."""
    return up(n + 2) - 1 if n % 2 == 0 else up(n + 1) if n > 1 else 0


def bruck(n: int) -> Fraction:
    return Fraction(sum(i.bit_count() for i in range(n)), n)


def rabenseifner(n: int) -> Formula:
    """Busiest of each kind: a host that has a guest, unless there is none."""
    q, half = 1 << down(n), Fraction(1, 2)
    if power(n):
        return 2 * down(n), 2 * share(n), 2 * share(n), share(n)
    return 2 * down(n) + 3, half + 2 * share(q) + 1, 1 + 2 * share(q), half + share(q)


FORMULAS: dict[tuple[str, str], Callable[[int], Formula]] = {
    ("all_reduce", "ring"): lambda n: (2 * (n - 1), 2 * share(n), 2 * share(n), share(n)),
    ("all_reduce", "torus"): lambda n: (2 * torus_steps(n), 2 * share(n), 2 * share(n), share(n)),
    ("all_reduce", "one_shot"): lambda n: (1, n - 1, n - 1, n - 1),
    ("all_reduce", "two_shot"): lambda n: (2, 2 * share(n), 2 * share(n), share(n)),
    ("all_reduce", "reduce_broadcast"): lambda n: (2 * up(n), up(n), up(n), up(n)),
    ("all_reduce", "chain"): lambda n: (2 * (n - 1), 2 - (n == 2), 2 - (n == 2), 1),
    ("all_reduce", "recursive_doubling"): lambda n: (
        (down(n), down(n), down(n), down(n)) if power(n) else (down(n) + 2, *3 * [down(n) + 1])
    ),
    ("all_reduce", "halving_doubling"): rabenseifner,
    ("reduce_scatter", "ring"): lambda n: (n - 1, share(n), share(n), share(n)),
    ("reduce_scatter", "torus"): lambda n: (torus_steps(n), share(n), share(n), share(n)),
    ("reduce_scatter", "pairwise"): lambda n: (n - 1, share(n), share(n), share(n)),
    ("reduce_scatter", "direct"): lambda n: (1, share(n), share(n), share(n)),
    ("all_gather", "ring"): lambda n: (n - 1, share(n), share(n), 0),
    ("all_gather", "torus"): lambda n: (torus_steps(n), share(n), share(n), 0),
    ("all_gather", "bruck"): lambda n: (up(n), share(n), share(n), 0),
    ("all_gather", "neighbor_exchange"): lambda n: (n // 2, share(n), share(n), 0),
    ("all_gather", "direct"): lambda n: (1, share(n), share(n), 0),
    ("broadcast", "flat"): lambda n: (1, n - 1, 1, 0),
    ("broadcast", "binomial"): lambda n: (up(n), up(n), 1, 0),
    ("broadcast", "chain"): lambda n: (n - 1, 1, 1, 0),
    ("broadcast", "scatter_all_gather"): lambda n: (up(n) + n - 1, 2 * share(n), 1, 0),
    ("reduce", "flat"): lambda n: (1, 1, n - 1, n - 1),
    ("reduce", "binomial"): lambda n: (up(n), 1, up(n), up(n)),
    ("reduce", "chain"): lambda n: (n, 1, 1, 1),
    ("scatter", "flat"): lambda n: (1, share(n), Fraction(1, n), 0),
    ("gather", "flat"): lambda n: (1, Fraction(1, n), share(n), 0),
    ("all_to_all", "direct"): lambda n: (1, share(n), share(n), 0),
    ("all_to_all", "pairwise"): lambda n: (n - 1, share(n), share(n), 0),
    ("all_to_all", "bruck"): lambda n: (up(n), bruck(n), bruck(n), 0),
    ("scan", "recursive_doubling"): lambda n: (up(n), up(n), up(n), up(n)),
    ("scan", "linear"): lambda n: (n - 1, 1, 1, 1),
    ("exscan", "linear"): lambda n: (n - 1, 1, 1, int(n > 2)),
    ("barrier", "direct"): lambda n: (1, n - 1, n - 1, n - 1),
    ("barrier", "dissemination"): lambda n: (up(n), up(n), up(n), up(n)),
}


def cost(collective: str, name: str, size: int, root: int = 0) -> Footprint:
    return footprint(ALGORITHMS[collective, name], size, root)


@pytest.mark.parametrize("sizes", [SIZES, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["", "large"])
@pytest.mark.parametrize("key", FORMULAS, ids="-".join)
def test_steps_and_bytes(key: tuple[str, str], sizes: list[int]) -> None:
    for size in sizes:
        if ALGORITHMS[key].obstacle(size):
            continue
        found = cost(*key, size)
        expected = FORMULAS[key](size) if size > 1 else (0, 0, 0, 0)
        assert (found.steps, found.sent, found.received, found.reduced) == expected, size


def test_every_root_costs_the_same() -> None:
    for collective, name in FORMULAS:
        if COLLECTIVES[collective].rooted and name != "chain":
            for size in (2, 5, 8, 13):
                assert len({cost(collective, name, size, root) for root in range(size)}) == 1
    assert cost("broadcast", "chain", 9, 4) == cost("broadcast", "chain", 9)
    at_the_end = cost("reduce", "chain", 9, 8)  # nobody hands the result on
    assert (at_the_end.steps, at_the_end.received) == (8, 1)
    assert (cost("reduce", "chain", 9, 4).steps, cost("reduce", "chain", 9, 4).received) == (9, 2)


@pytest.mark.parametrize("size", SIZES[1:])
def test_trees(size: int) -> None:
    """2 ceil(log2 P) steps at most, and at most twice the data: each half goes up and down a tree once."""
    for name, depth in (("double_binary_tree", nccl_depth(size)), ("two_tree", sanders_depth(size))):
        tree = cost("all_reduce", name, size)
        assert tree.steps == 2 * depth
        assert depth <= up(size) or (name == "two_tree" and depth <= up(size) + 1)
        assert tree.sent == tree.received <= 2
        assert tree.sent == 2 or size <= 4
        assert tree.reduced == (1 if size > 2 else Fraction(1, 2))
    depth = nccl_depth(size - 1) + 1
    down, gathering = (cost(verb, "double_binary_tree", size, size // 2) for verb in ("broadcast", "reduce"))
    assert down.steps == gathering.steps == depth
    assert (down.received, gathering.sent) == (1, 1)
    assert max(down.sent, gathering.received) <= Fraction(3, 2)


@pytest.mark.parametrize("size", SIZES[1:])
def test_trees_of_blocks(size: int) -> None:
    """ceil(log2 P) steps; the root moves every block but its own, no other rank more than half of them."""
    out, back = cost("scatter", "binomial", size), cost("gather", "binomial", size)
    assert out.steps == back.steps == up(size)
    assert out.sent == back.received == share(size)
    assert out.received == back.sent <= Fraction(1, 2)


@pytest.mark.parametrize("size", SIZES[1:])
def test_halving_and_doubling(size: int) -> None:
    """At powers of two as published, else two steps more and the data of the folded ranks."""
    scatter = cost("reduce_scatter", "recursive_halving", size)
    gather = cost("all_gather", "recursive_doubling", size)
    reduce = cost("reduce", "rabenseifner", size)
    assert gather.received == share(size)
    if power(size):
        assert scatter.steps == gather.steps == down(size)
        assert scatter.sent == scatter.received == scatter.reduced == gather.sent == share(size)
        assert reduce.steps == 2 * down(size)
        assert (reduce.received, reduce.reduced) == (2 * share(size), share(size))
        assert reduce.sent == share(size) + Fraction(1, 2)
    else:
        q = 1 << down(size)
        assert scatter.steps == gather.steps == down(size) + 2
        extra = size - q  # host 0 keeps the first half of the hosts, quarter, ...: up to two blocks for each
        kept = sum(hosts + min(hosts, extra) for hosts in (q >> k for k in range(1, down(size) + 1)))
        assert scatter.received == scatter.reduced == 1 + Fraction(kept, size) < Fraction(12, 5)
        assert scatter.sent == 1
        assert gather.sent == Fraction(kept, size) + share(size)  # and all but its own block to its guest
        assert reduce.steps == 2 * down(size) + 2
        assert (reduce.received, reduce.reduced) == (1 + 2 * share(q), Fraction(1, 2) + share(q))


def per_step(collective: str, name: str, size: int) -> Fraction:
    """The bytes on the critical path: of each step those of the rank that moves most, one way."""
    schedule = ALGORITHMS[collective, name].schedule(size)
    most: dict[int, int] = {}
    for mine in schedule.operations().values():
        moved: dict[tuple[int, bool], int] = defaultdict(int)
        for op in mine:
            moved[op.step, op.kind == "send"] += sum(len(chunks.index) for _, chunks in op.parts)
        for (step, _), chunks in moved.items():
            most[step] = max(most.get(step, 0), chunks)
    return Fraction(sum(most.values()), schedule.nchunks)


def test_rabenseifner_at_other_sizes() -> None:
    """(3 + 2 log2 q) steps and (4 - 2/q) n on the critical path, with full duplex links."""
    for size in range(3, 65):
        q = 1 << down(size)
        if not power(size):
            assert per_step("all_reduce", "halving_doubling", size) == 4 - Fraction(2, q)


def test_bruck_all_to_all() -> None:
    """n/2 log2 P; at other sizes at most n/2 floor(log2 P) + (P - q)/P n."""
    for size in SIZES:
        q = 1 << down(size)
        found = cost("all_to_all", "bruck", size).sent
        assert found <= Fraction(down(size), 2) + Fraction(size - q, size)
        assert found == Fraction(down(size), 2) or not power(size)


def test_exclusive_prefix_sums_add_twice() -> None:
    for size in SIZES[1:]:
        found = cost("exscan", "recursive_doubling", size)
        assert (found.steps, found.sent, found.received) == (up(size), up(size), up(size))
        assert found.reduced <= 2 * up(size)
