"""The first calls of a kind, one by one: pycollectives run -n 4 bench/first_calls.py VERB BYTES [CALLS [BATCHES]]

`bench` warms up before it measures; this shows what a program sees that makes few calls, and the trials of csrc/shm/contest.hpp.
With BATCHES each rank works for itself for 10 ms before each batch of CALLS, as programs do between their collectives.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import pycollectives as pc

OWN_SECONDS = 0.01

comm = pc.init()
verb, nbytes = sys.argv[1], int(sys.argv[2])
calls = int(sys.argv[3]) if len(sys.argv) > 3 else 200
batches = int(sys.argv[4]) if len(sys.argv) > 4 else 1
whole = nbytes // 4 // comm.size * comm.size
mine = {"all_gather": (whole // comm.size, whole), "reduce_scatter": (whole, whole // comm.size)}
have, get = mine.get(verb, (whole, whole))
x, y = np.full(have, comm.rank, np.float32), np.zeros(get, np.float32)
took = np.empty((batches, calls))
for batch in took:
    end = time.perf_counter() + OWN_SECONDS
    while batches > 1 and time.perf_counter() < end:
        pass
    comm.barrier()
    for i in range(calls):
        if batches == 1:
            comm.barrier()
        begin = time.perf_counter()
        getattr(comm, verb)(x, out=y)
        batch[i] = (time.perf_counter() - begin) * 1e6
if comm.rank == 0:
    print(" ".join(f"{each:.0f}" for each in np.median(took, axis=0)[:40]))
    if batches == 1:
        print(f"us per call on rank 0; median of the last half {np.median(took[0, calls // 2 :]):.0f}")
    else:
        print(f"us per call on rank 0, medians over the batches; of a batch {np.median(took.sum(1)):.0f}")
