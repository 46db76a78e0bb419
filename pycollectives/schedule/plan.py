"""A lowered plan: one rank's operations as the flat arrays of csrc/core/plan.hpp. Chunk indices, no sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np


class Where(IntEnum):
    """Places of chunks, as in csrc/core/plan.hpp."""

    DATA_IN, DATA_OUT, DATA_WORK, INPUT, OUTPUT, SCRATCH = range(6)


class Flag(IntFlag):
    """Flags of instructions, as in csrc/core/plan.hpp."""

    FINAL = 1
    STORE_WIDE = 2
    SEND_WIDE = 4
    FIRST_OUTPUT = 8
    MAY_POINT = 16
    MAY_POINT_APART = 32
    LAST_USE = 64


@dataclass
class LoweredPlan:
    """The arrays of a plan.

    Rows of `instructions` are operand, noperands, nrefs, shape, store, connection, flags, step.
    """

    size: int
    rank: int
    nchunks: int
    max_message: int
    max_connections: int
    steps: int
    waits_for_all: bool
    proves_all: bool = False
    balanced: bool = False  # all ranks send alike
    instructions: list[tuple[int, ...]] = field(default_factory=list)
    operands: list[tuple[int, int, int]] = field(default_factory=list)  # peer or -1, refs, wide
    refs: list[tuple[int, int]] = field(default_factory=list)  # place, chunk
    connections: list[tuple[int, int]] = field(default_factory=list)  # first peer, number of peers
    peers: list[int] = field(default_factory=list)
    channels: list[tuple[int, int, int, int]] = field(default_factory=list)
    scratch_like: list[int] = field(default_factory=list)

    def arrays(self) -> dict[str, Any]:
        """Everything as the keyword arguments of `_core.Plan`."""

        def table(rows: Sequence[Any], width: int) -> np.ndarray[Any, Any]:
            return np.asarray(rows, dtype=np.int32).reshape(-1, width)

        return {
            "size": self.size,
            "rank": self.rank,
            "nchunks": self.nchunks,
            "max_message": self.max_message,
            "max_connections": self.max_connections,
            "steps": self.steps,
            "waits_for_all": self.waits_for_all,
            "proves_all": self.proves_all,
            "balanced": self.balanced,
            "instructions": table(self.instructions, 8),
            "operands": table(self.operands, 3),
            "refs": table(self.refs, 2),
            "connections": table(self.connections, 2),
            "peers": np.asarray(self.peers, dtype=np.int32),
            "channels": table(self.channels, 4),
            "scratch_like": np.asarray(self.scratch_like, dtype=np.int32),
        }
