"""The overhead gate: the executed ring against a ring written by hand in C++ over the same shared memory.

    python -m pycollectives run -n 2 bench/ring_gate.py

The design asks for at most 5 % at 64 KiB and above and at most 15 % at 8 B. Both run in the same process, in turn, in many
short rounds; the figure is the median of the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np

import pycollectives as pc
from pycollectives import _core, settings
from pycollectives.arrays import address
from pycollectives.calls import Kind
from pycollectives.ops import resolve

SIZES = [8, 4096, 65536, 1 << 20, 16 << 20]


def measure(comm: pc.Communicator, nbytes: int, rounds: int) -> tuple[float, float, float, float]:
    """Median microseconds of both, the median ratio (executed / by hand) and the quartile distance of the ratios."""
    x = np.arange(nbytes // 4, dtype=np.float32) % 97 + comm.rank
    out = np.empty_like(x)
    times = max(1, min(2000, (4 << 20) // nbytes))
    prepared = comm._calls.find(Kind("all_reduce", x.dtype, x.size, resolve("sum", comm.size), named="ring"))
    ring = comm.__dict__.setdefault(
        "_gate", _core.ReferenceRing(comm._core, *settings.patience(comm.size)[:2])
    )
    ring.all_reduce(address(x), address(out), x.size, 1)
    comm.barrier()  # the two share the pool: neither may start while a peer still reads
    assert np.array_equal(out, comm.all_reduce(x, algorithm="ring")), "the two rings disagree"
    executed, by_hand = [], []
    for turn in range(rounds):
        for which in ((0, 1), (1, 0))[turn % 2]:
            comm.barrier()
            start = time.perf_counter()
            if which == 0:
                comm._core.run_many(prepared, address(x), address(out), 60.0, times)
            else:
                ring.all_reduce(address(x), address(out), x.size, times)
            took = np.array([(time.perf_counter() - start) / times * 1e6])
            (executed, by_hand)[which].append(float(comm.all_reduce(took, "max")[0]))
    ratios = [a / b for a, b in zip(executed, by_hand, strict=True)]
    quartiles = statistics.quantiles(ratios, n=4)
    return (
        statistics.median(executed),
        statistics.median(by_hand),
        statistics.median(ratios),
        quartiles[2] - quartiles[0],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    comm = pc.init()
    rows = []
    if comm.rank == 0:
        print(
            f"{comm.size} ranks\n{'bytes':>10} {'executed us':>12} {'by hand us':>12} {'ratio':>7} {'spread':>7}  gate"
        )
    for nbytes in SIZES:
        executed, by_hand, ratio, spread = measure(comm, nbytes, options.rounds)
        limit = 1.15 if nbytes < 65536 else 1.05
        rows.append(
            {
                "bytes": nbytes,
                "executed_us": executed,
                "by_hand_us": by_hand,
                "ratio": ratio,
                "spread": spread,
                "limit": limit,
            }
        )
        if comm.rank == 0:
            verdict = "met" if ratio <= limit else "MISSED"
            print(
                f"{nbytes:>10} {executed:>12.2f} {by_hand:>12.2f} {ratio:>7.3f} {spread:>7.3f}  {limit} {verdict}",
                flush=True,
            )
    if comm.rank == 0 and options.json:
        with open(options.json, "w") as file:
            json.dump({"ranks": comm.size, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
