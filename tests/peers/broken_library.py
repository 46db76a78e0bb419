"""A library that goes wrong in the way that the variable BROKEN names; its ranks do not talk to each other."""

from __future__ import annotations

import os
import time
from typing import Any

from bench.peers.ranks.library import Library, UnsupportedCaseError


class Broken(Library):
    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.version = "broken 1.0"
        self.how = os.environ["BROKEN"]
        self.calls = 0
        if self.how == "start":
            raise RuntimeError("no network here")

    def barrier(self) -> None:
        pass

    def in_place(self, case: Any, wanted: bool) -> bool:
        return wanted

    def bind(self, column: str, case: Any, arrays: Any) -> tuple[str, dict[str, Any]]:
        if self.how == "cannot":
            raise UnsupportedCaseError("not this one")
        return "call()", {"call": lambda: self.call(arrays)}

    def call(self, arrays: Any) -> None:
        """Right at first: a rank knows what the others have."""
        self.calls += 1
        if self.how != "wrong":
            total = sum(float(arrays.tables.inputs[r][0]) for r in range(self.size))
            arrays.out[...] = arrays.tables.reduced(range(self.size))[: arrays.out.size]
            assert arrays.out[0] == total
        if self.calls > 3 and self.rank == 1:
            if self.how == "crash":
                os._exit(7)
            if self.how == "hang":
                time.sleep(600)
            if self.how == "raise":
                raise ValueError("the third call is too much")


def start() -> Broken:
    return Broken()
