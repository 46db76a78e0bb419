"""Groups of ranks: colors, keys, nesting; roots and peers are a group's own ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import ranks
from ranks import Pools

import pycollectives as pc


def colors_and_keys(comm: Any) -> None:
    n = comm.size
    for color, key, members in (
        (0, 0, list(range(n))),
        (0, -comm.rank, list(range(n))[::-1]),
        (comm.rank % 2, 0, list(range(comm.rank % 2, n, 2))),
        (-7, 5, list(range(n))),
        (comm.rank, 0, [comm.rank]),
        (
            np.int32(comm.rank // 2),
            np.int64(-comm.rank),
            [r for r in range(n) if r // 2 == comm.rank // 2][::-1],
        ),
    ):
        sub = comm.split(color, key)
        assert sub.size == len(members) and list(sub.world_ranks) == [comm.world_ranks[m] for m in members]
        assert members[sub.rank] == comm.rank
        assert sub.all_gather(np.array(comm.rank)).tolist() == members
        sub.close()


def some_take_no_part(comm: Any) -> None:
    sub = comm.split(None if comm.rank == 0 else 1)
    if comm.rank == 0:
        assert sub is None
    else:
        assert sub.all_gather(np.array(comm.rank)).tolist() == list(range(1, comm.size))
    assert comm.split(None) is None
    whole = comm.split(3)
    assert whole.size == comm.size
    whole.barrier()


def local_roots(comm: Any) -> None:
    """The sub-communicator {2, 0}: its root 0 is rank 2."""
    sub = comm.split(0 if comm.rank in (0, 2) else None, -comm.rank)
    x = np.full(5, comm.rank)
    if sub is not None:
        assert (sub.broadcast(x, root=0) == 2).all() and (sub.broadcast(x, root=1) == 0).all()
        reduced = sub.reduce(x, root=0)
        assert (reduced is None) == (comm.rank == 0) and (reduced is None or (reduced == 2).all())
        with pytest.raises(pc.InvalidArgumentError, match=r"root 2 is not in 0\.\.1"):
            sub.broadcast(x, root=2)
    comm.barrier()


def nested(comm: Any) -> None:
    group, ranks_left = comm, list(range(comm.size))
    while group.size > 1:
        half = group.rank < group.size // 2
        ranks_left = ranks_left[: group.size // 2] if half else ranks_left[group.size // 2 :]
        group = group.split(int(half))
        assert group.all_gather(np.array(comm.rank)).tolist() == ranks_left
    assert comm.all_reduce(np.array(1)) == comm.size


def many(comm: Any) -> None:
    groups = [comm.split(comm.rank % (1 + i % 3), i) for i in range(30)]
    for _ in range(3):
        for group in groups:
            assert group.all_reduce(np.array(comm.rank)) == sum(group.world_ranks)
    for group in groups[::2]:
        group.close()
    for group in groups[1::2]:
        assert group.all_reduce(np.array(comm.rank)) == sum(group.world_ranks)


def bad_color(comm: Any) -> None:
    for color in ("red", 1.5, [1]):
        with pytest.raises(pc.InvalidArgumentError, match="color"):
            comm.split(color)
    for color, key in ((2**70, 0), (0, "first"), (0, 2**64)):
        with pytest.raises(pc.InvalidArgumentError):
            comm.split(color, key)
    comm.barrier()


@pytest.mark.parametrize("fn", [colors_and_keys, some_take_no_part, local_roots, nested, many, bad_color])
def test_split(pools: Pools, fn: Any) -> None:
    pools(4).run(fn)
    ranks.threads(6, fn)


def parent_and_child_at_once(comm: Any) -> None:
    """A child outlives its parent's trouble, and its parent its own."""
    child, other = comm.split(0), comm.split(0)
    if comm.rank == 0:
        other.abort()
    with pytest.raises(pc.AbortedError):
        other.all_reduce(np.ones(10))
    assert child.all_reduce(np.array(1)) == comm.size
    grandchild = child.split(0)
    child.close()
    assert grandchild.all_reduce(np.array(2)) == 2 * comm.size


def test_groups_fail_alone(pools: Pools) -> None:
    pools(3).run(parent_and_child_at_once)


def one_rank(comm: Any) -> None:
    alone = comm.split(comm.rank)
    x = np.arange(6.0)
    for got in (alone.all_reduce(x), alone.broadcast(x), alone.reduce(x), alone.reduce_scatter(x)):
        assert got is not x and (got == x).all()
    assert alone.all_gather(x).shape == (1, 6)
    assert (alone.all_reduce(x, pc.scaled_sum(3)) == 3 * x).all() and (
        alone.all_reduce(x, "avg", out=x) == np.arange(6.0)
    ).all()
    alone.barrier()


def test_a_group_of_one(pools: Pools) -> None:
    pools(2).run(one_rank)
