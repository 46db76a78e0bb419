"""Every algorithm of the project is right at every size, and its proof says what its file promises."""

from __future__ import annotations

import pytest
from sequential import run_strictly

import pycollectives.algorithms  # noqa: F401
from pycollectives.errors import UnsupportedError
from pycollectives.schedule import ALGORITHMS, COLLECTIVES, Algorithm
from pycollectives.schedule.lowering import limits
from pycollectives.schedule.verifier import Proof, verified

BUILTIN = [pytest.param(a, id=f"{a.collective}-{a.name}") for a in ALGORITHMS.values() if a.builtin]
SIZES = [*range(1, 18), 31, 32, 33]
CATALOGUE = {
    "all_reduce": "ring torus double_binary_tree two_tree recursive_doubling halving_doubling "
    "one_shot two_shot reduce_broadcast chain "
    "hierarchical hierarchical_one_shot hierarchical_recursive_doubling hierarchical_halving_doubling "
    "leaders host_ring host_torus host_double_tree blueconnect",
    "reduce_scatter": "ring torus recursive_halving pairwise direct hierarchical",
    "all_gather": "ring torus recursive_doubling bruck neighbor_exchange direct hierarchical",
    "broadcast": "flat binomial chain double_binary_tree scatter_all_gather leaders",
    "reduce": "flat binomial chain double_binary_tree rabenseifner leaders",
    "gather": "flat binomial",
    "scatter": "flat binomial",
    "all_to_all": "direct pairwise bruck",
    "scan": "recursive_doubling linear",
    "exscan": "recursive_doubling linear",
    "barrier": "direct dissemination leaders",
}
# What reduces in rank order at every size (with every root), and what is the left fold too.
LEFT_FOLD = {
    ("all_reduce", "one_shot"), ("all_reduce", "two_shot"), ("all_reduce", "chain"),
    ("reduce_scatter", "direct"), ("reduce", "flat"), ("reduce", "chain"),
    ("scan", "linear"), ("exscan", "linear"),
}  # fmt: skip
RANK_ORDER = LEFT_FOLD | {
    ("all_reduce", "two_tree"), ("all_reduce", "recursive_doubling"), ("all_reduce", "halving_doubling"),
    ("all_reduce", "reduce_broadcast"), ("reduce", "rabenseifner"),
    ("scan", "recursive_doubling"), ("exscan", "recursive_doubling"),
}  # fmt: skip


def roots(algorithm: Algorithm, size: int) -> list[int]:
    """All roots of small worlds, a sample of those of large ones; 0 where there is none."""
    if not COLLECTIVES[algorithm.collective].rooted:
        return [0]
    return list(range(size)) if size <= 9 else sorted({0, 1, size // 2, size - 1} if size < 20 else {0, 11})


def test_the_catalogue() -> None:
    found: dict[str, set[str]] = {verb: set() for verb in COLLECTIVES}
    for algorithm in ALGORITHMS.values():
        if algorithm.builtin:
            found[algorithm.collective].add(algorithm.name)
            assert algorithm.cost
    assert found == {verb: set(names.split()) for verb, names in CATALOGUE.items()}


@pytest.mark.parametrize("sizes", [SIZES, pytest.param([64], marks=pytest.mark.slow)], ids=["", "large"])
@pytest.mark.parametrize("algorithm", BUILTIN)
def test_right_at_every_size(algorithm: Algorithm, sizes: list[int]) -> None:
    verb, key = COLLECTIVES[algorithm.collective], (algorithm.collective, algorithm.name)
    reduces = verb.reduces and not verb.repeats
    for size in sizes:
        if algorithm.obstacle(size):
            with pytest.raises(UnsupportedError, match="needs"):
                algorithm.schedule(size)
            continue
        proofs = [verified(algorithm, size, root) for root in roots(algorithm, size)]
        assert all(proof.rank_identical and proof.in_program_order for proof in proofs)
        if not reduces or size <= 2:
            assert all(proof.left_fold and proof.rank_order for proof in proofs)
        elif size >= 8:
            assert all(proof.left_fold for proof in proofs) == (key in LEFT_FOLD)
        if key in RANK_ORDER:
            assert all(proof.rank_order for proof in proofs)


def test_which_send_alike() -> None:
    """Trees and chains do not: their inner ranks send more than the others."""
    for name in ("ring", "torus", "two_shot", "halving_doubling", "blueconnect"):
        assert limits(ALGORITHMS["all_reduce", name], 8, 0).balanced
    for name in ("chain", "reduce_broadcast", "double_binary_tree", "two_tree"):
        assert not limits(ALGORITHMS["all_reduce", name], 8, 0).balanced
    assert not any(limits(ALGORITHMS["gather", name], 4, 1).balanced for name in ("flat", "binomial"))


def result(proof: Proof, channel: int) -> list[dict[int, dict[tuple[int, int], int]]]:
    """The output chunks of every rank after a strictly sequential run of one channel, by another executor."""
    schedule = proof.schedule
    verb, size, n = COLLECTIVES[schedule.collective], schedule.size, schedule.nchunks
    inputs = {rank: verb.input_chunks(rank, size, schedule.root, n) for rank in range(size)}
    order = {
        rank: [i for i in mine if proof.operations[rank][i].channel == channel]
        for rank, mine in proof.order.items()
    }
    ended = run_strictly(proof.operations, order, inputs, apart=verb.apart)
    assert ended is not None
    if verb.repeats:
        for rank in range(size):
            assert {r for value in ended[rank].values() for r, _ in value} == set(range(size))
    held = [verb.output_chunks(rank, size, schedule.root, n) for rank in range(size)]
    return [{chunk: dict(ended[rank][chunk]) for chunk in held[rank]} for rank in range(size)]


def wanted(collective: str, rank: int, size: int, root: int, n: int) -> dict[int, dict[tuple[int, int], int]]:
    """What `rank` must have: per output chunk the (rank, input chunk) of all contributions, each once."""
    per = n // size
    block, owner = range(rank * per, (rank + 1) * per), {c: c * size // n for c in range(n)}
    everything = {c: {(r, c): 1 for r in range(size)} for c in range(n)}

    def first(k: int) -> dict[int, dict[tuple[int, int], int]]:
        return {c: {(r, c): 1 for r in range(k)} for c in range(n)} if k else {}

    return {
        "all_reduce": everything,
        "reduce": everything if rank == root else {},
        "reduce_scatter": {c: everything[c] for c in block},
        "all_gather": {c: {(owner[c], c): 1} for c in range(n)},
        "gather": {c: {(owner[c], c): 1} for c in range(n)} if rank == root else {},
        "broadcast": {c: {(root, c): 1} for c in range(n)},
        "scatter": {c: {(root, c): 1} for c in block},
        "all_to_all": {c: {(owner[c], rank * per + c % max(per, 1)): 1} for c in range(n)},
        "scan": first(rank + 1),
        "exscan": first(rank),
        "barrier": {},
    }[collective]


@pytest.mark.parametrize("algorithm", BUILTIN)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 8])
def test_a_strictly_sequential_run_gives_the_result(algorithm: Algorithm, size: int) -> None:
    if algorithm.obstacle(size):
        return
    for root in roots(algorithm, size):
        proof = verified(algorithm, size, root)
        n = proof.schedule.nchunks
        for channel in range(proof.schedule.channels):
            ended = result(proof, channel)
            assert ended == [wanted(algorithm.collective, rank, size, root, n) for rank in range(size)]


@pytest.mark.parametrize(
    ("collective", "name", "size", "tree"),
    [
        ("all_reduce", "one_shot", 5, "0+1+2+3+4"),
        ("all_reduce", "two_shot", 5, "0+1+2+3+4"),
        ("all_reduce", "chain", 5, "(((0+1)+2)+3)+4"),
        ("all_reduce", "ring", 4, "((0+1)+2)+3"),
        ("all_reduce", "torus", 4, "(0+1)+(2+3)"),
        ("all_reduce", "recursive_doubling", 8, "((0+1)+(2+3))+((4+5)+(6+7))"),
        ("all_reduce", "recursive_doubling", 7, "((0+1)+(2+3))+((4+5)+6)"),
        ("all_reduce", "halving_doubling", 6, "((0+1)+(2+3))+(4+5)"),
        ("all_reduce", "double_binary_tree", 8, "0+((1+2+3)+4+(5+6+7))"),
        ("all_reduce", "two_tree", 8, "((0+1+2)+3+(4+5+6))+7"),
        ("all_reduce", "two_tree", 7, "((0+1+2)+3+(4+5))+6"),
        ("reduce_scatter", "direct", 5, "0+1+2+3+4"),
        ("reduce_scatter", "ring", 4, "0+((1+2)+3)"),
        ("reduce_scatter", "recursive_halving", 4, "(0+2)+(1+3)"),
        ("reduce", "binomial", 8, "((0+1)+(2+3))+((4+5)+(6+7))"),
        ("reduce", "double_binary_tree", 4, "0+(1+(2+3))"),
        ("reduce", "rabenseifner", 8, "((0+1)+(2+3))+((4+5)+(6+7))"),
        ("reduce", "chain", 4, "((0+1)+2)+3"),
        ("reduce", "flat", 4, "0+1+2+3"),
        ("broadcast", "binomial", 8, "0"),
        ("broadcast", "scatter_all_gather", 8, "0"),
    ],
)
def test_reduction_tree_of_chunk_0_at_rank_0(collective: str, name: str, size: int, tree: str) -> None:
    assert str(verified(ALGORITHMS[collective, name], size).tree(0, 0)) == tree


def test_prefix_sums() -> None:
    doubling = verified(ALGORITHMS["scan", "recursive_doubling"], 7)
    assert [str(doubling.tree(r, 0)) for r in (0, 1, 4, 6)] == ["0", "0+1", "0+((1+2)+(3+4))",
                                                                "(0+(1+2))+((3+4)+(5+6))"]  # fmt: skip
    linear = verified(ALGORITHMS["exscan", "linear"], 4)
    assert [str(linear.tree(r, 0)) for r in range(1, 4)] == ["0", "0+1", "(0+1)+2"]


def test_double_binary_tree_keeps_rank_order_at_even_sizes() -> None:
    algorithm = ALGORITHMS["all_reduce", "double_binary_tree"]
    assert [size for size in range(2, 33) if verified(algorithm, size).rank_order] == list(range(2, 33, 2))
