"""oneCCL on the CPU through its C interface: no Python binding of a current release exists."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pycollectives.bench.arrays import CaseArrays
from pycollectives.bench.cases import Case

from .library import Library, UnsupportedCaseError

_TYPES = {"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}  # onecclDataType_t
_SUM = 0
_ID_BYTES = 4096
_WAIT = 30.0  # seconds for rank 0's unique id


class _Id(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char * _ID_BYTES),)


class OneCcl(Library):
    """The ranks of Intel's mpiexec, which only numbers them."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
        self.lib = ctypes.CDLL(f"{sys.prefix}/lib/libccl.so.2")
        number = ctypes.c_int()
        self._check(self.lib.onecclGetVersion(ctypes.byref(number)))
        self.version = f"oneCCL {number.value // 10000}.{number.value // 100 % 100}, C interface"
        unique = self._unique_id()
        self.comm = ctypes.c_void_p()
        init = self.lib.onecclCommInitRank
        init.argtypes = [ctypes.c_void_p, ctypes.c_size_t, _Id, ctypes.c_int]
        self._check(init(ctypes.byref(self.comm), self.size, unique, self.rank))
        pointer, count, number_type = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for name, middle in (
            ("AllReduce", [number_type]),
            ("ReduceScatter", [number_type]),
            ("AllGather", []),
            ("AllToAll", []),
            ("Broadcast", [number_type]),
        ):
            function = getattr(self.lib, f"oneccl{name}")
            function.argtypes = [pointer, pointer, count, number_type, *middle, pointer, pointer]
        self._token = np.zeros(1, np.float32)
        self._token_out = np.zeros(1, np.float32)

    def _unique_id(self) -> _Id:
        """Rank 0 makes it, and the others find it in the folder of the job."""
        unique, path = _Id(), Path("unique_id")
        if self.rank == 0:
            self._check(self.lib.onecclGetUniqueId(ctypes.byref(unique)))
            Path("unique_id.part").write_bytes(bytes(unique))
            Path("unique_id.part").rename(path)
            return unique
        deadline = time.monotonic() + _WAIT
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("rank 0 made no unique id")
            time.sleep(0.02)
        ctypes.memmove(ctypes.byref(unique), path.read_bytes(), _ID_BYTES)
        return unique

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise RuntimeError(f"oneCCL says {code}")

    def barrier(self) -> None:
        """The C interface has none: an all-reduce of one element."""
        x, out = self._token.ctypes.data, self._token_out.ctypes.data
        self.lib.onecclAllReduce(x, out, 1, _TYPES["float32"], _SUM, self.comm, None)

    def bind(self, column: str, case: Case, arrays: CaseArrays) -> tuple[str, dict[str, Any]]:
        """Counts are those of the C interface: elements per rank for all but all_reduce and broadcast."""
        if case.collective == "barrier":
            raise UnsupportedCaseError("the C interface has no barrier")
        if case.dtype.name not in _TYPES:
            raise UnsupportedCaseError(f"no {case.dtype.name} here")
        name, count, more = {
            "all_reduce": ("AllReduce", case.count, "SUM, "),
            "reduce_scatter": ("ReduceScatter", arrays.block, "SUM, "),
            "all_gather": ("AllGather", arrays.block, ""),
            "all_to_all": ("AllToAll", arrays.block, ""),
            "broadcast": ("Broadcast", case.count, "0, "),
        }[case.collective]
        assert arrays.out is not None
        names = {
            "call": getattr(self.lib, f"oneccl{name}"),
            "x": arrays.x.ctypes.data,
            "out": arrays.out.ctypes.data,
            "TYPE": _TYPES[case.dtype.name],
            "SUM": _SUM,
            "comm": self.comm,
        }
        return f"call(x, out, {count}, TYPE, {more}comm, None)", names


def start() -> OneCcl:
    """In a process that Intel's mpiexec started."""
    return OneCcl()
