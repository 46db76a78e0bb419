"""The whole catalogue, executed: every verb by every algorithm at every root, uneven counts with zeros, and a soak."""

from __future__ import annotations

import catalogue
import pytest
from ranks import Pools, threads


@pytest.mark.parametrize("size", range(1, 10))
def test_every_algorithm_on_threads(size: int) -> None:
    counts = [0, 1, 5, 257] if size < 6 else [3 if size % 2 else 257]
    assert min(threads(size, catalogue.every_algorithm, counts, ["int64", "float32", "bfloat16"])) > 40


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_algorithm_in_processes(pools: Pools, size: int) -> None:
    made = pools(size).run(
        catalogue.every_algorithm, [1, 61, 30_011], ["int32", "float16", "complex64"], timeout=110
    )
    assert min(made) > 100


SEED = 20_260


def test_soak(pools: Pools) -> None:
    print("seed", SEED)
    assert pools(4).run(catalogue.soak, 1_000, SEED, timeout=110) == [1_000] * 4


@pytest.mark.slow
@pytest.mark.timeout(380)
@pytest.mark.parametrize("seed", [1])
def test_long_soak(pools: Pools, seed: int) -> None:
    assert pools(4).run(catalogue.soak, 20_000, seed, timeout=370) == [20_000] * 4
