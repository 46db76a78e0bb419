"""DeepSpeed's all-reduce in shared memory (`inference_all_reduce`): in place, and nothing else."""

from __future__ import annotations

import os
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

import torch

from pycollectives.bench.arrays import CaseArrays
from pycollectives.bench.cases import Case

from .deepspeed_build import NAME, library
from .gloo import tensor
from .library import Library, UnsupportedCaseError


class DeepSpeed(Library):
    """RANK, WORLD_SIZE, LOCAL_SIZE, MASTER_ADDR and MASTER_PORT in the environment, as its launcher sets them."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        loader = ExtensionFileLoader(NAME, str(library()))
        spec = spec_from_loader(NAME, loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
        module.initialize(self.size, self.rank)
        self.version = f"DeepSpeed's inference_all_reduce, torch {torch.__version__}"
        self._token = torch.zeros(16)

    def barrier(self) -> None:
        """It has none: a small all-reduce."""
        torch.ops.deepspeed.inference_all_reduce_(self._token)

    def in_place(self, case: Case, wanted: bool) -> bool:
        """Always."""
        return True

    def bind(self, column: str, case: Case, arrays: CaseArrays) -> tuple[str, dict[str, Any]]:
        """Only all_reduce."""
        if case.collective != "all_reduce" or case.dtype.name not in ("float32", "float16", "bfloat16"):
            raise UnsupportedCaseError("only all_reduce of float32, float16, bfloat16")
        return "all_reduce(x)", {
            "all_reduce": torch.ops.deepspeed.inference_all_reduce_,
            "x": tensor(arrays.x),
        }


def start() -> DeepSpeed:
    """One process per rank."""
    return DeepSpeed()
