"""The parameters of the network between hosts in the cost model, by short measurements on the ranks of a communicator.

    network_alpha, network_message   8 bytes by several algorithms: time over rounds and messages between hosts
    network_beta                     large vectors: time over the bytes of the busiest host

What the same calls take inside hosts, by the model, is taken off before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..bench.cases import cases
from ..cost import Machine, predict
from ..cost.crossing import crossing
from ..schedule import find, names
from .arena import Arena
from .calibration import Calibration, least_squares, undisturbed

if TYPE_CHECKING:
    from ..communicator import Communicator

_FLOAT = np.dtype(np.float32)
_SHORT = ("all_reduce", "broadcast", "barrier")  # nobody sends a record to all ranks first, as in all_gather
_LARGE = (("broadcast", "leaders"), ("all_reduce", "leaders"), ("all_reduce", "ring"))
_FIRST = 256 << 10  # bytes; more where that takes no time
_MOST = 16 << 20
_LONG = 20e-3  # seconds of a call that are enough to tell the rate


def calibrate_network(comm: Communicator, seconds: float) -> Calibration:
    """Collective over ranks on several hosts; every rank returns the same. `seconds`: about, for each of some ten
    measurements."""
    machine = comm.settings.tuning.machine
    found = _latency(comm, machine, seconds)
    return Calibration(found | _rate(comm, machine.measured(found), seconds), ())


def _latency(comm: Communicator, machine: Machine, seconds: float) -> dict[str, float]:
    """Rounds and messages in units of their defaults, so that where they cannot be told apart, as with one rank on each of
    two hosts, the least solution keeps the defaults' ratio."""
    units = np.array([Machine.network_alpha, Machine.network_message])
    features, times = [], []
    for verb in _SHORT:
        case = cases([verb], ["auto"], [_FLOAT], "sum", [8], comm.size)[0]
        able = [name for name in names(verb) if not find(verb, name).on(comm.hosts).obstacle(comm.size)]
        arena = Arena(comm, case, able)
        for name, spent in undisturbed(arena, seconds, 5).items():
            one = find(verb, name).on(comm.hosts)
            between = crossing(one, comm.size, comm.hosts)
            inside = min(predict(one, comm.size, case.nbytes, _gathered(comm, machine)), spent / 2)
            messages = max(between.messages, between.crowded / machine.cores)
            features.append([between.rounds * units[0], messages * units[1]])
            times.append(spent - inside)
    weighted = np.array(features) / np.array(times)[:, None]
    factors = np.linalg.lstsq(weighted, np.ones(len(times)), rcond=1e-3)[0]
    if (factors <= 0).any():
        factors = np.array(least_squares(features, times))
    alpha, message = (float(each) for each in factors * units)
    return {"network_alpha": alpha, "network_message": message}


def _rate(comm: Communicator, machine: Machine, seconds: float) -> dict[str, float]:
    """Seconds per byte that leaves or enters the busiest host; the median of some algorithms."""
    rates = []
    for verb, name in _LARGE:
        one, nbytes = find(verb, name).on(comm.hosts), _FIRST
        between = crossing(one, comm.size, comm.hosts)
        while True:
            case = cases([verb], ["auto"], [_FLOAT], "sum", [nbytes], comm.size)[0]
            spent = undisturbed(Arena(comm, case, [name]), seconds, 3)[name]
            if spent > _LONG or nbytes >= _MOST:
                break
            nbytes *= 8
        messages = max(between.messages, between.crowded / machine.cores)
        latency = between.rounds * machine.network_alpha + messages * machine.network_message
        known = latency + predict(one, comm.size, nbytes, _gathered(comm, machine))
        moved = float(between.busiest) * nbytes
        rates.append((spent - min(known, spent / 2)) / moved)
    return {"network_beta": float(np.median(rates))}


def _gathered(comm: Communicator, machine: Machine) -> Machine:
    """One host with the cores of all."""
    return machine.measured({"cores": machine.cores * len(set(comm.hosts))})
