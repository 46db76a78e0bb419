"""All-reduce between hosts on shaped networks: pycollectives beside the MPI libraries.

    run.py CASE... [--libraries PYTHON:PYTHON:...] [--tune] [--turns N] [--with NAME=VALUE,...]... [--json FILE]

Hosts are network namespaces of this machine (tests/cluster/hosts.py; needs root). Each library is an interpreter whose
environment has mpi4py and that library. In one job pycollectives and the library take turns; the jobs of all libraries
follow each other on the same hosts. With --tune each library's job comes after `pycollectives tune` on those hosts. With
--turns all jobs are run again; with --with (variables of the environment) each has another one beside it with these.

    slow100, slow1000   4 hosts, 100 Mbit/s and 1 Gbit/s, large data: the bound is 2 (H-1)/H bytes / goodput
    far                 4 hosts, 1 ms of delay, small data: round trips
    hierarchy           2 hosts of 2 ranks, 1 Gbit/s
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "cluster"))

from hosts import Cluster, Library

CASES: dict[str, dict[str, Any]] = {
    "slow100": {
        "shape": {"mbit": 100}, "ranks": [1, 1, 1, 1], "pair": 2 << 20, "sizes": [4 << 20], "rounds": 5,
        "algorithms": ["auto", "ring", "halving_doubling"],
    },
    "slow1000": {
        "shape": {"mbit": 1000}, "ranks": [1, 1, 1, 1], "pair": 16 << 20, "sizes": [1 << 20, 16 << 20], "rounds": 8,
        "algorithms": ["auto", "ring", "halving_doubling"],
    },
    "far": {
        "shape": {"delay_us": 1000}, "ranks": [1, 1, 1, 1], "pair": 1 << 20, "sizes": [8, 1024, 16384], "rounds": 60,
        "algorithms": ["auto", "one_shot", "recursive_doubling"],
    },
    "hierarchy": {
        "shape": {"mbit": 1000}, "ranks": [2, 2], "pair": 16 << 20, "sizes": [8, 65536, 16 << 20], "rounds": 40,
        "algorithms": ["auto", "hierarchical", "hierarchical_one_shot", "leaders", "ring"],
    },
}  # fmt: skip


def run(
    name: str, libraries: list[Library], seconds: float, tune: bool, turns: int, variants: list[str]
) -> list[dict[str, Any]]:
    """One case with all libraries, in all variants."""
    case = CASES[name]
    asked = {key: case[key] for key in ("pair", "sizes", "rounds", "algorithms")} | {"seconds": seconds}
    script = Path(__file__).with_name("measure.py")
    found = []
    with Cluster(len(case["ranks"]), **case["shape"]) as cluster:
        for turn, library, (which, variant) in product(range(turns), libraries, enumerate(["", *variants])):
            env = {"I_MPI_PIN": "0"}  # no rank is bound to a core: the switch needs one, too
            env |= dict(each.split("=", 1) for each in variant.split(",") if each)
            if tune:
                env["PYCOLLECTIVES_TUNING"] = str(cluster.folder / f"{library.name}.{which}.json")
            if tune and turn == 0:
                command = "-m", "pycollectives", "tune", "--quick"
                print(cluster.run(library, case["ranks"], library.python, *command, env=env).check())
            done = cluster.run(
                *(library, case["ranks"], library.python, script, json.dumps(asked)),
                env=env,
                limit=60 + 10 * seconds * len(case["sizes"]),
            )
            line = next(line for line in done.check().splitlines() if line.startswith("{"))
            report = json.loads(line)
            report["library"] = " ".join([report["library"], variant]).strip()
            found.append({"case": name, "turn": turn, **report})
    return found


def show(reports: list[dict[str, Any]]) -> None:
    """Medians, and what the goals ask for."""
    name, hosts = reports[0]["case"], len(set(reports[0]["hosts"]))
    print(f"\n{name}, {time.strftime('%FT%T')}: {CASES[name]['shape']}, ranks on hosts {reports[0]['hosts']}")
    for report in reports:
        rate, trip = 8e-6 / report["goodput"], report["round_trip"] * 1e3
        print(f"  {report['library']}: pair {rate:.0f} Mbit/s, round trip {trip:.2f} ms")
    for i, nbytes in enumerate(CASES[name]["sizes"]):
        rows = [report["rows"][i] for report in reports]
        best = min(statistics.median(row["times"]["MPI"]) for row in rows)
        print(f"  {nbytes} bytes; the fastest MPI takes {best * 1e3:.3f} ms")
        for report, row in zip(reports, rows, strict=True):
            bound = 2 * (hosts - 1) / hosts * nbytes * report["goodput"]
            for who, times in row["times"].items():
                median = statistics.median(times)
                label = f"{who} ({row['auto']})" if who == "auto" else who
                print(
                    f"    {report['library']:10} {label:28} {median * 1e3:9.3f} ms  {min(times) * 1e3:9.3f} best"
                    f"  {median / best:5.2f} x the fastest MPI  {bound / median:5.2f} of the bound  n={len(times)}",
                    flush=True,
                )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="+", choices=list(CASES))
    parser.add_argument("--libraries", default=sys.executable, help="interpreters, separated by colons")
    parser.add_argument("--seconds", type=float, default=5.0, help="per size and library, at most")
    parser.add_argument("--tune", action="store_true", help="measure the network before, for the choices")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--with", action="append", default=[], dest="variants", metavar="NAME=VALUE,...")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    libraries = [Library(Path(each)) for each in asked.libraries.split(":")]
    everything = []
    for name in asked.cases:
        reports = run(name, libraries, asked.seconds, asked.tune, asked.turns, asked.variants)
        for turn in range(asked.turns):
            show([each for each in reports if each["turn"] == turn])
        everything += reports
        if asked.json:
            asked.json.write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
