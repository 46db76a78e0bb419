"""How messages are written, and where: results are the same with streaming stores, and while the ring of slots goes round."""

from __future__ import annotations

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.settings import STORES

SIZES = (
    3,
    700,
    3001,
    40_003,
)  # elements: inside a header, below and above the least that is streamed, several segments


def values(rank: int, count: int, turn: int) -> np.ndarray:
    return (np.arange(count) % 251 + 1000 * rank + turn).astype(np.float64)


def call(comm: pc.Communicator, turn: int) -> None:
    """Plans change from call to call, and so do the places of their slots."""
    n, count = comm.size, SIZES[turn % len(SIZES)]
    x = values(comm.rank, count, turn)
    total = sum(values(rank, count, turn) for rank in range(n))
    algorithm = ("one_shot", "two_shot", "ring", "double_binary_tree", "halving_doubling")[turn % 5]
    assert np.array_equal(comm.all_reduce(x, algorithm=algorithm), total), (turn, algorithm)
    everyone = comm.all_gather(x)
    assert all(np.array_equal(everyone[rank], values(rank, count, turn)) for rank in range(n)), turn
    root = turn % n
    assert np.array_equal(comm.broadcast(x, root=root), values(root, count, turn)), turn
    exchanged = comm.all_to_all(np.stack([x + rank for rank in range(n)]))
    for rank in range(n):
        assert np.array_equal(exchanged[rank], values(rank, count, turn) + comm.rank), (turn, rank)
    if turn % 3 == 0:
        comm.barrier()


@pytest.mark.parametrize("stores", STORES)
@pytest.mark.parametrize(
    ("ranks", "ring", "pool"),
    [(3, 1 << 16, 1 << 18), (2, 1 << 19, 1 << 20), (3, 1 << 21, 1 << 23), (2, 1 << 21, 1 << 23)],
)
def test_results_do_not_depend_on_how_messages_are_written(
    monkeypatch: pytest.MonkeyPatch, stores: str, ranks: int, ring: int, pool: int
) -> None:
    monkeypatch.setenv("PYCOLLECTIVES_STORES", stores)
    monkeypatch.setenv("PYCOLLECTIVES_RING_BYTES", str(ring))
    monkeypatch.setenv("PYCOLLECTIVES_POOL_BYTES", str(pool))

    def body(comm: pc.Communicator) -> None:
        for turn in range(40):
            call(comm, turn)

    pc.run_threads(ranks, body)
