"""Which way the data of a call takes, for explanations: read off the prepared call."""

from __future__ import annotations

from . import _core
from .calls import Calls, Kind
from .schedule import Algorithm

_WAYS = {
    "inlined": "inside the cache line of the flag",
    "slot": "through slots of the message pool",
    "region": "read in place",
    "pointer": "through slots of the message pool, or read in the sender's memory if trials were faster",
}


def data_path(calls: Calls, one: Algorithm, kind: Kind) -> list[str]:
    """Lines about how messages travel by algorithm `one`, and how the data are cut: of this rank, or the next one after
    it that sends anything.

    Raises UnsupportedError where the pool for messages is too small for the schedule.
    """
    for rank in range(calls.rank, calls.rank + calls.size):
        sender = calls if rank == calls.rank else Calls(rank % calls.size, calls.size, calls.settings)
        prepared = sender.make(one, kind)
        if ordinary := _ways(*prepared.traffic(False, False)):
            break
    else:
        return ["path: nothing travels"]
    lines = [f"path of rank {sender.rank}: {ordinary}"]
    if prepared.slices > 1:
        at_once = min(prepared.lanes, prepared.slices)
        lines[0] += f"; data cut into {prepared.slices} slices, {at_once} at a time"
    if prepared.blocks and not calls.settings.hosts:
        cut = "not at all" if prepared.blocks == 1 else f"into {prepared.blocks}"
        lines[0] += f", or {cut} if trials were faster with whole blocks read in the sender's memory"
    symmetric = _ways(*prepared.traffic(False, True))
    if symmetric != ordinary:
        lines.append(f"path between two arrays of comm.empty: {symmetric}")
    return lines


def _ways(messages: list[int], nbytes: list[int]) -> str:
    """Messages and bytes by the way they take."""
    parts = []
    for carrier, count, total in zip(_core.CARRIERS, messages, nbytes, strict=True):
        if count:
            text = (
                f"{count} message{'s' * (count > 1)} of {_range(total, count)} {_WAYS.get(carrier, carrier)}"
            )
            parts.append(text)
    return ", ".join(parts)


def _range(total: int, count: int) -> str:
    return f"{total // count} bytes" if total % count == 0 else f"about {total / count:.0f} bytes"
