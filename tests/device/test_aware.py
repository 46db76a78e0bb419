"""When MPI is given device pointers: the decision itself, from what a library may answer."""

from __future__ import annotations

from typing import Any

import pytest

from pycollectives import settings
from pycollectives.device.aware import Answer, agree, ask, decide, describe
from pycollectives.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("answers", "direct", "why"),
    [
        ((1, -1, None, {}), True, "MPIX_Query_cuda_support says 1"),
        ((0, 1, "system,cuda", {"MPICH_GPU_SUPPORT_ENABLED": "1"}), False, "MPIX_Query_cuda_support says 0"),
        ((-1, 1, None, {}), True, "MPIX_GPU_query_support says 1"),
        ((-1, 0, "cuda", {}), False, "MPIX_GPU_query_support says 0"),
        ((-1, -1, "system,mpi, cuda:device", {}), True, "mpi_memory_alloc_kinds is"),
        ((-1, -1, "system,mpi,rocm", {}), False, "mpi_memory_alloc_kinds is 'system,mpi,rocm'"),
        ((-1, -1, None, {"MPICH_GPU_SUPPORT_ENABLED": "1"}), True, "MPICH_GPU_SUPPORT_ENABLED is 1"),
        ((-1, -1, None, {"MV2_USE_CUDA": "0"}), False, "MV2_USE_CUDA is 0"),
        ((-1, -1, None, {}), False, "does not say"),
    ],
)
def test_what_the_library_says(answers: Any, direct: bool, why: str) -> None:
    found = decide(*answers)
    assert found.direct is direct and why in found.why
    assert ("go to MPI" if direct else "staged through pinned") in describe(found)


class Library:
    """That of an answer."""

    cuda_query, gpu_query = 0, -1


class Comm:
    def Get_info(self) -> Any:
        return {}


def test_the_user_knows_better() -> None:
    assert ask(Library(), Comm(), "yes") == Answer(True, "PYCOLLECTIVES_CUDA_AWARE_MPI is yes")
    assert not ask(Library(), Comm(), "no").direct
    assert ask(Library(), Comm(), "automatic").why == "MPIX_Query_cuda_support says 0"


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVES_CUDA_AWARE_MPI", "yes")
    assert settings.decide(2, nested=False).cuda_aware_mpi == "yes"
    monkeypatch.setenv("PYCOLLECTIVES_CUDA_AWARE_MPI", "1")
    with pytest.raises(InvalidArgumentError, match="automatic, yes, no"):
        settings.decide(2, nested=False)


def test_all_ranks_or_none() -> None:
    yes, no = Answer(True, "a"), Answer(False, "b")
    assert agree([yes, yes]) == yes and agree([no, no]) == no
    assert agree([yes, no, yes]) == Answer(False, "rank 1: b")
