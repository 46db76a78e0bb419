"""Finding, registering and parametrising algorithms."""

from __future__ import annotations

import pytest

from pycollectives.algorithms.ring import ring, ring_all_gather
from pycollectives.errors import InvalidArgumentError, UnsupportedError
from pycollectives.schedule import (
    ALGORITHMS,
    Algorithm,
    Program,
    Restriction,
    algorithm,
    find,
)


def test_find_suggests_the_near_name() -> None:
    assert find("all_reduce", "ring") is ring
    with pytest.raises(InvalidArgumentError, match="no algorithm 'rin'; did you mean 'ring'"):
        find("all_reduce", "rin")
    with pytest.raises(InvalidArgumentError, match=r"'binomial' exists for .*broadcast"):
        find("all_reduce", "binomial")
    with pytest.raises(
        InvalidArgumentError, match="unknown collective 'allreduce'; did you mean 'all_reduce'"
    ):
        algorithm("allreduce")


def test_register_one_of_your_own() -> None:
    @algorithm("all_gather", name="mine", cost="free")
    def author(p: Program) -> None:
        p.send(p.chunk(p.rank), to=p.others())

    try:
        assert find("all_gather", "mine") is author
        assert not author.builtin
        assert ring.builtin
    finally:
        del ALGORITHMS["all_gather", "mine"]


def test_an_algorithm_with_a_restriction() -> None:
    even = Restriction("an even number of ranks", lambda size: size % 2 == 0)
    mine = Algorithm("all_gather", "mine", ring_all_gather.author, restriction=even)
    assert mine.obstacle(4) == ""
    assert mine.obstacle(5) == "it needs an even number of ranks, not 5"
    with pytest.raises(
        UnsupportedError, match=r"all_gather by 'mine': it needs an even number of ranks, not 5"
    ):
        mine.schedule(5)


def test_an_algorithm_with_a_parameter() -> None:
    torus = find("all_reduce", "torus(2x4)")
    assert (torus.name, torus.argument) == ("torus(2x4)", (2, 4))
    assert torus == find("all_reduce", "torus(2x4)")
    assert torus != find("all_reduce", "torus")
    assert torus.obstacle(8) == ""
    assert torus.schedule(8).algorithm == "torus(2x4)"
    text = r"that does not fit 6 ranks; these do: torus\(1x6\), torus\(2x3\), torus\(3x2\), torus\(6x1\)"
    with pytest.raises(InvalidArgumentError, match=text):
        torus.obstacle(6)
    with pytest.raises(InvalidArgumentError, match=text):
        torus.schedule(6)
    for wrong in ("torus(2)", "torus(2x)", "torus()", "torus(2x2x2)", "torus(0x4)", "torus(axb)"):
        with pytest.raises(InvalidArgumentError, match=r"expected torus\(ROWSxCOLUMNS\), in numbers"):
            find("all_reduce", wrong)
    with pytest.raises(InvalidArgumentError, match="all_reduce by 'ring' takes no parameter: '2x4'"):
        find("all_reduce", "ring(2x4)")
    with pytest.raises(InvalidArgumentError, match="no algorithm 'torsu'; did you mean 'torus'"):
        find("all_reduce", "torsu(2x4)")
