"""Every algorithm of the project is right at every size, and its proof says what its file promises."""

from __future__ import annotations

from fractions import Fraction

import pytest
from sequential import run_strictly

import pycollectives.algorithms  # noqa: F401
from pycollectives.schedule import ALGORITHMS, COLLECTIVES, Algorithm
from pycollectives.schedule.verifier import verified

BUILTIN = [pytest.param(a, id=f"{a.collective}-{a.name}") for a in ALGORITHMS.values() if a.builtin]
SIZES = [*range(1, 18), 31, 32, 33, 64]
LEFT_FOLD = {"one_shot", "two_shot", "direct"}


def roots(algorithm: Algorithm, size: int) -> list[int]:
    """All roots of small worlds, a sample of those of large ones; 0 where there is none."""
    if not COLLECTIVES[algorithm.collective].rooted:
        return [0]
    return list(range(size)) if size <= 9 else sorted({0, 1, size // 2, size - 1})


@pytest.mark.parametrize("algorithm", BUILTIN)
def test_right_at_every_size(algorithm: Algorithm) -> None:
    reduces = COLLECTIVES[algorithm.collective].reduces and algorithm.collective != "barrier"
    for size in SIZES:
        for root in roots(algorithm, size):
            proof = verified(algorithm, size, root)
            assert proof.rank_identical
            assert proof.in_program_order
            if not reduces or algorithm.name in LEFT_FOLD or size <= 2:
                assert proof.left_fold
                assert proof.rank_order
            elif size >= 8:
                assert not proof.left_fold


@pytest.mark.parametrize("algorithm", BUILTIN)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_a_strictly_sequential_run_gives_the_result(algorithm: Algorithm, size: int) -> None:
    """Every channel by itself, by another executor than the verifier's."""
    verb = COLLECTIVES[algorithm.collective]
    for root in roots(algorithm, size):
        proof = verified(algorithm, size, root)
        n = proof.schedule.nchunks
        inputs = {rank: verb.input_chunks(rank, size, root, n) for rank in range(size)}
        for channel in range(proof.schedule.channels):
            order = {r: [i for i in mine if proof.operations[r][i].channel == channel]
                     for r, mine in proof.order.items()}  # fmt: skip
            ended = run_strictly(proof.operations, order, inputs)
            assert ended is not None
            for rank in range(size):
                if verb.repeats:
                    assert {r for value in ended[rank].values() for r, _ in value} == set(range(size))
                for chunk in verb.output_chunks(rank, size, root, n):
                    wanted = {(r, chunk): 1 for r in verb.contributors(chunk, size, root, n)}
                    assert ended[rank][chunk] == wanted


@pytest.mark.parametrize("size", [1, 2, 5, 8, 16])
def test_steps_and_bytes(size: int) -> None:
    """Rounds of messages and sent data, as the cost formulas have them."""
    rounds = (size - 1).bit_length()
    share = Fraction(size - 1, size)
    expected = {
        ("all_reduce", "one_shot"): (min(size - 1, 1), size - 1),
        ("all_reduce", "two_shot"): (min(size - 1, 1) * 2, 2 * share),
        ("all_reduce", "ring"): (2 * (size - 1), 2 * share),
        ("reduce_scatter", "direct"): (min(size - 1, 1), share),
        ("reduce_scatter", "ring"): (size - 1, share),
        ("all_gather", "direct"): (min(size - 1, 1), share),
        ("all_gather", "ring"): (size - 1, share),
    }
    for key, (steps, sent) in expected.items():
        proof = verified(ALGORITHMS[key], size)
        assert (proof.steps, set(proof.bytes_sent)) == (steps, {sent}), key
    for verb in ("broadcast", "reduce"):
        proof = verified(ALGORITHMS[verb, "binomial"], size)
        assert (proof.steps, sum(proof.bytes_sent)) == (rounds, size - 1)
        tree = verified(ALGORITHMS[verb, "double_binary_tree"], size, root=size - 1)
        assert sum(tree.bytes_sent) == size - 1
        if verb == "broadcast":
            assert tree.bytes_sent[size - 1] == min(size - 1, 1)  # the root sends each half once
            assert max(tree.bytes_sent) <= Fraction(3, 2)
    assert sum(verified(ALGORITHMS["all_reduce", "double_binary_tree"], size).bytes_sent) == 2 * (size - 1)
    assert verified(ALGORITHMS["barrier", "dissemination"], size).steps == rounds


@pytest.mark.parametrize(
    ("collective", "name", "size", "tree"),
    [
        ("all_reduce", "one_shot", 5, "0+1+2+3+4"),
        ("all_reduce", "two_shot", 5, "0+1+2+3+4"),
        ("reduce_scatter", "direct", 5, "0+1+2+3+4"),
        ("all_reduce", "ring", 4, "((0+1)+2)+3"),
        ("reduce_scatter", "ring", 4, "0+((1+2)+3)"),
        ("reduce", "binomial", 8, "((0+1)+(2+3))+((4+5)+(6+7))"),
        ("all_reduce", "double_binary_tree", 8, "0+((1+2+3)+4+(5+6+7))"),
        ("reduce", "double_binary_tree", 4, "0+(1+(2+3))"),
        ("broadcast", "binomial", 8, "0"),
    ],
)
def test_reduction_tree_of_chunk_0_at_rank_0(collective: str, name: str, size: int, tree: str) -> None:
    assert str(verified(ALGORITHMS[collective, name], size).tree(0, 0)) == tree


def test_double_binary_tree_keeps_rank_order_at_even_sizes() -> None:
    algorithm = ALGORITHMS["all_reduce", "double_binary_tree"]
    assert [size for size in range(2, 33) if verified(algorithm, size).rank_order] == list(range(2, 33, 2))
