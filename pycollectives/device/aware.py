"""May MPI be given device pointers? What the library says, and what the user says.

    PYCOLLECTIVES_CUDA_AWARE_MPI       yes or no: the user knows
    MPIX_Query_cuda_support            Open MPI, MPICH, and what derives from them
    MPIX_GPU_query_support             MPICH and its kin
    mpi_memory_alloc_kinds             MPI 4.1: a key of the communicator's info that lists kinds of memory
    MPICH_GPU_SUPPORT_ENABLED, ...     switches of libraries that answer none of these

Where it may, the library and the network decide whether the bytes take GPUDirect RDMA; no function of MPI tells.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

SWITCHES = ("MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "MVP_USE_CUDA")  # Cray MPICH, MVAPICH
KINDS = "mpi_memory_alloc_kinds"


class Answer(NamedTuple):
    """`direct`: device pointers go to MPI. `why`: in words."""

    direct: bool
    why: str


def ask(library: Any, comm: Any, choice: str) -> Answer:
    """The answer of this rank. `library`: a _core.MpiLibrary; `comm`: mpi4py's; `choice`: the setting, one of settings.AWARE."""
    if choice != "automatic":
        return Answer(choice == "yes", f"PYCOLLECTIVES_CUDA_AWARE_MPI is {choice}")
    return decide(library.cuda_query, library.gpu_query, kinds_of(comm), os.environ)


def kinds_of(comm: Any) -> str | None:
    """The kinds of memory that the MPI library says it takes, None if it does not say."""
    try:
        found: str | None = comm.Get_info().Get(KINDS)
    except Exception:  # mpi4py's, of a library that has no info there
        return None
    return found


def decide(cuda_query: int, gpu_query: int, kinds: str | None, environ: Any) -> Answer:
    """By the answers of the library: 1 or 0, -1 where it has no such function; and of the environment."""
    if cuda_query >= 0:
        return Answer(cuda_query > 0, f"MPIX_Query_cuda_support says {cuda_query}")
    if gpu_query >= 0:
        return Answer(gpu_query > 0, f"MPIX_GPU_query_support says {gpu_query}")
    if kinds is not None:
        offered = [kind.partition(":")[0].strip() for kind in kinds.split(",")]
        return Answer("cuda" in offered, f"{KINDS} is {kinds!r}")
    for name in SWITCHES:
        if name in environ:
            return Answer(environ[name] == "1", f"{name} is {environ[name]}")
    return Answer(False, "the MPI library does not say that it takes device pointers")


def agree(answers: Sequence[Answer]) -> Answer:
    """All ranks, or none: the first one that may not says why."""
    for rank, one in enumerate(answers):
        if not one.direct:
            return Answer(
                False, one.why if all(one == other for other in answers) else f"rank {rank}: {one.why}"
            )
    return answers[0]


def describe(answer: Answer) -> str:
    """A line for people."""
    if answer.direct:
        return f"device pointers go to MPI ({answer.why})"
    return f"device memory is staged through pinned host memory ({answer.why})"
