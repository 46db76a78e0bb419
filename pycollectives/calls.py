"""From the arguments of a call to the native call: decided once per kind of call, kept, and found again.

Kind (verb, dtype, count, operator, root, ...) -> dispatch.choose -> schedule.lower -> _core.Plan -> _core.Prepared
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from . import _core, dispatch
from .arrays import dtype_name
from .ops import Operator
from .schedule import COLLECTIVES, Algorithm, Collective, names
from .schedule.lowering import lower
from .settings import Settings

NEVER = (1 << 64) - 1  # bytes
KEPT = 512  # kinds of calls that a communicator remembers

_DTYPE = {name: i for i, name in enumerate(_core.DTYPES)}
_KERNEL = {name: i for i, name in enumerate(_core.OPS)}
_OPERATOR = {name: i for i, name in enumerate(_core.OP_NAMES)}
_VERB = {name: i for i, name in enumerate(_core.VERBS)}
_BYTES = _DTYPE["uint8"]


@dataclass(frozen=True)
class Kind:
    """All that decides a call but the addresses. The same on every rank: it is in the call's fingerprint.

    `count`: elements of one rank's block where the verb gathers blocks, of the whole vector otherwise. `counts`: of every
    rank's block, for the uneven forms; for an uneven all_to_all row r holds what rank r sends to each.
    """

    verb: str
    dtype: np.dtype[Any]
    count: int
    operator: Operator | None = None
    root: int = -1
    named: str | None = None
    deterministic: bool = False
    counts: tuple[Any, ...] | None = None

    def fingerprint(self, algorithm: str) -> int:
        """What the ranks compare: the kind, and the algorithm that they have chosen for it."""
        text = f"{self!r} by {algorithm}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

    def vector_bytes(self, size: int) -> int:
        """Bytes of the whole vector, as the cost model counts them."""
        if self.counts is not None:
            return int(np.max(np.sum(self.counts, axis=-1))) * self.dtype.itemsize
        gathers = COLLECTIVES[self.verb].input == "block"
        return self.count * self.dtype.itemsize * (size if gathers else 1)


@dataclass(frozen=True)
class Recipe:
    """One kind of call for a native executor: the plan, the numbers of the dtype and the operator, and the extents in elements.

    `held_in`, `held_out`: the first chunk and the number of chunks in the input and in the output.
    """

    plan: Any
    dtype: int
    op: int
    epilogue: int
    factor: float
    wide: bool
    blocks: list[int]
    sent: list[int]
    taken: list[int]
    held_in: tuple[int, int]
    held_out: tuple[int, int]
    user: Any


@lru_cache(maxsize=1024)
def _plan(
    algorithm: Algorithm,
    size: int,
    rank: int,
    root: int,
    staged: bool,
    wide: bool,
    fuse: bool,
    spans_hosts: bool,
) -> Any:
    """The native plan; one for every message size."""
    plan = lower(algorithm, size, rank, root, staged=staged, wide=wide, fuse=fuse, partials_apart=spans_hosts)
    return _core.Plan(**plan.arrays())


class Calls:
    """The kinds of calls of one communicator."""

    def __init__(self, rank: int, size: int, settings: Settings) -> None:
        self.rank, self.size, self.settings = rank, size, settings
        self._kept: dict[Kind, Any] = {}
        self._lock = threading.Lock()

    def find(self, kind: Kind) -> Any:
        """The prepared call of this kind. Raises InvalidArgumentError, UnsupportedError, ScheduleError."""
        prepared = self._kept.get(kind)
        if prepared is None:
            with self._lock:
                one = self.choose(kind)
                prepared = self.make(one, kind)
                while len(self._kept) >= KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[kind] = prepared
        return prepared

    def forget(self) -> None:
        """The known algorithms are others now."""
        with self._lock:
            self._kept.clear()

    def choose(self, kind: Kind) -> Algorithm:
        """The algorithm: the named one if it can, else the one measured or predicted to be the fastest."""
        return dispatch.choose(self.query(kind), self.settings.tuning, kind.named)

    def query(self, kind: Kind) -> dispatch.Query:
        """What the choice of the algorithm depends on."""
        return dispatch.Query(
            kind.verb,
            kind.vector_bytes(self.size),
            self.size,
            max(kind.root, 0),
            dispatch.needs(kind.verb, kind.operator, kind.deterministic, uneven=kind.counts is not None),
            dispatch.kind_of(kind.verb, dtype_name(kind.dtype)),
            self.settings.hosts,
            self.settings.domains,
        )

    def make(self, one: Algorithm, kind: Kind, *, fuse: bool = True) -> Any:
        """The prepared call of `kind` by algorithm `one`. fuse=False: for tracing, see `lower`."""
        made, operator = self.recipe(one, kind, fuse=fuse), kind.operator
        prepared = _core.Prepared(
            plan=made.plan,
            dtype=made.dtype,
            op=made.op,
            epilogue=made.epilogue,
            factor=made.factor,
            wide=made.wide,
            blocks=made.blocks,
            sent_blocks=made.sent,
            taken_blocks=made.taken,
            held_in=made.held_in,
            held_out=made.held_out,
            pool_bytes=self.settings.pool_bytes,
            segment_bytes=self.settings.segment_bytes,
            ring_bytes=self.settings.ring_bytes,
            stream_output_bytes=self.settings.stream_output_bytes,
            single_copy_bytes=self.settings.single_copy_bytes or NEVER,
            cache_bytes=self.settings.cache_bytes,
            crowded=self.settings.crowded,
            fingerprint=kind.fingerprint(one.name),
            count=kind.count,
            verb=_VERB[kind.verb],
            algorithm=names(kind.verb).index(one.name.split("(")[0]),
            record_dtype=_DTYPE.get(dtype_name(kind.dtype), _BYTES),
            record_op=255 if operator is None else _OPERATOR.get(operator.name, 255),
            root=kind.root,
            deterministic=kind.deterministic,
            user=made.user,
        )
        prepared.algorithm_name = one.name
        return prepared

    def recipe(self, one: Algorithm, kind: Kind, *, fuse: bool = True) -> Recipe:
        """The plan of `kind` by algorithm `one`, and what a native executor needs besides. fuse=False: see `lower`."""
        contract, operator = COLLECTIVES[kind.verb], kind.operator
        number, unit = _BYTES, kind.dtype.itemsize  # bytes are moved as they are
        if operator is not None:
            number, unit = _DTYPE.get(dtype_name(kind.dtype), _BYTES), 1
        code = None if operator is None or operator.user is None else operator.user.compile(kind.dtype)
        wide = operator is not None and bool(_core.is_wide(number))
        staged = operator is not None and (wide or operator.epilogue != 0)
        root = max(kind.root, 0)
        plan = _plan(one, self.size, self.rank, root, staged, wide, fuse, bool(self.settings.hosts))
        blocks, sent, taken = self._blocks(kind, unit)
        if code is not None:
            blocks = [n // code.count for n in blocks]  # in items, which are never cut
        everything = range(plan.nchunks)
        held_in = contract.input_chunks(self.rank, self.size, root, plan.nchunks) if fuse else everything
        held_out = contract.output_chunks(self.rank, self.size, root, plan.nchunks) if fuse else everything
        return Recipe(
            plan,
            number,
            # a user's operator only needs what copies
            0 if operator is None else _KERNEL.get(operator.kernel, 0),
            0 if operator is None else operator.epilogue,
            self._factor(contract, operator),
            wide,
            blocks,
            sent,
            taken,
            (held_in.start, len(held_in)),
            (held_out.start, len(held_out)),
            code,
        )

    def _factor(self, contract: Collective, operator: Operator | None) -> float:
        """What the epilogue divides or multiplies by: an average is of the ranks that are in the result."""
        if operator is None or operator.name != "avg" or not contract.prefix:
            return 1.0 if operator is None else operator.factor
        return float(max(1, len(contract.contributors(0, self.rank, self.size, 0, 1))))

    def elements(self, kind: Kind) -> tuple[list[int], list[int], list[int]]:
        """The elements of the blocks of the vector; for all_to_all those that this rank sends and takes."""
        return self._blocks(kind, 1)

    def _blocks(self, kind: Kind, unit: int) -> tuple[list[int], list[int], list[int]]:
        """The elements of the blocks of the vector; for all_to_all those that this rank sends and takes."""
        contract = COLLECTIVES[kind.verb]
        if kind.verb == "all_to_all":
            if kind.counts is None:
                even = [kind.count * unit // self.size] * self.size
                return even, even, even
            sent = [n * unit for n in kind.counts[self.rank]]
            taken = [row[self.rank] * unit for row in kind.counts]
            return [max(max(row) for row in kind.counts) * unit] * self.size, sent, taken
        if kind.counts is not None:
            return [n * unit for n in kind.counts], [], []
        if contract.input == "block":
            return [kind.count * unit] * self.size, [], []
        if contract.output == "block":
            return [kind.count * unit // self.size] * self.size, [], []
        return [kind.count * unit], [], []
