"""send_object and recv_object."""

from __future__ import annotations

import message_ranks as todo
import pytest
from ranks import Pools, threads


@pytest.mark.parametrize("n", [1, 2, 4])
def test_on_threads(n: int) -> None:
    threads(n, todo.exchange, 5000)


@pytest.mark.parametrize("nbytes", [0, 3_000_000])
def test_on_processes(pools: Pools, nbytes: int) -> None:
    pools(3).run(todo.exchange, nbytes)


def test_errors(pools: Pools) -> None:
    threads(2, todo.errors)
    pools(3).run(todo.errors)
