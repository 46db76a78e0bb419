"""A test of the tests: takes pieces of synchronisation out of the kernels, one at a time, and looks who notices.

    python tests/emulator/mutants.py [--extension FOLDER] [--races LOG] NAME:PROTOCOL ...

Each mutant runs in a process of its own. Prints a line for each: its name and protocol, and what was noticed: a wrong result, a
hang, a flag released to the own device only, a disagreement that nobody saw, a data race (with --races, under ThreadSanitizer
whose log_path is LOG), a crash. `nothing` is what the tests may not say, but for the mutant `none`; nor `late`: it did not end in
time, so nobody knows; nor `error`: the test itself has failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from dataclasses import replace
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
NATIVE = (
    *(("all_reduce", "two_shot"), ("reduce_scatter", "direct"), ("all_reduce", "one_shot")),
    *(("all_gather", "direct"), ("broadcast", "flat")),
)
VERBS = {"native": NATIVE, "multicast": NATIVE, "ring": (("all_reduce", "ring"),)}
COUNTS = (700, 3, 150, 0, 41)
EVERY_WORD = (3 << 32) + 5  # both halves of a number differ from element to element
VERDICTS = ("nothing", "wrong", "hang", "scope", "disagreement", "crash", "late", "error")
PATIENCE = 60  # seconds, of one mutant


def work(comm: Any, calls: int, protocol: str) -> bool:
    """Calls of changing lengths, several on their way at a time: are all results right?"""
    made = VERBS.get(protocol, tuple(("all_reduce", name) for name in ALGORITHMS))
    dtype, step = (np.float32, 1) if protocol == "ring" else (np.int64, EVERY_WORD)
    works = []
    for i in range(calls):
        count, (verb, algorithm) = COUNTS[(i + i // 5) % 5], made[i % len(made)]
        length = count * comm.size if verb == "reduce_scatter" else count
        xs = [np.arange(length, dtype=dtype) * ((i + 1) * step) + r for r in range(comm.size)]
        x, root = xs[comm.rank], i % comm.size
        total = sum(xs[1:], xs[0])
        block = slice(comm.rank * count, comm.rank * count + count)
        want = {
            "all_reduce": total,
            "reduce_scatter": total[block],
            "all_gather": np.stack(xs),
            "broadcast": xs[root].copy(),
        }[verb]
        options: dict[str, Any] = {"root": root} if verb == "broadcast" else {}
        if i % 2 and verb in ("all_reduce", "broadcast"):
            options["out"] = x
        works.append((getattr(comm, verb)(x, algorithm=algorithm, async_op=True, **options), want))
        if i % 4 == 3:
            works[-1][0].wait()
    return all(np.array_equal(work.wait(), want) for work, want in works)


def work_in_place(comm: Any, calls: int) -> bool:
    """On symmetric arrays, which the switch takes where they are: at one place on all ranks, or at two."""
    stream = emulated.device().make_stream()
    whole = comm.empty(1000, "int64", device="cuda")
    memory = on_device.seen(whole)
    right = True
    for i in range(calls):
        count, first = COUNTS[i % 5], 8 * comm.rank if i % 2 else 0
        x = memory[first : first + count]
        x[...] = np.arange(count, dtype=np.int64) * ((i + 1) * EVERY_WORD) + comm.rank
        want = np.arange(count, dtype=np.int64) * ((i + 1) * comm.size * EVERY_WORD) + sum(range(comm.size))
        on = on_device.Part(whole, first, (count,), stream)
        comm.all_reduce(on, out=on, algorithm="two_shot")
        comm._device.drain()
        right &= np.array_equal(x, want)  # and on: the others would wait
    return right


def disagree(comm: Any, algorithm: str) -> bool:
    """One rank has another count: does somebody notice, and end those who see nothing of it? (else DeviceError)"""
    try:
        comm.all_reduce(np.ones(72 if comm.rank == 1 else 64, np.float32), algorithm=algorithm)
    except pc.MismatchError:
        return True
    except pc.DeviceError:
        raise
    except pc.CollectiveError:
        return False
    return False


def options_for(protocol: str, seed: int) -> device.Options:
    """`protocol`: that of the interpreter, "native", "multicast" (also "in-place"), "ring" (by hand), or "fused" (Simple)."""
    shape = {"threads": 32 * (1 + seed % 2), "blocks": 1 + seed % 2}
    if protocol in ("multicast", "in-place"):
        return device.emulated(native=True, multicast=True, **shape)
    if protocol == "fused":
        return device.emulated("simple", fused=True, **shape)
    if protocol == "ring":
        return replace(device.emulated("simple", **shape), hand_ring=True)
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
                *((work_in_place, calls) if protocol == "in-place" else (work, calls, protocol)),
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
        options, algorithm = (
            options_for(protocol, 1),
            "one_shot" if options_for(protocol, 1).native else "ring",
        )
        seen = emulated.run(
            3, disagree, algorithm, options=options, seed=1, patience=60_000, spread=options.multicast
        )
    except pc.DeviceError:
        return "hang"
    except pc.CollectiveError:
        return "disagreement"
    return "nothing" if any(seen) else "disagreement"


def start(name: str, protocol: str, seeds: int, calls: int) -> int:
    """`judge` in a process of its own."""
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        found = "error"
        try:
            emulated.device().set_mutant(emulated.mutants().index(name))
            found = judge(protocol, seeds, calls)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(VERDICTS.index(found))
    return child


def verdict(child: int, status: int, races: str | None) -> str:
    """What a process has found that has ended."""
    if races is not None and Path(f"{races}.{child}").exists():
        return "race"
    if os.WIFEXITED(status):
        return VERDICTS[os.WEXITSTATUS(status)] if os.WEXITSTATUS(status) < len(VERDICTS) else "crash"
    return "late" if os.WTERMSIG(status) == signal.SIGALRM else "crash"


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
    waiting, running, found = list(wish.names), {}, {}
    while waiting or running:
        while waiting and len(running) < len(os.sched_getaffinity(0)):
            name = waiting.pop(0)
            running[start(*name.split(":"), wish.seeds, wish.calls)] = name
        child, status = os.wait()
        found[running.pop(child)] = verdict(child, status, wish.races)
    for name in wish.names:
        print(name, found[name])


if __name__ == "__main__":
    main()
