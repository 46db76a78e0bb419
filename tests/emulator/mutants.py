"""A test of the tests: takes pieces of synchronisation out of the kernels, one at a time, and looks who notices.

    python tests/emulator/mutants.py [--extension FOLDER] [--races LOG] NAME:PROTOCOL ...

Each mutant runs in a process of its own. Prints a line for each: its name and protocol, and what was noticed: a wrong result, a
hang, a flag released to the own device only, a disagreement that nobody saw, a data race (with --races, under ThreadSanitizer
whose log_path is LOG), a crash. `nothing` is what the tests may not say, but for the mutant `none`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "device"))

import emulated
import numpy as np
import on_device

import pycollectives as pc
from pycollectives import device

# Relays, several peers at once, a rank with a target and one without.
ALGORITHMS = ("ring", "two_shot", "chain")
NATIVE = ("two_shot", "one_shot")
EVERY_WORD = (3 << 32) + 5  # both halves of a number differ from element to element
VERDICTS = ("nothing", "wrong", "hang", "scope", "disagreement", "crash")


def work(comm: Any, calls: int) -> bool:
    """Calls of changing lengths, several on their way at a time: are all results right?"""
    works = []
    for i in range(calls):
        count = (700, 3, 150, 0, 41)[i % 5]
        x = np.arange(count, dtype=np.int64) * ((i + 1) * EVERY_WORD) + comm.rank
        want = np.arange(count, dtype=np.int64) * ((i + 1) * comm.size * EVERY_WORD) + sum(range(comm.size))
        names = NATIVE if comm._device.options.native else ALGORITHMS
        out = x if i % 2 else None
        works.append((comm.all_reduce(x, out=out, algorithm=names[i % len(names)], async_op=True), want))
        if i % 4 == 3:
            works[-1][0].wait()
    return all(np.array_equal(work.wait(), want) for work, want in works)


def work_in_place(comm: Any, calls: int) -> bool:
    """On symmetric arrays, which the switch takes where they are: at one place on all ranks, or at two."""
    stream = emulated.device().make_stream()
    whole = comm.empty(1000, "int64", device="cuda")
    memory = on_device.seen(whole)
    for i in range(calls):
        count, first = (700, 3, 150, 0, 41)[i % 5], 8 * comm.rank if i % 2 else 0
        x = memory[first : first + count]
        x[...] = np.arange(count, dtype=np.int64) * ((i + 1) * EVERY_WORD) + comm.rank
        want = np.arange(count, dtype=np.int64) * ((i + 1) * comm.size * EVERY_WORD) + sum(range(comm.size))
        on = on_device.Part(whole, first, (count,), stream)
        comm.all_reduce(on, out=on, algorithm="two_shot")
        comm._device.drain()
        if not np.array_equal(x, want):
            return False
    return True


def disagree(comm: Any) -> bool:
    """Ranks with other counts: does one of them notice?"""
    try:
        comm.all_reduce(np.ones(64 + 8 * comm.rank, np.int64), algorithm="one_shot")
    except pc.MismatchError:
        return True
    except pc.CollectiveError:
        return False
    return False


def options_for(protocol: str, seed: int) -> device.Options:
    """`protocol`: that of the interpreter, "native", "multicast" (also "in-place"), or "fused": Simple, one grid."""
    shape = {"threads": 32 * (1 + seed % 2), "blocks": 1 + seed % 2}
    if protocol in ("multicast", "in-place"):
        return device.emulated(native=True, multicast=True, **shape)
    if protocol == "fused":
        return device.emulated("simple", fused=True, **shape)
    if protocol == "native":
        return device.emulated(native=True, always_stage=seed % 3 == 0, **shape)
    return device.emulated(protocol, **shape)


def judge(protocol: str, seeds: int, calls: int) -> str:
    """What the tools notice of the mutant in use."""
    module = emulated.device()
    for seed in range(1, seeds + 1):
        options = options_for(protocol, seed)
        before = module.statistics()[1]
        try:
            right = emulated.run(
                2 + seed % 2,
                work_in_place if protocol == "in-place" else work,
                calls,
                options=options,
                seed=seed,
                patience=60_000,
                spread=options.multicast,
            )
        except pc.DeviceError:
            return "hang"
        except pc.CollectiveError:  # a false alarm of a disagreement
            return "wrong"
        if not all(right):
            return "wrong"
        if module.statistics()[1] != before:
            return "scope"
    try:
        options = options_for(protocol, 1)
        seen = emulated.run(2, disagree, options=options, seed=1, patience=60_000, spread=options.multicast)
    except pc.CollectiveError:
        return "disagreement"
    return "nothing" if any(seen) else "disagreement"


def verdict(name: str, protocol: str, races: str | None, seeds: int, calls: int) -> str:
    """`judge` in a process of its own."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        emulated.device().set_mutant(emulated.mutants().index(name))
        os._exit(VERDICTS.index(judge(protocol, seeds, calls)))
    _, status = os.waitpid(child, 0)
    found = "crash"
    if os.WIFEXITED(status):
        found = VERDICTS[os.WEXITSTATUS(status)] if os.WEXITSTATUS(status) < len(VERDICTS) else "crash"
    if races is not None and Path(f"{races}.{child}").exists():
        return "race"
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--extension", help="folder of another build of the emulated device")
    parser.add_argument("--races", help="log_path of ThreadSanitizer")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=23)
    parser.add_argument("names", nargs="+")
    wish = parser.parse_args()
    if wish.extension:
        pc.__path__.insert(0, wish.extension)
    for name in wish.names:
        print(name, verdict(*name.split(":"), wish.races, wish.seeds, wish.calls), flush=True)


if __name__ == "__main__":
    main()
