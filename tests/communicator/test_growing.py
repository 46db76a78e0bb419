"""Messages that are read while they are written: those of ranks that only send, of 64 KiB and more."""

from __future__ import annotations

from typing import Any

import catalogue
import ml_dtypes
import numpy as np
import pytest
import ranks

GROWTH = 32 * 1024  # csrc/shm/executor.hpp
BYTES = [2 * GROWTH - 8, 2 * GROWTH, 2 * GROWTH + 8, 3 * GROWTH + 8 * 77, 16 * GROWTH - 8]


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "bool", ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("verb", ["broadcast", "reduce", "gather", "scatter"])
def test_rooted_calls(verb: str, dtype: Any) -> None:
    def fn(comm: Any) -> None:
        call = getattr(comm, verb)
        for nbytes in BYTES:
            n = nbytes // np.dtype(dtype).itemsize * (2 if verb == "scatter" else 1)
            for root in range(2):
                op = {"op": "max"} if verb == "reduce" else {}
                xs = catalogue.inputs(2, n, dtype, root + nbytes)
                if verb == "reduce":
                    want = np.maximum(*xs) if comm.rank == root else None
                else:
                    want = catalogue.wanted(verb, xs, comm.rank, root)
                for _ in range(3):  # back to back: the sender runs ahead
                    found = call(xs[comm.rank].copy(), root=root, **op)
                    assert (found is None) == (want is None)
                    assert want is None or np.array_equal(np.ravel(found), np.ravel(want))

    ranks.threads(2, fn)


def test_in_place_and_wide(pools: Any) -> None:
    """Sums of 16-bit floats, over the input itself, between processes."""
    assert all(pools(2).run(summed))


def summed(comm: Any) -> bool:
    right = True
    for nbytes in BYTES:
        n = nbytes // 2
        for turn in range(4):
            whole = np.arange(n) % 61
            x = (whole + comm.rank + turn).astype(ml_dtypes.bfloat16)
            out = comm.reduce(x, root=0, out=x if comm.rank == 0 else None)
            if comm.rank == 0:
                right &= np.array_equal(out.astype(np.float32), (2 * whole + 1 + 2 * turn).astype(np.float32))
    return right
