"""What a communicator says of its algorithms."""

from __future__ import annotations

from typing import Any

import pytest
from ranks import threads

from pycollectives.schedule import COLLECTIVES, names


def described(comm: Any) -> None:
    for verb in COLLECTIVES:
        found = {each.name: each for each in comm.algorithms(verb)}
        assert list(found) == list(names(verb))
        for each in found.values():
            text = str(each)
            assert text.startswith(f"{each.name}: ") and each.cost in text
            assert each.obstacle in text if each.obstacle else f"{each.steps} steps" in text
            assert ("sends" in text) == (verb != "barrier" and not each.obstacle), text
    assert "needs blocks of one size" in str(found_by_name(comm, "all_to_all", "bruck"))
    assert "ROWSxCOLUMNS" in str(found_by_name(comm, "all_reduce", "torus"))
    assert "left fold" in str(found_by_name(comm, "scan", "linear"))
    assert [each.name for each in comm.algorithms("all_to_allv")] == ["direct", "pairwise"]
    assert len(comm.algorithms("all_gatherv")) == len(comm.algorithms("all_gather"))


def found_by_name(comm: Any, verb: str, name: str) -> Any:
    return next(each for each in comm.algorithms(verb) if each.name == name)


@pytest.mark.parametrize("n", [1, 4, 5])
def test_algorithms_are_described(n: int) -> None:
    threads(n, described)


def test_explanations_follow_the_call() -> None:
    def body(comm: Any) -> None:
        for verb in ("scan", "exscan", "all_reduce", "reduce_scatter"):
            text = str(comm.explain(verb, nbytes=1 << 20, deterministic=True))
            chosen = comm.explain(verb, nbytes=1 << 20, deterministic=True).chosen
            assert found_by_name(comm, verb, chosen).left_fold, text
            assert "left fold that deterministic=True asks for" in text

    threads(5, body)
