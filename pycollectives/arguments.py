"""What each verb makes of its arguments: the shape of the result, the buffers, the counts of the uneven forms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import ops
from .arrays import Array, Buffers, as_input, no_input, prepare, reducible, shape_of
from .calls import Kind
from .errors import InvalidArgumentError, MismatchError
from .ops import Operator
from .schedule import Collective

if TYPE_CHECKING:
    from .caller import Caller

LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Arguments:
    """One checked call: its kind, its contiguous buffers, and `x` as the caller gave it."""

    kind: Kind
    buffers: Buffers
    x: Array


class Options(NamedTuple):
    """Checked options: `root` is -1 where the verb has none, `named` the algorithm that is asked for."""

    contract: Collective
    operator: Operator | None
    root: int
    named: str | None


def resolve(
    comm: Caller, options: Options, x: Any, counts: Any, out: Any, deterministic: bool, *, uneven: bool
) -> Arguments:
    """Checks the arrays and counts of a call. Raises InvalidArgumentError, UnsupportedError, MismatchError."""
    contract, operator, root, named = options
    if (
        x is None
        and contract.input == "root"
        and comm.rank != root
        and (nothing := no_input(out)) is not None
    ):
        x, absent = nothing, True  # scatter: `out` says all there is to say
    else:
        if x is None and contract.input == "root" and comm.rank != root:
            raise InvalidArgumentError(
                f"x is None on rank {comm.rank}: give out=, or an array of the dtype and row shape of rank {root}'s"
            )
        x, absent = as_input(x), False
    if operator is not None and operator.user is not None:
        operator.user.check(x, comm.size if contract.output == "block" else 1, uneven=uneven)
    elif operator is not None:
        ops.check(operator, reducible(x.dtype))
    layout = _Layout(comm, contract, x, root, out, absent)
    buffers, count, blocks = layout.uneven(counts) if uneven else (*layout.even(), None)
    return Arguments(
        Kind(contract.name, x.dtype, count, operator, root, named, deterministic, blocks), buffers, x
    )


class _Layout:
    """Where the data of a call lie on this rank. `absent`: `x` is a stand-in, since `out` says all there is to say."""

    def __init__(
        self, comm: Caller, contract: Collective, x: Array, root: int, out: Any, absent: bool
    ) -> None:
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self.contract, self.verb = contract, contract.name
        self.x, self.out, self.absent = x, out, absent
        self.root, self.at_root = root, comm.rank == root

    def even(self) -> tuple[Buffers, int]:
        """The buffers, and the count of the call's kind."""
        x, out = self.x, self.out
        if self.verb in ("all_reduce", "broadcast", "scan"):
            return prepare(x, out, x.shape), x.size
        if self.verb == "exscan":
            return prepare(x, out, x.shape if self.rank else None), x.size
        if self.verb == "reduce":
            return prepare(x, out, x.shape if self.at_root else None), x.size
        if self.verb == "all_gather":
            return prepare(x, out, (self.size, *x.shape), any_shape=True, shift=self.rank * x.nbytes), x.size
        if self.verb == "gather":
            shape = (self.size, *x.shape) if self.at_root else None
            return prepare(x, out, shape, any_shape=True, shift=self.rank * x.nbytes), x.size
        if self.verb in ("reduce_scatter", "scatter"):
            if self.absent:
                shape, count = shape_of(out)
                return prepare(x, out, shape), count * self.size
            return prepare(
                x, out, self._block_shape(), any_shape=True, shift=-self.rank * (x.nbytes // self.size)
            ), x.size
        if self.verb == "all_to_all":
            self._block_shape()
            return self._apart(x.shape), x.size
        return Buffers(x, None, None), 0  # barrier

    def _apart(self, shape: tuple[int, ...]) -> Buffers:
        """Buffers of a verb that cannot work in place."""
        buffers = prepare(self.x, self.out, shape)
        if buffers.x.size and buffers.out is not None and np.may_share_memory(buffers.x, buffers.out):
            raise InvalidArgumentError(f"{self.verb} cannot work in place: pass an out that is not x")
        return buffers

    def _block_shape(self) -> tuple[int, ...]:
        """The shape of one of `size` equal blocks of x along its first axis."""
        x = self.x
        free = self.out is not None and self.verb == "reduce_scatter"  # then its shape counts
        if x.size % self.size or (x.size and not free and (x.ndim == 0 or x.shape[0] % self.size)):
            raise InvalidArgumentError(
                f"{self.verb} on {self.size} ranks needs a first axis that is a multiple of {self.size}; x has shape {x.shape}"
            )
        if x.ndim and x.shape[0] % self.size == 0:
            return (x.shape[0] // self.size, *x.shape[1:])
        return (x.size // self.size,) if x.size else (0, *x.shape[1:])

    # -- uneven blocks: counts are rows, elements for the core ---------------------------------------------------

    def uneven(self, counts: Any) -> tuple[Buffers, int, tuple[Any, ...]]:
        """The buffers, the count, and the elements of all blocks."""
        x = self.x
        if x.ndim == 0:
            raise InvalidArgumentError(f"{self.verb}v needs rows to count; x has no axis")
        row = shape_of(self.out)[0][1:] if self.absent else x.shape[1:]
        width = math.prod(row)
        if self.verb == "all_to_all":
            return self._all_to_allv(counts, row, width)
        if self.verb == "scatter":
            counts = self._from_root(counts)
        elif counts is None and self.contract.input == "block":
            counts = self._exchange([x.shape[0]]).ravel().tolist()
        rows = self._checked(counts, "counts")
        blocks = tuple(n * width for n in rows)
        before = sum(blocks[: self.rank]) * x.itemsize
        if self.contract.input == "block":
            if x.shape[0] != rows[self.rank]:
                raise InvalidArgumentError(
                    f"counts[{self.rank}] is {rows[self.rank]}, but x has {x.shape[0]} rows here"
                )
            shape = (sum(rows), *row) if self.contract.output == "all" or self.at_root else None
            return prepare(x, self.out, shape, shift=before), sum(blocks), blocks
        holds = self.contract.input == "all" or self.at_root
        if holds:
            self._check_rows(rows)
        return prepare(x, self.out, (rows[self.rank], *row), shift=-before), sum(blocks), blocks

    def _all_to_allv(
        self, counts: Any, row: tuple[int, ...], width: int
    ) -> tuple[Buffers, int, tuple[Any, ...]]:
        sent, taken = counts if isinstance(counts, tuple) and len(counts) == 2 else (counts, None)
        sent = self._checked(sent, "send_counts")
        if sum(sent) != self.x.shape[0]:
            raise InvalidArgumentError(
                f"send_counts {list(sent)} add up to {sum(sent)}, but x has {self.x.shape[0]} rows"
            )
        told = [-1] * self.size if taken is None else list(self._checked(taken, "recv_counts"))
        everyone = self._exchange([*sent, *told])
        matrix, claims = everyone[:, : self.size], everyone[:, self.size :].T
        wrong = np.argwhere((claims >= 0) & (claims != matrix))
        if wrong.size:
            source, target = wrong[0]
            raise MismatchError(
                f"all_to_allv: rank {source} sends {matrix[source, target]} rows to rank {target}, "
                f"whose recv_counts expect {claims[source, target]}",
                peer=int(source),
            )
        rows = tuple(tuple(int(n) * width for n in line) for line in matrix)
        return self._apart((int(matrix[:, self.rank].sum()), *row)), 0, rows

    def _check_rows(self, rows: Sequence[int]) -> None:
        """Does x hold the blocks of all ranks?"""
        if self.x.shape[0] != sum(rows):
            raise InvalidArgumentError(
                f"the counts {list(rows)} add up to {sum(rows)}, but x has {self.x.shape[0]} rows"
            )

    def _exchange(self, mine: Sequence[int]) -> Any:
        return self.comm._now("all_gather", np.asarray(mine, dtype=np.int64))

    def _from_root(self, counts: Any) -> Any:
        """scatterv: the root's counts, on all ranks. A list that is bad, or does not fit x, is told to all, so that all raise."""
        told = np.full(self.size, -1, dtype=np.int64)
        problem: Exception | None = None
        if self.at_root:
            try:
                rows = self._checked(counts, "counts")
                self._check_rows(rows)
                told[:] = rows
            except InvalidArgumentError as error:
                problem = error
        agreed = self.comm._now("broadcast", told, root=self.root)
        if problem is not None:
            raise problem
        if (agreed < 0).any():
            raise InvalidArgumentError(f"the counts at root {self.root} are not usable (see there)")
        return agreed.tolist()

    def _checked(self, counts: Any, what: str) -> tuple[int, ...]:
        try:
            if isinstance(counts, (Mapping, Set)):  # whose order says nothing
                raise TypeError
            rows = tuple(int(n.__index__()) for n in counts)
        except (TypeError, AttributeError):
            raise InvalidArgumentError(
                f"{what} is {counts!r}; it must be {self.size} whole numbers"
            ) from None
        if len(rows) != self.size or any(n < 0 for n in rows):
            raise InvalidArgumentError(
                f"{what} is {list(rows)}; it must be {self.size} numbers, none negative"
            )
        if sum(rows) > LARGEST:
            raise InvalidArgumentError(f"{what} is {list(rows)}; rows are counted in 64 bits")
        return rows
