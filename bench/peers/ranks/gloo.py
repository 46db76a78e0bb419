"""PyTorch's gloo, on tensors that share the memory of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pycollectives.arrays import Array
from pycollectives.bench.arrays import CaseArrays
from pycollectives.bench.cases import Case

from .library import Library

LINES = {
    "all_reduce": "dist.all_reduce(x)",
    "reduce_scatter": "dist.reduce_scatter_single(out, x)",
    "all_gather": "dist.all_gather_single(out, x)",
    "all_to_all": "dist.all_to_all_single(out, x)",
    "broadcast": "dist.broadcast(x, 0)",
    "barrier": "dist.barrier()",
}


class Gloo(Library):
    """The default process group."""

    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.version = f"torch {torch.__version__}, gloo"

    def barrier(self) -> None:
        """The library's own."""
        dist.barrier()

    def in_place(self, case: Case, wanted: bool) -> bool:
        """All-reduce and broadcast always are."""
        return wanted or case.collective in ("all_reduce", "broadcast")

    def bind(self, column: str, case: Case, arrays: CaseArrays) -> tuple[str, dict[str, Any]]:
        """Every dtype here goes."""
        x = tensor(arrays.x)
        out = None if arrays.out is None else tensor(arrays.out)
        return LINES[case.collective], {"dist": dist, "x": x, "out": out}


def tensor(array: Array) -> Any:
    """A tensor on the memory of an array."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def start() -> Gloo:
    """With RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment, as torchrun sets them."""
    return Gloo()
