"""Settings of a communicator: decided by rank 0 when it is made, the same on all ranks."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import asdict, dataclass, field

from .cost import Machine, hardware
from .dispatch import Series, Table, Tuning, environment, tuning_file
from .errors import InvalidArgumentError

MIB = 1 << 20
NETWORK_NAP_US = 50
SEGMENT_SECONDS = 1.3e-3  # that a segment may take on a slow network between hosts
MOST_TURNS = 1 << 30  # counted in 32 bits
AWARE = ("automatic", "yes", "no")
STORES = ("automatic", "plain", "stream")  # as in csrc/shm/store_path.hpp
PREFIX = "PYCOLLECTIVES_"
VARIABLES = (  # all that begin with it, see docs/settings.md
    *("ALGORITHM", "TUNING", "BOOTSTRAP_TIMEOUT", "WARN_SECONDS", "REPORT", "PLACEMENT", "DOMAINS"),
    "LIFELINE_SECONDS",
    *(
        "FUSION_BYTES",
        "POOL_BYTES",
        "SEGMENT_BYTES",
        "RING_BYTES",
        "STREAM_OUTPUT_BYTES",
        "SINGLE_COPY_BYTES",
        "STORES",
        "SPINS",
        "YIELDS",
    ),
    *("SIMD", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "FD", "FD_INODE", "TERMINAL"),
    *("CUDA_AWARE_MPI", "STAGE_BYTES", "CUDA", "CUDA_ARCHS", "EMULATOR", "SANITIZE", "WARNINGS"),
)


@dataclass(frozen=True)
class Settings:
    """`pool_bytes`: memory for messages in flight, per rank. `segment_bytes`: the size of one message when data is cut up.
    `ring_bytes`: over which messages are spread, from call to call. `stream_output_bytes`: outputs from here on are written past
    the caches. `stores`: how messages are written, one of STORES. `algorithms`: the choices of the environment variable
    PYCOLLECTIVES_ALGORITHM. `fusion_bytes`: the largest array that a group packs with others. `hosts`: the host of every
    rank, empty where all are on one; `domains`: the part of their one host that each rank is bound to (topology/domains.py).
    `single_copy_bytes`: messages from here on are read where they lie in the sender's memory, if that has been faster in the
    last calls; 0: never. `cache_bytes`: a rank's part of a core's own cache. `stage_bytes`: of a piece of device memory on its
    way to other hosts. `cuda_aware_mpi`: may MPI be given device pointers? One of AWARE.
    `crowded`: ranks share cores."""

    pool_bytes: int
    segment_bytes: int
    tuning: Tuning
    ring_bytes: int = 2 * MIB
    stream_output_bytes: int = 8 * MIB
    stores: str = "automatic"
    algorithms: dict[str, str] = field(default_factory=dict)
    fusion_bytes: int = 64 * 1024
    hosts: tuple[int, ...] = ()
    domains: tuple[int, ...] = ()
    stage_bytes: int = 4 * MIB
    cuda_aware_mpi: str = "automatic"
    single_copy_bytes: int = 128 * 1024
    cache_bytes: int = MIB
    crowded: bool = False

    @property
    def longest_message(self) -> int:
        """No message between hosts is longer."""
        return max(2 * self.segment_bytes, MIB)

    def encode(self) -> bytes:
        tuning = {
            "machine": asdict(self.tuning.machine),
            "series": [series.encode() for series in self.tuning.table.series.values()],
            "origin": self.tuning.origin,
        }
        plain = {name: value for name, value in vars(self).items() if name != "tuning"}
        return json.dumps({**plain, "tuning": tuning}).encode()

    @staticmethod
    def decode(data: bytes) -> Settings:
        fields = json.loads(data)
        told = fields.pop("tuning")
        fields["hosts"], fields["domains"] = tuple(fields["hosts"]), tuple(fields["domains"])
        table = Table.of(Series.decode(each) for each in told["series"])
        return Settings(tuning=Tuning(Machine(**told["machine"]), table, told["origin"]), **fields)


def own_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def number(variable: str, default: int, least: int, most: int = 1 << 62) -> int:
    """An integer setting of the environment. Raises InvalidArgumentError if it is none, or not from `least` to `most`."""
    text = os.environ.get(variable)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise InvalidArgumentError(f"{variable}={text!r} is not a whole number") from None
    if not least <= value <= most:
        raise InvalidArgumentError(f"{variable}={text!r} must be from {least} to {most}")
    return value


def refuse_misspelt() -> None:
    """Raises InvalidArgumentError for a variable that is nearly one of ours: it would be ignored in silence."""
    for variable in os.environ:
        word = variable.removeprefix(PREFIX)
        if word == variable or word in VARIABLES:
            continue
        near = [known for known in VARIABLES if len(word) > 2 and known.startswith(word)]
        near = near or difflib.get_close_matches(word, VARIABLES, 1, 0.8)
        if near:
            raise InvalidArgumentError(f"{variable} is no setting; did you mean {PREFIX}{near[0]}?")


def warn_seconds() -> float:
    """After how many seconds a wait is logged as a warning that says who is awaited; 0: never."""
    text = os.environ.get("PYCOLLECTIVES_WARN_SECONDS", "10")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise InvalidArgumentError(f"PYCOLLECTIVES_WARN_SECONDS={text!r} is not a number of seconds")
    return seconds


def decide(
    size: int,
    *,
    nested: bool,
    hosts: tuple[int, ...] = (),
    domains: tuple[int, ...] = (),
    cores: int | None = None,
) -> Settings:
    """This rank's wish; rank 0's counts. Raises InvalidArgumentError for a misspelt variable or a wrong value.

    `cores`: that the ranks of this host have together; those of this process if it is None.
    """
    cores = own_cores() if cores is None else cores
    if not nested:
        refuse_misspelt()
    second, last = hardware().cache_bytes(2, MIB), hardware().cache_bytes(3, 32 * MIB)
    here = max(map(hosts.count, set(hosts))) if hosts else size
    own = second // -(-here // cores)  # of a core's own cache, which ranks on the same core share
    pool = MIB if nested else max(MIB, min(8 * MIB, 64 * MIB // size))
    pool = number("PYCOLLECTIVES_POOL_BYTES", pool, 64 * 1024)
    # See csrc/shm/prepared.cpp. A small part of a large shared cache, for all ranks together, holds longer rings as well.
    ring = number("PYCOLLECTIVES_RING_BYTES", max(2 * own, min(pool, last // (16 * here))), 0)
    # Inputs and outputs of the ranks that run at a time fill the shared cache from here on.
    stream = number("PYCOLLECTIVES_STREAM_OUTPUT_BYTES", last // (2 * min(size, cores)), 0)
    stores = os.environ.get("PYCOLLECTIVES_STORES", "automatic")
    if stores not in STORES:
        raise InvalidArgumentError(f"PYCOLLECTIVES_STORES={stores!r} is not one of {', '.join(STORES)}")
    aware = os.environ.get("PYCOLLECTIVES_CUDA_AWARE_MPI", "automatic")
    if aware not in AWARE:
        raise InvalidArgumentError(f"PYCOLLECTIVES_CUDA_AWARE_MPI={aware!r} is not one of {', '.join(AWARE)}")
    longest = _between_hosts() if hosts else max(64 * 1024, own // 4)
    segment = number("PYCOLLECTIVES_SEGMENT_BYTES", longest, 4096)
    if hosts:  # MPI counts in C's int, and no message is longer than two segments
        segment = min(segment, 1 << 29)
    fusion = number("PYCOLLECTIVES_FUSION_BYTES", 64 * 1024, 0)
    return Settings(
        pool,
        segment,
        tuned(size, segment, cores, len(set(hosts)), placed=bool(domains)),
        ring,
        stream,
        stores,
        environment(),
        fusion_bytes=fusion,
        hosts=hosts,
        domains=domains,
        stage_bytes=number("PYCOLLECTIVES_STAGE_BYTES", 4 * MIB, 4096),
        cuda_aware_mpi=aware,
        single_copy_bytes=number("PYCOLLECTIVES_SINGLE_COPY_BYTES", max(32 * 1024, own // 16), 0),
        cache_bytes=min(own, ring // 2),
        crowded=here > cores,
    )


def _between_hosts() -> int:
    """Bytes of a segment where some travel by MPI, whose libraries ask the receiver before they send a long message: the
    answer waits behind what is under way, so on a network that is known to be slow segments are shorter."""
    found, most = tuning_file.load().content, 64 * 1024
    beta = 0.0 if found is None else found.parameters.get("network_beta", 0.0)
    return most if beta == 0 else min(most, max(16 * 1024, int(SEGMENT_SECONDS / beta) // 4096 * 4096))


def tuned(size: int, segment: int, cores: int, hosts: int = 1, *, placed: bool = False) -> Tuning:
    """What `pycollectives tune` has learnt of this machine, for `size` ranks; defaults from its caches otherwise.

    Between several hosts the table does not hold: it was measured on one. All are taken to have as many cores.
    """
    machine, found = hardware().defaults(cores, segment, placed=placed), tuning_file.load()
    if found.content is None:
        return Tuning(machine, origin=f"defaults from the caches: {found.remark}")
    machine = found.content.machine(machine)
    if hosts > 1:
        network = "network_alpha" in found.content.parameters
        return Tuning(
            machine, origin=f"of one host, {'and' if network else 'not'} of the network: {found.remark}"
        )
    return Tuning(machine, found.content.table.pruned(size, machine.cores), f"measured: {found.remark}")


def patience(size: int, *, spans_hosts: bool = False, cores: int | None = None) -> tuple[int, int, int]:
    """Spins and yields before a waiting rank sleeps, and the longest nap in microseconds.

    `size`: the ranks on this host; `cores`: as in `decide`. Spins are many where every rank has a core, few where they take
    turns, and fewest where each of them is a look at the network of about a microsecond. Nobody but the waiting rank looks there,
    so it naps shortly.
    """
    room = size <= (own_cores() if cores is None else cores)
    few, many, nap = (8, 8, NETWORK_NAP_US) if spans_hosts else (30, 1000, 50_000)
    spins = number("PYCOLLECTIVES_SPINS", many if room else few, 0, MOST_TURNS)
    return spins, number("PYCOLLECTIVES_YIELDS", 1000 if room else 200, 0, MOST_TURNS), nap
