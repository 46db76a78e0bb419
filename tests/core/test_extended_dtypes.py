"""Dtypes that are not NumPy's own: known by name everywhere, imported only where one is used."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pycollectives.extended_dtypes import dtype_of, finfo

NAMES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4")
LIGHT = """
import sys
import numpy as np
import pycollectives as pc

def work(comm):
    assert comm.all_reduce(np.full(4, comm.rank, np.float32)).tolist() == [1] * 4
    comm.send(np.arange(3), dest=1 - comm.rank, tag=1)
    assert comm.recv(source=1 - comm.rank, tag=1).tolist() == [0, 1, 2]
    comm.barrier()

pc.run_threads(2, work)
assert "ml_dtypes" not in sys.modules
"""
USES = {
    "a shared array": "pc.run_threads(2, lambda comm: comm.empty(4, 'bfloat16'))",
    "a plan explained": "pc.run_threads(2, lambda comm: comm.explain('all_reduce', nbytes=64, dtype='float8_e5m2'))",
}


@pytest.mark.parametrize("name", ["float32", "complex64", "bool", *NAMES])
def test_by_name(name: str) -> None:
    assert dtype_of(name).name == name
    assert dtype_of(dtype_of(name)) == dtype_of(name)


@pytest.mark.parametrize("name", ["nothing", "finfo", "", object(), "<f4,,"])
def test_what_is_none(name: object) -> None:
    with pytest.raises((TypeError, ValueError, SyntaxError)):
        dtype_of(name)


@pytest.mark.parametrize("name", ["float16", "float64", "complex64", *NAMES[:3]])
def test_limits(name: str) -> None:
    dtype = dtype_of(name)
    one = np.ones(1, dtype)
    above = (one + np.asarray(finfo(dtype).eps, dtype)).astype(np.complex128)
    assert above.real[0] == 1 + float(finfo(dtype).eps) and finfo(dtype).nmant == -np.log2(
        float(finfo(dtype).eps)
    )


@pytest.mark.parametrize("use", ["", *USES])
def test_imported_where_it_is_used(use: str) -> None:
    code = LIGHT + (f"{USES[use]}\nassert 'ml_dtypes' in sys.modules\n" if use else "")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
