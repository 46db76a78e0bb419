"""Persistent calls: decided and checked once, made many times."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Array
from .group import outside
from .ops import OpLike
from .point_to_point import ANY_SOURCE, PersistentMessage, PointToPoint
from .work import PersistentCall, persistent


class Plans(PointToPoint):
    """`plan()`; `Communicator` inherits it."""

    def plan(
        self,
        verb: str,
        x: Any = None,
        op: OpLike = "sum",
        *,
        root: int = 0,
        counts: Any = None,
        out: Array | None = None,
        algorithm: str | None = None,
        deterministic: bool = False,
        dest: int | None = None,
        source: int = ANY_SOURCE,
        tag: int | None = None,
        timeout: float | None = None,
    ) -> PersistentCall | PersistentMessage:
        """Decide and check a call once; the returned object makes it, on the same arrays, every time it is called.

        `comm.plan("all_reduce", x, out=x)` takes what `comm.all_reduce` takes. Collective like the call itself.
        `comm.plan("send", x, dest=1, tag=7)` and `comm.plan("recv", out=x, source=0, tag=7)` are not.
        """
        if verb in ("send", "recv"):
            return self._plan_message(verb, x, out, dest if verb == "send" else source, tag, timeout)
        core = self._native()
        outside(self, "plan")
        x = np.empty(0, np.uint8) if verb == "barrier" else x
        arguments = self._resolve(verb, x, op, root, counts, out, algorithm, deterministic)
        limit = self._limit(timeout)
        prepared = self._calls.find(arguments.kind)
        return persistent(
            core,
            prepared,
            arguments.x,
            arguments.buffers,
            limit,
            f"{verb}({arguments.kind.dtype}[{arguments.kind.count}])",
        )
