"""The first calls of a kind, one by one: pycollectives run -n 4 bench/first_calls.py VERB BYTES [CALLS]

`bench` warms up before it measures; this shows what a program sees that makes few calls, and the trials of csrc/shm/contest.hpp.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import pycollectives as pc

comm = pc.init()
verb, nbytes = sys.argv[1], int(sys.argv[2])
calls = int(sys.argv[3]) if len(sys.argv) > 3 else 200
whole = nbytes // 4 // comm.size * comm.size
mine = {"all_gather": (whole // comm.size, whole), "reduce_scatter": (whole, whole // comm.size)}
have, get = mine.get(verb, (whole, whole))
x, y = np.full(have, comm.rank, np.float32), np.zeros(get, np.float32)
took = np.empty(calls)
for i in range(calls):
    comm.barrier()
    begin = time.perf_counter()
    getattr(comm, verb)(x, out=y)
    took[i] = (time.perf_counter() - begin) * 1e6
if comm.rank == 0:
    print(" ".join(f"{each:.0f}" for each in took[:40]))
    print(f"us per call on rank 0; median of the last half {np.median(took[calls // 2 :]):.0f}")
