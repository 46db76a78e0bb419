"""Ranks as processes for the tests of the communicator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import Pools, Processes


@pytest.fixture(scope="session")
def pools() -> Iterator[Pools]:
    """`pools(n)`: n ranks as processes, shared by all tests."""
    made = Pools()
    yield made
    made.close()


@pytest.fixture
def fresh() -> Iterator[type[Processes]]:
    """`fresh(n)`: n ranks as processes for one test, which may harm them."""
    made: list[Processes] = []

    def make(n: int, env: dict[str, str] | None = None) -> Processes:
        made.append(Processes(n, env))
        return made[-1]

    yield make  # type: ignore[misc]
    for ranks in made:
        ranks.close()
