"""How ranks share devices: their blocks wait for each other, so all must be there at once.

A rank has a launch of its own where those of all ranks on its device fit there together; else the ranks of a process share one
(csrc/cuda/host/fusion.hpp), which begins when all its blocks fit, with fewer threads in a block where there is not room for more.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import DeviceError
from .options import Options

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"  # the driver's setting, 8 without it and 32 at most
STREAMS = 3  # of a rank: its two, and the caller's
WARP = 32
CHANNELS = 2  # of the algorithms that have most
GRIDS = 128  # that a device runs at once, of any compute capability from 7.0 on


class Share(NamedTuple):
    """`blocks` of a call at most, `threads` of a block, whether the ranks of a process on one device share a launch, and whether
    the switch between the devices reaches all of them.
    """

    blocks: int
    threads: int
    fused: bool
    multicast: bool = False


def queues() -> int:
    """The queues of a device. Streams in one wait for each other. Raises DeviceError if the setting is no number."""
    setting = os.environ.get(QUEUES, "8")
    try:
        return min(int(setting), 32)
    except ValueError:
        raise DeviceError(f"{QUEUES} is {setting!r}; it must be a number from 1 to 32") from None


def sizes(threads: int) -> list[int]:
    """The sizes of a block that are tried: `threads`, and halves of it that are whole warps."""
    tried = [threads]
    while tried[-1] % (2 * WARP) == 0:
        tried.append(tried[-1] // 2)
    return tried


def crowds(offers: Sequence[dict[str, Any]]) -> dict[str, int]:
    """For how many ranks a device has to have room, by its bus: a part of them may make calls while the others do."""
    counted = Counter(one["bus"] for one in offers)
    return {bus: max(n, *(one["crowd"] for one in offers if one["bus"] == bus)) for bus, n in counted.items()}


def share_devices(offers: Sequence[dict[str, Any]], options: Options) -> Share:
    """What all ranks do, from what each has told of itself: `bus` names its device, `pid` its process, `queues`, and `capacity`,
    the blocks that its device holds, by their threads, `multicast`, and the `crowd` that it has met there before.
    Raises DeviceError where the ranks do not fit.
    """
    ranks_on = crowds(offers)
    together = Counter((one["bus"], one["pid"]) for one in offers)

    def blocks(threads: int) -> int:
        return min(int(one["capacity"][str(threads)]) // ranks_on[one["bus"]] for one in offers)

    crowded = any(
        together[one["bus"], one["pid"]] > 1
        and (together[one["bus"], one["pid"]] * STREAMS > one["queues"] or ranks_on[one["bus"]] > GRIDS)
        for one in offers
    )
    if not options.fused and not crowded and blocks(options.threads):
        apart = len(ranks_on) == len(offers) > 1
        multicast = options.multicast and options.native and apart and all(one["multicast"] for one in offers)
        return Share(min(options.blocks, blocks(options.threads)), options.threads, False, multicast)
    fitting = {threads: found for threads in sizes(options.threads) if (found := blocks(threads))}
    for threads, found in fitting.items():
        if found >= CHANNELS or threads == min(fitting):
            return Share(min(options.blocks, found), threads, True)
    least = sizes(options.threads)[-1]
    worst = max(offers, key=lambda one: ranks_on[one["bus"]])
    raise DeviceError(
        f"{ranks_on[worst['bus']]} ranks are on one device, which holds {worst['capacity'][str(least)]} blocks of {least} "
        "threads at once: not one of each"
    )
