"""The rules of other libraries, against what is published of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from queries import queries

from pycollectives.dispatch import POLICIES, Needs, Query, consult
from pycollectives.dispatch.policies import nccl
from pycollectives.errors import InvalidArgumentError
from pycollectives.schedule import find

# Ranks of a row of the table of Open MPI's all-reduce (coll_tuned_decision_fixed.c at 8efebee), bytes, algorithm.
OPEN_MPI = """
    2 4 ring; 2 8 recursive_doubling; 3 4096 ring; 3 8192 recursive_doubling; 2 16384 ring; 2 65536 segmented_ring;
    3 262144 rabenseifner; 4 15 ring; 7 16 recursive_doubling; 5 8192 rabenseifner; 8 0 recursive_doubling;
    15 8192 rabenseifner; 16 63 segmented_ring; 31 64 recursive_doubling; 20 4096 rabenseifner; 32 127 segmented_ring;
    63 128 rabenseifner; 64 262143 recursive_doubling; 127 262144 rabenseifner; 128 131071 nonoverlapping;
    255 131072 recursive_doubling; 200 262144 rabenseifner; 256 4095 nonoverlapping; 511 4096 rabenseifner;
    512 2047 nonoverlapping; 2047 2048 recursive_doubling; 1000 16384 rabenseifner; 2048 2048 segmented_ring;
    4095 4096 recursive_doubling; 4096 16383 segmented_ring; 9999 16384 recursive_doubling; 4096 32768 rabenseifner
"""


def theirs(policy: str, verb: str, nbytes: int, size: int, **needs: bool) -> str:
    found = consult(policy, Query(verb, nbytes, size, needs=Needs(**needs)))
    assert found is not None
    return found.theirs


def test_open_mpi() -> None:
    for row in OPEN_MPI.split(";"):
        size, nbytes, name = row.split()
        assert theirs("openmpi", "all_reduce", int(nbytes), int(size)) == name, row
    assert theirs("openmpi", "all_reduce", 1 << 20, 1000, rank_order=True) == "recursive_doubling"
    assert theirs("openmpi", "all_reduce", 100, 1000, rank_order=True) == "nonoverlapping"
    assert theirs("openmpi", "all_gather", 32 * 65536, 32) == "ring"  # a block of 64 KiB
    assert theirs("openmpi", "all_gather", 32 * 65535, 32) == "neighbor"


def test_mpich() -> None:
    assert theirs("mpich", "all_reduce", 2048, 16) == "recursive doubling"
    assert "Rabenseifner" in theirs("mpich", "all_reduce", 2049, 16)
    assert theirs("mpich", "all_reduce", 1 << 20, 16, rank_order=True) == "recursive doubling"
    assert theirs("mpich", "broadcast", 12287, 64) == theirs("mpich", "broadcast", 1 << 20, 7) == "binomial"
    assert theirs("mpich", "broadcast", 12288, 8) == "scatter + recursive-doubling all-gather"
    assert theirs("mpich", "broadcast", 524288, 8) == theirs("mpich", "broadcast", 12288, 9)
    assert theirs("mpich", "all_gather", 524287, 16) == "recursive doubling"
    assert theirs("mpich", "all_gather", 81919, 12) == "Bruck"
    assert theirs("mpich", "all_gather", 81920, 12) == theirs("mpich", "all_gather", 524288, 16) == "ring"
    assert theirs("mpich", "all_to_all", 8 * 256, 8) == "Bruck"
    assert theirs("mpich", "all_to_all", 8 * 257, 8) == "scattered isend/irecv"
    assert theirs("mpich", "all_to_all", 8 * 32769, 8) == "pairwise exchange"
    assert theirs("mpich", "reduce_scatter", 524287, 8) == "recursive halving"
    assert theirs("mpich", "reduce_scatter", 524288, 8) == "pairwise exchange"


def test_nccl() -> None:
    ring = [round(nccl.latency("ring", protocol, 8), 1) for protocol in range(3)]
    tree = [round(nccl.latency("tree", protocol, 8), 1) for protocol in range(3)]
    assert (ring, tree) == ([15.0, 40.6, 56.0], [15.2, 31.5, 64.4])  # of NCCL 2.30, 8 ranks of one host
    assert theirs("nccl", "all_reduce", 8, 8) == "ring, LL"
    assert theirs("nccl", "all_reduce", 1 << 30, 8) == "ring, Simple"
    assert consult("nccl", Query("all_to_all", 8, 8)) is None


@settings(max_examples=200)
@given(queries())
def test_advice_is_an_algorithm_of_the_collective(query: Query) -> None:
    for policy in POLICIES:
        if (found := consult(policy, query)) is not None:
            assert find(query.collective, found.name).name == found.name and found.theirs


def test_an_unknown_policy_suggests_the_near_one() -> None:
    with pytest.raises(InvalidArgumentError, match="did you mean 'mpich'"):
        consult("mpch", Query("all_reduce", 8, 2))
