"""The classic algorithms: pycollectives' schedule against the same algorithm inside Open MPI and MPICH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .catalogue import OURS, PEERS, Peer

_K, _M = 1 << 10, 1 << 20
SMALL = (8, 512, 4 * _K, 32 * _K)
LARGE = (32 * _K, 256 * _K, 2 * _M, 16 * _M)


@dataclass(frozen=True)
class Contest:
    """`openmpi`: parameters of coll/tuned; `mpich`: its variables; None: it has nothing alike."""

    collective: str
    algorithm: str
    sizes: tuple[int, ...]
    openmpi: Mapping[str, str] | None
    mpich: Mapping[str, str] | None
    remark: str = ""

    def peers(self) -> list[Peer]:
        """pycollectives and the others, each told which algorithm to use."""
        ours = {"PYCOLLECTIVES_ALGORITHM": f"{self.collective}={self.algorithm}"}
        found = [replace(OURS, variables=ours, columns=("array",))]
        if self.openmpi is not None:
            peer = PEERS["openmpi-sm"]
            told = {f"OMPI_MCA_coll_tuned_{name}": value for name, value in self.openmpi.items()}
            found.append(replace(peer, variables={**peer.variables, **_TUNED, **told}))
        if self.mpich is not None:
            peer = PEERS["mpich"]
            told = {f"MPIR_CVAR_{name}": value for name, value in self.mpich.items()}
            found.append(replace(peer, variables={**peer.variables, **_PORTABLE, **told}))
        return found


# Open MPI: no component but tuned and what it stands on. MPICH: its portable algorithms, not those in shared memory.
_TUNED = {"OMPI_MCA_coll": "tuned,basic,libnbc,self", "OMPI_MCA_coll_tuned_use_dynamic_rules": "1"}
_PORTABLE = {"MPIR_CVAR_DEVICE_COLLECTIVES": "none", "MPIR_CVAR_COLLECTIVE_FALLBACK": "error"}

_OMPI_RING = {"allreduce_algorithm": "ring"}
_MPICH_RING = {"ALLREDUCE_INTRA_ALGORITHM": "nb", "IALLREDUCE_INTRA_ALGORITHM": "tsp_ring"}
_OMPI_TREE = {
    "allreduce_algorithm": "nonoverlapping",
    "reduce_algorithm": "binary",
    "reduce_algorithm_segmentsize": "65536",
    "bcast_algorithm": "split_binary_tree",
    "bcast_algorithm_segmentsize": "65536",
}
_MPICH_TREE = {
    "ALLREDUCE_INTRA_ALGORITHM": "tree",
    "ALLREDUCE_TREE_TYPE": "kary",
    "ALLREDUCE_TREE_KVAL": "2",
    "ALLREDUCE_TREE_PIPELINE_CHUNK_SIZE": "65536",
}

CONTESTS = (
    Contest("all_reduce", "ring", LARGE, _OMPI_RING, _MPICH_RING),
    Contest("all_reduce", "torus", LARGE, _OMPI_RING, _MPICH_RING, "the others have no torus: their ring"),
    Contest(
        "all_reduce",
        "double_binary_tree",
        LARGE,
        _OMPI_TREE,
        _MPICH_TREE,
        "Open MPI: binary reduce, then split-binary broadcast; MPICH: pipelined binary tree",
    ),
    Contest(
        "all_reduce",
        "recursive_doubling",
        SMALL,
        {"allreduce_algorithm": "recursive_doubling"},
        {"ALLREDUCE_INTRA_ALGORITHM": "recursive_doubling"},
    ),
    Contest(
        "all_reduce",
        "halving_doubling",
        LARGE,
        {"allreduce_algorithm": "rabenseifner"},
        {"ALLREDUCE_INTRA_ALGORITHM": "reduce_scatter_allgather"},
    ),
    Contest(
        "all_gather", "ring", LARGE, {"allgather_algorithm": "ring"}, {"ALLGATHER_INTRA_ALGORITHM": "ring"}
    ),
    Contest(
        "all_gather",
        "recursive_doubling",
        SMALL,
        {"allgather_algorithm": "recursive_doubling"},
        {"ALLGATHER_INTRA_ALGORITHM": "recursive_doubling"},
    ),
    Contest(
        "all_gather",
        "bruck",
        SMALL,
        {"allgather_algorithm": "bruck"},
        {"ALLGATHER_INTRA_ALGORITHM": "brucks"},
    ),
    Contest(
        "reduce_scatter",
        "recursive_halving",
        LARGE,
        {"reduce_scatter_block_algorithm": "recursive_halving"},
        {"REDUCE_SCATTER_BLOCK_INTRA_ALGORITHM": "recursive_halving"},
    ),
    Contest(
        "broadcast", "binomial", SMALL, {"bcast_algorithm": "binomial"}, {"BCAST_INTRA_ALGORITHM": "binomial"}
    ),
    Contest(
        "all_to_all",
        "pairwise",
        LARGE,
        {"alltoall_algorithm": "pairwise"},
        {"ALLTOALL_INTRA_ALGORITHM": "pairwise"},
    ),
    Contest(
        "all_to_all",
        "bruck",
        SMALL,
        {"alltoall_algorithm": "modified_bruck"},
        {"ALLTOALL_INTRA_ALGORITHM": "brucks"},
    ),
)
