"""Open MPI's fixed decisions: thresholds of ranks and bytes, from measurements of its authors' clusters.

source   Open MPI, coll/tuned, fixed decision functions at commit 8efebee (2026); the algorithms' names are those of its
         parameters coll_tuned_*_algorithm
"""

from __future__ import annotations

from functools import cache

from ..query import Query
from .advice import Advice, block_bytes

# A line: from so many ranks on, the number of the algorithm, and from how many bytes on another one. Bytes are those of
# one rank's block where the vector has one for each.
_RULES = {
    "all_reduce": """
        2: 4 8:3 4K:4 8K:3 16K:4 64K:5 256K:6
        4: 4 16:3 8K:6
        8: 3 8K:6
        16: 5 64:3 4K:6
        32: 5 128:6
        64: 3 256K:6
        128: 2 128K:3 256K:6
        256: 2 4K:6
        512: 2 2K:3 16K:6
        2048: 2 2K:5 4K:3 16K:6
        4096: 2 2K:5 16K:3 32K:6
    """,
    "all_reduce, in rank order": """
        2: 3 128K:1
        4: 3
        8: 3 1M:2
        16: 3
        128: 2 128K:3 512K:2
        256: 2 4K:3 512K:2
        512: 2 2K:3
    """,
    "all_to_all": """
        2: 2 2:5 4:2 16:5 64:2 256:5 4K:2 32K:4 256K:5 1M:2
        3: 4 8K:1 16K:4 64K:1 512K:2 1M:1
        8: 4 256K:1
        16: 4 4:3 512:4 8K:1 32K:4 256K:1 512K:4
        32: 3 512:1 512K:4
        64: 3 1K:1 2K:4 4K:1 256K:2
        128: 3 1K:4 2K:1 256K:2
        256: 3 1K:4 8K:1 32K:2
        512: 3 512:4 8K:1 16K:4 128K:1 256K:2
        1024: 3 512:4 1K:1 2K:4 16K:1 256K:4
        2048: 3 1K:4 4K:1 8K:4 128K:1
        4096: 3 2K:4 8K:1 16K:4 32K:1 64K:4
    """,
    "broadcast": """
        2: 3 32:5 256:3 512:7 1K:1 32K:5 128K:2 256K:1 512K:6 1M:5
        4: 5 64:6 128:5 2K:6 8K:1 1M:2
        8: 7 8:5 64:7 4K:5 16K:6 32K:1
        16: 7 4K:6 1M:8
        32: 6 2K:7
        64: 7
        128: 6 2:5 16K:1 32K:5 64K:7
        256: 7 16K:4 32K:7
        1024: 7 512K:8
        2048: 7 256K:8
        4096: 7 8K:5 16K:7 256K:8
    """,
    "reduce": """
        2: 7 8:4 16:3 32:1 256K:3 512K:2 1M:3
        4: 4 4K:2 64K:5 256K:1 512K:5 1M:1
        8: 4 8K:5
        16: 4 4K:5
        32: 5
        256: 5 8K:6 16K:5
        512: 5
        2048: 5 512:6 1K:5 8K:6 16K:5
        4096: 5 16:6 32:5 1K:6 2K:5 8K:6 16K:5
    """,
    "reduce, in rank order": """
        2: 6 8:1
        4: 1
        8: 6 1K:1 8K:6 16K:1 256K:6
        16: 6
        128: 6 512:1 1K:6
        256: 6
    """,
    "reduce_scatter": """
        2: 2 4:4 8:3 16:4 128:3 256:4 4K:3 8K:4 128K:1
        4: 3 8:2 32:4 256:3 8K:4 16K:3 1M:1
        8: 1 4:3 32:4 128:3 512K:1 4M:4
        16: 1 32:3 512K:1 2M:3 4M:4
        32: 3 4:1 16:4 64K:1 256K:4
    """,
    "reduce_scatter, in rank order": """
        2: 1
    """,
    "all_gather": """
        2: 6
        3: 3
        32: 3 1K:5 64K:4
        64: 3 512:5 64K:4
        128: 3 512:5 128K:4 512K:5 1M:4
        256: 3 32:2 128:3 1K:5 128K:4 512K:5 1M:4
        512: 3 64:2 256:3 2K:5
        1024: 3 4:2 8:3 16:2 32:3 256:2 512:3 4K:5
        2048: 2 32:3 128:2 512:3 4K:5
        4096: 3 2:2 8:3 16:2 512:3 4K:5
    """,
    "gather": """
        2: 3 2:1 4:2 32K:1 64K:2 128K:3
        4: 2 1K:1 8K:2 32K:1 256K:3
        8: 2
        256: 2 2K:1 8K:2
        512: 2
    """,
    "scatter": """
        2: 3 2:1 128K:3 256K:1
        4: 2 2K:1 4K:2 8K:1 32K:3 1M:1
        8: 2 16K:3 1M:1
        16: 2 16K:1 32K:3
        32: 2 512:3 8K:2 16K:3
        64: 2 512:3
    """,
}

# Number, Open MPI's name, the algorithm here. Trees of two children per node: the double tree is the nearest here.
_ALGORITHMS = {
    "all_reduce": """
        1 basic_linear reduce_broadcast, 2 nonoverlapping reduce_broadcast, 3 recursive_doubling recursive_doubling,
        4 ring ring, 5 segmented_ring ring, 6 rabenseifner halving_doubling""",
    "all_to_all": """
        1 linear direct, 2 pairwise pairwise, 3 modified_bruck bruck, 4 linear_sync direct, 5 two_proc pairwise""",
    "broadcast": """
        1 basic_linear flat, 2 chain chain, 3 pipeline chain, 4 split_binary_tree double_binary_tree,
        5 binary_tree double_binary_tree, 6 binomial binomial, 7 knomial binomial,
        8 scatter_allgather scatter_all_gather, 9 scatter_allgather_ring scatter_all_gather""",
    "reduce": """
        1 linear flat, 2 chain chain, 3 pipeline chain, 4 binary double_binary_tree, 5 binomial binomial,
        6 in-order_binary chain, 7 rabenseifner rabenseifner""",
    "reduce_scatter": """
        1 basic_linear direct, 2 recursive_doubling recursive_halving, 3 recursive_halving recursive_halving,
        4 butterfly recursive_halving""",
    "all_gather": """
        1 linear direct, 2 bruck bruck, 3 recursive_doubling recursive_doubling, 4 ring ring,
        5 neighbor neighbor_exchange, 6 two_proc direct""",
    "gather": "1 basic_linear flat, 2 binomial binomial, 3 linear_sync flat",
    "scatter": "1 basic_linear flat, 2 binomial binomial, 3 linear_nb flat",
}
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def advice(query: Query) -> Advice | None:
    """What Open MPI takes between ranks of one communicator; None for verbs that it has no table for."""
    ordered = f"{query.collective}, in rank order"
    key = ordered if query.needs.rank_order and ordered in _RULES else query.collective
    if query.collective == "barrier":
        return Advice("recursive doubling or Bruck", "dissemination")
    if key not in _RULES or query.size < 2:
        return None
    steps = [rule for ranks, rule in _rules(key) if ranks <= query.size][-1]
    number = [algorithm for nbytes, algorithm in steps if nbytes <= block_bytes(query)][-1]
    return _algorithms(query.collective)[number]


@cache
def _rules(key: str) -> list[tuple[int, list[tuple[int, int]]]]:
    """By number of ranks: from how many bytes on which algorithm."""
    found = []
    for line in _RULES[key].strip().splitlines():
        ranks, _, rest = line.partition(":")
        steps = [part.rpartition(":") for part in rest.split()]
        found.append((int(ranks), [(_bytes(low), int(algorithm)) for low, _, algorithm in steps]))
    return found


def _bytes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]] if text and text[-1] in _UNITS else int(text or 0)


@cache
def _algorithms(collective: str) -> dict[int, Advice]:
    found = {}
    for entry in _ALGORITHMS[collective].split(","):
        number, theirs, ours = entry.split()
        found[int(number)] = Advice(theirs, ours)
    return found
