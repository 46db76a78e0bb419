"""NCCL's tuner for GPUs of one host, joined by NVLink: the least of its predicted times over algorithms and protocols.

    time = latency + bytes / bandwidth      of ring and tree, each by the protocols LL, LL128 and Simple

Its constants are of GPUs, so this says what NCCL takes on such a host, not what is right on processors.

source   NCCL 2.30, src/graph/tuning.cc at commit 5067397c: constants and formulas, for the Hopper generation; 16 channels of
         22.5 GB/s are assumed. NVLS and PAT are left out: they need a switch that reduces, or one GPU per host.
"""

from __future__ import annotations

from ..query import Query
from .advice import Advice

PROTOCOLS = ("LL", "LL128", "Simple")
_BASE = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4)}  # microseconds
_HOP = {"ring": (0.6, 1.9, 3.4), "tree": (0.6, 1.25, 4.0)}
_CHANNELS, _CHANNEL = 16, 22.5  # GB/s
_LL_MOST, _RING_LL128, _TREE, _TREE_LL128 = 141.0, 36.7, 38.7, 36.7  # GB/s; all but the first per channel
# What of a tree's bandwidth is reached, by floor(log2(bytes / 64)).
_REACHED = {
    "LL": (
        1,
        1,
        1,
        1,
        0.9,
        0.8,
        0.7,
        0.7,
        0.7,
        0.7,
        0.6,
        0.5,
        0.4,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        1,
        1,
        1,
        1,
        1,
    ),
    "LL128": (
        *(1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    ),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}


def latency(algorithm: str, protocol: int, ranks: int) -> float:
    """Microseconds of an all-reduce of nothing."""
    return _BASE[algorithm][protocol] + 2 * (ranks - 1) * _HOP[algorithm][protocol]


def bandwidth(algorithm: str, protocol: int, ranks: int, nbytes: int) -> float:
    """Bytes of the vector per nanosecond."""
    bus = _CHANNELS * _CHANNEL
    if algorithm == "ring":
        limits = (min(_LL_MOST, 0.5 * bus), min(0.92 * bus, _CHANNELS * _RING_LL128), bus)
        return limits[protocol] * ranks / (2 * (ranks - 1))
    bus = min(0.92 * bus, _CHANNELS * _TREE)
    limits = (min(bus / 3.8, _LL_MOST), min(bus * 7 / 9, _CHANNELS * _TREE_LL128), bus)
    step = (nbytes >> 6).bit_length() - 1
    reached = _REACHED[PROTOCOLS[protocol]][step] if 0 <= step < 24 else 1
    return 0.5 * limits[protocol] * reached


def advice(query: Query) -> Advice | None:
    """What NCCL takes on one host; None for verbs that it has no algorithms to choose from for."""
    if query.size < 2:
        return None
    match query.collective:
        case "all_reduce":
            times = {
                (algorithm, protocol): latency(algorithm, i, query.size)
                + query.nbytes / (1000 * bandwidth(algorithm, i, query.size, query.nbytes))
                for algorithm in ("ring", "tree")
                for i, protocol in enumerate(PROTOCOLS)
            }
            algorithm, protocol = min(times, key=lambda key: times[key])
            return Advice(f"{algorithm}, {protocol}", "ring" if algorithm == "ring" else "double_binary_tree")
        case "all_gather" | "reduce_scatter":
            return Advice("ring", "ring")
        case "broadcast" | "reduce":
            return Advice("ring, from rank to rank", "chain")
    return None
