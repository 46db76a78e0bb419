"""The machine's parameters in the cost model, by short measurements on the ranks of a communicator.

    call, alpha       8 bytes by several algorithms: time over steps (and messages, at a quarter of a step each)
    enter, turn       the same where ranks take turns: more ranks than cores, or two ranks bound to one core
    beta              collectives that only move data, half of the caches full: time over received bytes
    beta_memory       the same, four times what the caches hold
    beta_symmetric    the same as beta, in arrays of `comm.empty`
    gamma_*           a kernel on every core at once: time per byte over that of a copy

Ranks are not pinned, and a virtual machine may move its cores meanwhile: what is near can be far later. `flag_ns` keeps
what was seen.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..bench.cases import cases
from ..bench.distance import Distance
from ..cost import Machine, footprint, stretch
from ..extended_dtypes import dtype_of
from ..schedule import find, names
from .arena import Arena

if TYPE_CHECKING:
    from ..communicator import Communicator

_FLOAT = np.dtype(np.float32)
_SHAPES = (
    "all_reduce",
    "all_gather",
    "broadcast",
    "all_to_all",
)  # collectives that differ in steps and messages
_MOVES = (("all_gather", "direct"), ("broadcast", "binomial"), ("all_to_all", "direct"))
_DTYPES = {
    "gamma": "float32",
    "gamma_integer": "int32",
    "gamma_half": "bfloat16",
    "gamma_quarter": "float8_e4m3fn",
}
_REDUCED = 256 << 10  # bytes per operand: in the second level of the caches
_LONGEST = 64 << 20  # bytes of a vector at most
SHARED = 1000.0  # nanoseconds of a flag's way: the two ranks took turns on one core
_LEAST = 1e-12  # seconds; no parameter is 0
_PER_MESSAGE = 0.25  # of a step: what one message costs its receiver beside the round that it belongs to


@dataclass(frozen=True)
class Calibration:
    """`parameters`: by name in Machine, seconds; `flag_ns`: one-way times of a flag between ranks 0 and 1."""

    parameters: dict[str, float]
    flag_ns: tuple[float, ...]


def calibrate(comm: Communicator, distance: Distance, seconds: float) -> Calibration:
    """Collective: measure the parameters that these ranks can tell; every rank returns the same.

    `seconds`: about as long for each of some ten measurements. With one rank only the kernels are measured.
    """
    machine = comm.settings.tuning.machine
    found = _kernels(comm, seconds)
    flags = [distance.measure()]
    if comm.size > 1:
        timed = {}
        if comm.size <= machine.cores:
            timed = _latency(comm, machine, ("call", "alpha"), seconds)
            timed["message"] = _PER_MESSAGE * timed["alpha"]
            found |= _taking_turns(comm, machine, seconds)
        else:
            found |= _latency(comm, machine, ("enter", "turn"), seconds)
        flags.append(distance.measure())
        timed |= _bandwidth(comm, machine.measured(found | timed), seconds)
        flags.append(distance.measure())
    seen: list[float] = comm.broadcast_object(sorted(flag for flag in flags if flag is not None))
    if comm.size > 1 and (comm.size > machine.cores or seen[0] < SHARED):
        found |= timed  # else the ranks shared a core all the time
    return Calibration(found, tuple(seen))


def least_squares(features: Sequence[Sequence[float]], times: Sequence[float]) -> list[float]:
    """The parameters >= 0 with the least sum of squared relative errors of features x parameters = times.

    Few parameters: every subset of them is tried, the others being 0, so the optimum is found.
    """
    weighted = np.array(features, float) / np.array(times)[:, None]
    n = weighted.shape[1]
    best, least = np.zeros(n), np.inf
    for subset in range(1, 1 << n):
        use = [i for i in range(n) if subset >> i & 1]
        solved = np.linalg.lstsq(weighted[:, use], np.ones(len(times)), rcond=None)[0]
        if (solved < 0).any():
            continue
        found = np.zeros(n)
        found[use] = solved
        error = float(np.sum((weighted @ found - 1) ** 2))
        if error < least - 1e-12:
            best, least = found, error
    return [max(float(each), _LEAST) for each in best]


def undisturbed(arena: Arena, seconds: float, least: int) -> dict[str, float]:
    """Seconds of one call by each algorithm, in rounds in turn. What else runs on the machine only makes calls
    longer, so nearly the shortest counts."""
    names = arena.names
    once = float(arena.heat(names, 2, 3).times.min(axis=1).sum())
    calls = int(np.clip(300e-6 * len(names) / once, 3, 16))
    rounds = int(np.clip(seconds / (once * calls * 2), least, 40))
    times = np.quantile(arena.heat(names, rounds + 1, calls).quiet(), 0.1, axis=1)
    return dict(zip(names, map(float, times), strict=True))


def _latency(comm: Communicator, machine: Machine, into: tuple[str, str], seconds: float) -> dict[str, float]:
    """The time of a call and of a step, from 8 bytes (per block) by all algorithms of some collectives."""
    features, times = [], []
    crowd = max(1.0, comm.size / machine.cores)
    for verb in _SHAPES:
        case = cases([verb], ["auto"], [_FLOAT], "sum", [8], comm.size)[0]
        usable = [each for each in names(verb) if not find(verb, each).obstacle(comm.size)]
        arena = Arena(comm, case, usable)
        for name, spent in undisturbed(arena, seconds / len(_SHAPES), 12).items():
            cost = footprint(find(verb, name), comm.size)
            if crowd > 1:  # messages at what they cost without a crowd
                messages = crowd * cost.messages * machine.message
                features.append([crowd, crowd * cost.steps])
                spent = max(spent - messages, spent / 2)
            else:
                features.append([1.0, cost.steps + _PER_MESSAGE * cost.messages])
            times.append(spent)
    return dict(zip(into, least_squares(features, times), strict=True))


def _taking_turns(comm: Communicator, machine: Machine, seconds: float) -> dict[str, float]:
    """What a step costs where ranks 0 and 1 are bound to one core for the time of the measurement."""
    everyone = comm.all_gather_object(sorted(os.sched_getaffinity(0)))
    shared = sorted(set(everyone[0]) & set(everyone[1]))
    if not shared:
        return {}
    found: dict[str, float] = {}
    mine = os.sched_getaffinity(0)
    if comm.rank < 2:
        os.sched_setaffinity(0, {shared[0]})
    try:
        pair = comm.split(0 if comm.rank < 2 else None)
        if pair is not None:
            with pair:
                found = _latency(pair, replace(machine, cores=1), ("enter", "turn"), seconds)
    finally:
        os.sched_setaffinity(0, mine)
    told: dict[str, float] = comm.broadcast_object(found)
    return told


def _bandwidth(comm: Communicator, machine: Machine, seconds: float) -> dict[str, float]:
    """Seconds per byte received: in the caches, beyond them, in place."""
    cached = int(min(machine.cache / (8 * comm.size), 1 << 20))
    beyond = int(min(4 * machine.cache / (3 * comm.size), _LONGEST))
    return {
        "beta": _per_byte(comm, machine, cached, seconds),
        "beta_memory": _per_byte(comm, machine, beyond, seconds),
        "beta_symmetric": _per_byte(comm, machine, cached, seconds, symmetric=True),
    }


def _per_byte(
    comm: Communicator, machine: Machine, nbytes: int, seconds: float, *, symmetric: bool = False
) -> float:
    crowd = comm.size / machine.cores
    call, step = machine.call, machine.alpha
    if crowd > 1:
        call, step = crowd * machine.enter, crowd * machine.turn
    rates = []
    for verb, name in _MOVES:
        case = cases([verb], ["auto"], [_FLOAT], "sum", [nbytes], comm.size)[0]
        arena = Arena(comm, case, [name], symmetric=symmetric)
        cost = footprint(find(verb, name), comm.size)
        spent = undisturbed(arena, seconds / len(_MOVES), 4)[name]
        latency = min(call + cost.steps * step, spent / 2)
        moved = (
            (float(cost.received) + float(cost.copied) / 2)
            * case.nbytes
            * stretch(cost, comm.size, case.nbytes, machine)
        )
        rates.append((spent - latency) / moved)
    return max(float(np.median(rates)), _LEAST)


def _kernels(comm: Communicator, seconds: float) -> dict[str, float]:
    """Seconds per byte of data that a reduction takes longer than a copy; all ranks at once, the slowest counts."""
    comm.barrier()
    times = [_kernel(dtype_of(dtype), seconds / 16) for dtype in _DTYPES.values()]
    slowest = comm.all_reduce(np.array(times), "max")
    return dict(zip(_DTYPES, map(float, slowest), strict=True))


def _kernel(dtype: np.dtype[Any], seconds: float) -> float:
    count = _REDUCED // dtype.itemsize
    a, b, target = (np.ones(count, dtype).view(np.uint8) for _ in range(3))
    number, op = _core.DTYPES.index(dtype.name), _core.OPS.index("sum")

    def reduce() -> None:
        _core.reduce(number, op, [a, b], [target], [False, False], [False], count, 0, 1.0)

    def copy() -> None:
        np.copyto(target, a)

    took = []
    for job in (reduce, copy):
        best, until = float("inf"), perf_counter() + seconds
        while perf_counter() < until or best == float("inf"):
            begin = perf_counter()
            job()
            best = min(best, perf_counter() - begin)
        took.append(best / _REDUCED)
    return max(took[0] - took[1], 0.1 * took[0])
