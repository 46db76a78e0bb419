"""Combining what has come from other hosts, on the device: one instruction of a plan, run by the interpreter's kernel.

received   |-- block 0 --|-- block 1 --| ... |      from each rank, in rank order
result     |-- f(...) ---|
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .. import _core
from ..arrays import dtype_name
from ..calls import Kind
from ..schedule.plan import Flag, LoweredPlan, Where
from .extension import native
from .options import PROTOCOLS, Options

if TYPE_CHECKING:
    from ..communicator import Communicator

SLOT_BYTES = (512, 512, 128 * 1024)  # no messages: a slot of Simple bounds the slices


@lru_cache(maxsize=256)
def combination(n: int, wide: bool = False) -> Any:
    """The plan that combines chunks 0 to n-1 of the input, in their order, into chunk 0 of the output. `wide`: the input is of the
    accumulation type."""
    plan = LoweredPlan(n, 0, n, 1, 1, 1, waits_for_all=False)
    plan.refs = [*((int(Where.DATA_IN), i) for i in range(n)), (int(Where.DATA_OUT), 0)]
    plan.operands = [(-1, i, int(wide)) for i in range(n)]
    plan.instructions = [(0, n, 1, n, n, -1, int(Flag.FINAL | Flag.FIRST_OUTPUT), 0)]
    plan.channels = [(0, 1, 0, 0)]
    return _core.Plan(**plan.arrays())


class Combiner:
    """A device side of one rank alone. Raises DeviceError."""

    def __init__(self, comm: Communicator, options: Options, number: int) -> None:
        self.module = module = native(options.emulated)
        self.number = number
        self._options, self._copy_on = options, module.copy_on
        self._blocks = min(options.blocks, module.capacity(number, options.threads, 1))
        self._rank = module.Rank(
            name=f"{comm.name} {os.getpid()} {id(comm)} alone",
            rank=0,
            size=1,
            device=number,
            blocks=self._blocks,
            depth=2,
            slot_bytes=SLOT_BYTES,
            number_bits=16,
            staging_bytes=0,
            fused=False,
            stages_host=False,
        )
        self._rank.open()
        self._kept: dict[tuple[Any, ...], Any] = {}
        self.last: Any = None  # the end of what was queued last, or nothing

    def combine(
        self,
        kind: Kind,
        n: int,
        count: int,
        source: int,
        target: int,
        ready: list[Any],
        *,
        wide: bool = False,
    ) -> Any:
        """`n` blocks of `count` elements at `source` into one at `target`, by the operator of `kind`; the event of the end.

        `wide`: those at `source` are of the accumulation type; with n = 1 that only rounds and finishes them.
        """
        key = (kind.dtype, kind.operator, n, count, wide)
        call = self._kept.get(key)
        if call is None:
            if len(self._kept) >= 256:
                self._kept.clear()
            call = self._kept[key] = self._make(kind, n, count, wide)
        self._hold(ready)
        self._rank.launch(call, source, target, 0)
        self.last = self._rank.mark()
        return self.last

    def copy(self, copies: list[tuple[int, int, int]], ready: list[Any]) -> Any:
        """Copies inside device memory, (target, source, bytes) each; the event of the end."""
        self._hold(ready)
        self._copy_on(self._rank.stream, copies)
        self.last = self._rank.mark()
        return self.last

    def _hold(self, ready: list[Any]) -> None:
        for event in ready:
            event.hold(self._rank.stream)

    def _make(self, kind: Kind, n: int, count: int, wide: bool) -> Any:
        operator, options = kind.operator, self._options
        assert operator is not None
        dtype = _core.DTYPES.index(dtype_name(kind.dtype))
        return self._rank.prepare(
            plan=combination(n, wide),
            blocks=[count] * n,
            sent=[],
            taken=[],
            held_in=(0, n),
            held_out=(0, 1),
            protocol=PROTOCOLS.index("simple"),
            dtype=dtype,
            op=_core.OPS.index(operator.kernel),
            moves=False,
            wide=bool(_core.is_wide(dtype)),
            any=options.any_kernel,
            hand=False,
            epilogue=operator.epilogue,
            factor=operator.factor,
            fingerprint=0,
            threads=options.threads,
            lanes=self._blocks,
            least_slice=options.least_slice,
            user=None,
        )

    def close(self) -> None:
        """End what runs."""
        self._rank.abort()
