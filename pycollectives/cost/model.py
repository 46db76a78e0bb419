"""The alpha-beta-gamma model on schedules.

    time = crowd x (call + steps x alpha + messages x message)
         + nbytes x ((received + copied / 2) x beta + reduced x gamma) x stretch

`crowd`: ranks per core, 1 at least; where it is more, `enter` and `turn` stand for `call` and `alpha`. All counts are those of
the busiest rank, read off the schedule, so it holds for a user's algorithm too. `stretch` is
what the busiest rank alone does not tell:

    span     ranks wait for each other's data: of S slices in flight the first goes the whole path, 1 + (path - 1) / S
    work     ranks that share cores take turns: all ranks' bytes over the cores

and the longer of the two counts (Brent's bound; R. P. Brent, "The parallel evaluation of general arithmetic
expressions", J. ACM 21, 1974). beta is that of the caches while the data of all ranks fit into them, that of memory
beyond.

Where the ranks are on several hosts (crossing.py)

    rounds x network_alpha + max(network messages, those of a host / cores) x network_message
    + nbytes x busiest x network_beta x (1 + shared x network_incast)

comes on top; where they are bound to several domains of one host (topology/domains.py) the same with `cross_*`, which say how much
more it takes from one domain to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from ..schedule import Algorithm
from .crossing import Hosts, crossing
from .footprint import Footprint, footprint
from .partial import partial_bytes

# Kinds of elements by how they are reduced: how many bytes of a partial sum travel for one byte of data.
WIDENING = {"bytes": 1, "float": 1, "integer": 1, "half": 2, "quarter": 4}
_ARRAYS = 3  # of the vector's size that a call touches: input, output, messages


@dataclass(frozen=True)
class Machine:
    """Parameters of one host: seconds per call, step, message, byte moved and byte reduced.

    `call`, `alpha`: per call and per round of messages where every rank has a core; `enter`, `turn`: the same, for each of
    the ranks that take turns on a core. `beta`, `beta_memory`, `beta_symmetric`: per byte received in messages while the data
    fit into `cache` bytes, beyond them, and where it is read in place (arrays of `comm.empty`). `gamma*`: per byte of
    data reduced: of 32- and 64-bit floats and complex numbers, integers, 16-bit floats, 8-bit floats.
    `cores`: that the ranks of a host share; `segment`: bytes of one message when data is cut up. `network_alpha`,
    `network_message`, `network_beta`: per round of messages between hosts, per message that the busiest rank sends or
    receives there, and per byte that leaves or enters the busiest host. Their defaults are those of TCP on 10 Gbit/s. `cross_*`:
    the same between domains of a host, on top of what it takes inside one.
    `network_incast`: how much longer the bytes take for each further host that sends to one at the same time, as a part of one;
    its default is what two_shot on four hosts takes more than halving_doubling (bench/NOTES.md).
    """

    call: float = 0.2e-6
    enter: float = 0.5e-6
    alpha: float = 0.4e-6
    turn: float = 2e-6
    message: float = 0.1e-6
    beta: float = 1 / 16e9
    beta_memory: float = 1 / 8e9
    beta_symmetric: float = 1 / 20e9
    gamma: float = 1 / 150e9
    gamma_integer: float = 1 / 150e9
    gamma_half: float = 1 / 80e9
    gamma_quarter: float = 1 / 3e9
    cache: int = 32 << 20
    cores: int = 1
    segment: int = 128 << 10
    network_alpha: float = 30e-6
    network_message: float = 3e-6
    network_beta: float = 1 / 1.25e9
    network_incast: float = 0.02
    cross_alpha: float = 0.6e-6
    cross_message: float = 0.2e-6
    cross_beta: float = 1 / 16e9

    def measured(self, parameters: Mapping[str, float]) -> Machine:
        """With these parameters in place of its own."""
        known: dict[str, Any] = dict(parameters)
        return replace(self, **known)

    def reducing(self, kind: str) -> float:
        """Seconds per byte of data reduced of a kind of elements."""
        rates = {"integer": self.gamma_integer, "half": self.gamma_half, "quarter": self.gamma_quarter}
        return rates.get(kind, self.gamma)

    def between(self, *, hosts: bool) -> tuple[float, float, float]:
        """What a round of messages, a message and a byte take between hosts, or between domains of one host."""
        if hosts:
            return self.network_alpha, self.network_message, self.network_beta
        return self.cross_alpha, self.cross_message, self.cross_beta

    def moving(self, nbytes: float) -> float:
        """Seconds per byte received while `nbytes` are in use."""
        cached = min(1.0, self.cache / max(nbytes, 1.0))
        return cached * self.beta + (1 - cached) * self.beta_memory


def stretch(cost: Footprint, size: int, nbytes: int, machine: Machine) -> float:
    """How much longer the bytes take than those of the busiest rank: by waiting for others, or by sharing cores."""
    if not cost.received:
        return size / min(size, machine.cores)
    slices = max(1, ceil(float(cost.largest) * nbytes / machine.segment))
    span = 1 + max(0.0, float(cost.path / cost.received) - 1) / slices
    work = float(cost.total / cost.received) / min(size, machine.cores)
    return max(span, work)


def predict(
    algorithm: Algorithm,
    size: int,
    nbytes: int,
    machine: Machine,
    root: int = 0,
    kind: str = "float",
    hosts: Hosts = (),
    domains: Hosts = (),
) -> float:
    """Seconds for `nbytes` of data (the whole vector) of a `kind` of elements (a key of WIDENING).

    `hosts`: that of every rank, if there are several; what the network takes comes on top of what one host would take, with
    the cores of all. `domains`: the same for the parts of one host.
    """
    if places := hosts or domains:
        between = crossing(algorithm, size, places, root)
        alpha, message, beta = machine.between(hosts=bool(hosts))
        if hosts:
            beta *= 1 + between.shared * machine.network_incast
        cores = machine.cores if hosts else machine.cores / len(set(domains))  # of each
        seconds = between.rounds * alpha + max(between.messages, between.crowded / cores) * message
        seconds += nbytes * float(between.busiest) * WIDENING[kind] * beta
        together = replace(machine, cores=machine.cores * len(set(hosts) or {0}))
        return seconds + predict(algorithm, size, nbytes, together, root, kind)
    cost = footprint(algorithm, size, root)
    crowd = max(1.0, size / machine.cores)
    first, each = machine.call, machine.alpha
    if crowd > 1:
        first, each = crowd * machine.enter, crowd * machine.turn
    received = float(cost.received)
    if (extra := WIDENING[kind] - 1) and cost.reduced:
        received += extra * float(partial_bytes(algorithm, size, root))
    copied = float(cost.copied) / 2  # a byte that is received was written and read
    moved = (received + copied) * machine.moving(_ARRAYS * size * nbytes)
    reduced = float(cost.reduced) * machine.reducing(kind)
    data = nbytes * (moved + reduced) * stretch(cost, size, nbytes, machine)
    return first + cost.steps * each + crowd * cost.messages * machine.message + data
