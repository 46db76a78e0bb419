"""The work of a call counted in instructions, not in time: a bar that noise cannot move.

    python bench/counted_work.py

Runs two ranks as threads under callgrind (Debian's package valgrind) and counts what the executor does with data and messages
(`Executor::begin`, `compute`, `compute_brief`, `finish`; waiting is not counted), per call and rank. Every byte that is copied by
`rep movsb` counts as one, so a copy more per byte shows. Fails where a case needs more than its bar, which is about one and a half
times what was counted when it was set.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

COUNTED = ("begin", "compute", "compute_brief", "finish")
CALLS = 300

# (collective, algorithm, dtype, elements of the input): instructions of one call on one rank
BARS = {
    ("all_reduce", "ring", "float32", 2): 1900,
    ("all_reduce", "one_shot", "float32", 2): 1350,
    ("all_reduce", "two_shot", "float32", 16384): 110_000,
    ("all_reduce", "two_shot", "bfloat16", 32768): 135_000,
    ("reduce_scatter", "direct", "float32", 16384): 60_000,
    ("all_gather", "direct", "float32", 16384): 290_000,
    ("all_to_all", "direct", "float32", 16384): 150_000,
    ("broadcast", "flat", "float32", 16384): 150_000,
}


def work(collective: str, algorithm: str, dtype: str, count: int, calls: int) -> None:
    """Two ranks make `calls` calls."""
    import numpy as np

    import pycollectives as pc
    from pycollectives.extended_dtypes import dtype_of

    def rank(comm: pc.Communicator) -> None:
        x = (np.arange(count) % 97 + comm.rank).astype(dtype_of(dtype))
        call = comm.plan(collective, x, algorithm=algorithm)
        for _ in range(calls):
            call()
        comm.barrier()

    pc.run_threads(2, rank)


def count(case: tuple[str, str, str, int], calls: int) -> int:
    """The instructions that are counted in a run of that many calls."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={found}"]
        command += [f"--toggle-collect=pc::Executor::{name}(*" for name in COUNTED]
        command += [sys.executable, __file__, "--work", json.dumps([*case, calls])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        totals = re.search(r"^(?:summary|totals): (\d+)", found.read_text(), re.MULTILINE)
    if totals is None:
        raise SystemExit("callgrind has counted nothing")
    return int(totals[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(*json.loads(options.work))
    above = 0
    print(f"{'collective':15} {'algorithm':10} {'dtype':9} {'count':>6} {'instructions':>13} {'bar':>7}")
    counted = ThreadPoolExecutor(2).map(partial(count, calls=CALLS), BARS)
    for (case, bar), total in zip(BARS.items(), counted, strict=True):
        each = total / (2 * CALLS)
        if each <= 0:
            raise SystemExit("callgrind has not seen the executor: was it built without its symbols?")
        verdict = "" if each <= bar else "  ABOVE"
        above += each > bar
        print(f"{case[0]:15} {case[1]:10} {case[2]:9} {case[3]:6} {each:13.0f} {bar:7}{verdict}", flush=True)
    if above:
        raise SystemExit(f"{above} cases need more instructions than their bar")


if __name__ == "__main__":
    main()
