"""What `comm.explain` says is what a call does."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from ranks import threads

import pycollectives as pc
from pycollectives.dispatch import Explanation
from pycollectives.errors import InvalidArgumentError, UnsupportedError
from pycollectives.schedule import COLLECTIVES


def explained(n: int, verb: str, **how: Any) -> Explanation:
    found = threads(n, lambda comm: comm.explain(verb, **how))
    assert len({each.chosen for each in found}) == len({each.candidates for each in found}) == 1
    return found[0]


def note(found: Explanation, start: str) -> str:
    return next(each for each in found.notes if each.startswith(start))


def test_the_recorder_agrees() -> None:
    def on(comm: pc.Communicator) -> None:
        for nbytes in (8, 4096, 1 << 20):
            for dtype in ("float32", "bfloat16", "int8"):
                said = comm.explain("all_reduce", nbytes=nbytes, dtype=dtype).chosen
                kind = bfloat16() if dtype == "bfloat16" else np.dtype(dtype)
                comm.all_reduce(np.zeros(nbytes // kind.itemsize, kind))
                assert comm.history()[-1]["algorithm"] == said

    threads(3, on)


def bfloat16() -> Any:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_every_verb(n: int) -> None:
    for verb in COLLECTIVES:
        for nbytes in (0, 8, 1 << 16):
            found = explained(n, verb, nbytes=nbytes)
            assert f"-> {found.chosen}" in str(found)
            assert note(found, "path")
            assert (n == 1) == (note(found, "path") == "path: nothing travels") or nbytes == 0


def test_whole_blocks() -> None:
    """Long data of which all ranks send alike; not where only the root sends, nor where data fit into a cache."""
    long = note(explained(2, "all_to_all", nbytes=64 << 20), "path of rank 0")
    assert re.search(
        r"cut into \d+ slices, \d+ at a time, or into \d+ if trials were faster with whole blocks", long
    )
    for verb, nbytes in (("broadcast", 64 << 20), ("gather", 64 << 20), ("all_to_all", 4096)):
        assert "whole blocks" not in note(explained(2, verb, nbytes=nbytes), "path of rank")


def test_the_path() -> None:
    def path(nbytes: int, **how: Any) -> str:
        return note(explained(2, "all_reduce", nbytes=nbytes, algorithm="one_shot", **how), "path of rank 0")

    assert path(32) == "path of rank 0: 1 message of 32 bytes inside the cache line of the flag"
    assert path(64) == "path of rank 0: 1 message of 64 bytes through slots of the message pool"
    assert re.search(r"of about \d+ bytes through slots.*cut into \d+ slices, \d at a time", path(1 << 22))
    found = explained(2, "all_reduce", nbytes=1 << 22, algorithm="one_shot")
    assert "read in place" in note(found, "path between two arrays of comm.empty")


def test_partial_sums() -> None:
    """In a ring of P ranks P-2 of the P-1 chunks that a rank receives to reduce are sums of several ranks."""
    found = explained(4, "reduce_scatter", nbytes=4096, algorithm="ring", dtype="float16")
    assert note(found, "partial sums") == "partial sums travel as float32: 2048 bytes more than 3072 per rank"
    found = explained(4, "reduce_scatter", nbytes=4096, algorithm="direct", dtype="float16")
    assert note(found, "no partial sums") == "no partial sums travel: messages hold inputs and results"
    assert not any("partial" in each for each in explained(4, "reduce_scatter", nbytes=4096).notes)


def test_the_price_of_determinism() -> None:
    found = explained(4, "all_reduce", nbytes=64, algorithm="ring")
    assert note(found, "deterministic=True").startswith("deterministic=True would take ")
    strict = explained(4, "all_reduce", nbytes=64, deterministic=True)
    assert note(strict, "deterministic=True").endswith("the choice without it")
    refused = {c.name for c in strict.candidates if "left fold" in c.obstacle}
    assert "ring" in refused and strict.chosen not in refused


def test_policies() -> None:
    found = explained(4, "all_reduce", nbytes=1 << 20, policy="all")
    assert all(note(found, f"{name} would take ") for name in ("mpich", "openmpi", "nccl"))
    assert note(explained(4, "all_to_all", nbytes=64, policy="nccl"), "nccl") == "nccl has no rule for it"
    assert not any("would take" in each for each in explained(4, "all_gather", nbytes=64).notes)


def test_what_the_user_asks_for() -> None:
    found = explained(6, "all_reduce", nbytes=64, algorithm="torus(6x1)")
    assert found.chosen == "torus(6x1)" and found.candidates[0].name == "torus(6x1)"
    assert found.reason == "asked for by algorithm="
    with pc.use(all_reduce="ring"):
        assert explained(2, "all_reduce", nbytes=64).reason == "asked for by pc.use"


def test_uneven_forms() -> None:
    found = explained(4, "all_to_allv", nbytes=64)
    assert {c.name: c.obstacle for c in found.candidates}["bruck"] == "it needs blocks of one size"
    assert not any(c.obstacle for c in explained(4, "all_to_all", nbytes=64).candidates)


def test_refusals() -> None:
    def on(comm: pc.Communicator) -> None:
        wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (InvalidArgumentError, "not negative", {"nbytes": -1}),
            (InvalidArgumentError, "a whole number", {"nbytes": "1M"}),
            (InvalidArgumentError, "dtype 'float31' is not known", {"nbytes": 8, "dtype": "float31"}),
            (InvalidArgumentError, "did you mean 'openmpi'", {"nbytes": 8, "policy": "open_mpi"}),
            (InvalidArgumentError, "did you mean 'ring'", {"nbytes": 8, "algorithm": "rnig"}),
            (UnsupportedError, "these can: ", {"nbytes": 8, "algorithm": "ring", "deterministic": True}),
            (
                UnsupportedError,
                "is not defined for complex64",
                {"nbytes": 8, "dtype": "complex64", "op": "max"},
            ),
        ]
        for kind, text, how in wrong:
            with pytest.raises(kind, match=text):
                comm.explain("all_reduce", **how)

    threads(3, on)
