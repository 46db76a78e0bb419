"""Any MPI through mpi4py, with its upper-case calls on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from pycollectives.bench.arrays import CaseArrays
from pycollectives.bench.cases import Case

from .library import Library, UnsupportedCaseError

_LINES = {
    "all_reduce": "comm.Allreduce(x, out)",
    "reduce_scatter": "comm.Reduce_scatter_block(x, out)",
    "all_gather": "comm.Allgather(x, out)",
    "all_to_all": "comm.Alltoall(x, out)",
    "broadcast": "comm.Bcast(x, root=0)",
    "barrier": "comm.Barrier()",
}


class Mpi(Library):
    """MPI.COMM_WORLD."""

    def __init__(self) -> None:
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size
        self.version = " ".join(MPI.Get_library_version().split("\n")[0].replace("\0", "").split())

    def barrier(self) -> None:
        """The library's own."""
        self.comm.Barrier()

    def bind(self, column: str, case: Case, arrays: CaseArrays) -> tuple[str, dict[str, Any]]:
        """bfloat16 where the library has the type, or where the bytes are only moved."""
        x: Any = arrays.x
        out: Any = arrays.out
        if case.dtype.name == "bfloat16":
            kind = MPI.BFLOAT16_T
            if kind == MPI.DATATYPE_NULL:
                if case.op is not None:
                    raise UnsupportedCaseError("no bfloat16 in this MPI")
                kind = MPI.UINT16_T
            x, out = (None if a is None else [a.view(np.uint16), kind] for a in (x, out))
        line = _LINES[case.collective]
        if arrays.out is arrays.x and case.collective == "all_reduce":
            line = "comm.Allreduce(IN_PLACE, out)"
        return line, {"comm": self.comm, "x": x, "out": out, "IN_PLACE": MPI.IN_PLACE}


def start() -> Mpi:
    """In a process that mpiexec started."""
    return Mpi()
