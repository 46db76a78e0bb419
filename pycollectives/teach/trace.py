"""The state of every rank after every step of an algorithm, as a real run leaves it.

A traced run executes the schedule operation by operation (nothing fused) on the whole working vector and
keeps the vector and the scratch memory after each operation. What an operation changed belongs to that operation's step, so the
states are those of the textbook even where ranks, or the channels of one rank, run ahead of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array, reducible
from ..errors import InvalidArgumentError, UnsupportedError
from ..ops import Operator, OpLike, check, resolve
from ..schedule import COLLECTIVES, Operation, Schedule, find
from ..schedule.registry import contract_of

if TYPE_CHECKING:
    from ..communicator import Communicator


@dataclass(frozen=True)
class Memory:
    """The same memory of all ranks after one step. Arrays have shape (ranks, elements)."""

    values: Array
    known: Array  # bool: the rank has data there
    changed: Array  # bool: this step wrote another value

    def cells(self, rank: int) -> list[str]:
        """The rank's values as text; "." where it has none."""
        return [
            f"{v}" if known else "." for v, known in zip(self.values[rank], self.known[rank], strict=True)
        ]

    def rows(self) -> list[list[Any]]:
        """The values for JSON by rank; None where a rank has none."""
        return [
            [_plain(v) if known else None for v, known in zip(*row, strict=True)]
            for row in zip(self.values, self.known, strict=True)
        ]


@dataclass(frozen=True)
class Step:
    """All ranks after one step."""

    number: int  # -1: the start
    phase: str
    vector: Memory  # the working vector
    scratch: Memory  # as long as the longest of all ranks; of no elements where the algorithm needs none
    operations: tuple[tuple[str, ...], ...]  # by rank

    @property
    def values(self) -> Array:
        """The working vectors, of shape (ranks, elements)."""
        return self.vector.values

    @property
    def known(self) -> Array:
        """Bool: where the ranks have data in the working vector."""
        return self.vector.known

    @property
    def changed(self) -> Array:
        """Bool: where this step wrote another value into the working vector."""
        return self.vector.changed

    @property
    def title(self) -> str:
        """For example "step 2: reduce-scatter"."""
        name = "start" if self.number < 0 else f"step {self.number}"
        return f"{name}: {self.phase}" if self.phase else name

    def cells(self, rank: int) -> list[str]:
        """The rank's working vector as text, then its scratch memory; "." where it has no value."""
        return self.vector.cells(rank) + self.scratch.cells(rank)


@dataclass(frozen=True)
class Trace:
    """A run of `algorithm`: `start`, then `steps`."""

    collective: str
    algorithm: str
    op: str | None
    root: int | None
    start: Step
    steps: tuple[Step, ...]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.start.values)

    @property
    def title(self) -> str:
        """What ran, in one line."""
        kind = f"{self.start.values.dtype}[{self.start.values.shape[1]}]"
        of = f"{self.op} of {kind}" if self.op else kind
        root = "" if self.root is None else f", root {self.root}"
        scratch = ", then scratch memory" if self.scratch else ""
        return f"{self.collective} by {self.algorithm} on {self.size} ranks, {of}{root}{scratch}"

    @property
    def scratch(self) -> int:
        """The number of elements of scratch memory."""
        return int(self.start.scratch.values.shape[1])

    def __iter__(self) -> Iterator[Step]:
        """The start and every step."""
        yield self.start
        yield from self.steps

    def phase(self, name: str) -> list[list[list[Any]]]:
        """The states after each step of a phase: by step, rank, element."""
        return [step.values.tolist() for step in self.steps if step.phase == name]

    def __str__(self) -> str:
        """Plain text; `*` marks what a step has changed."""
        return self.text()

    def text(self, *, operations: bool = False) -> str:
        """Plain text; `*` marks what a step has changed. `operations`: with what each rank did."""
        width = max(len(cell) for step in self for rank in range(self.size) for cell in step.cells(rank))
        lines = [self.title]
        for step in self:
            lines += ["", step.title]
            for rank in range(self.size):
                shown = "  |".join(
                    "".join(
                        f"  {cell:>{width}}{'*' if changed else ' '}"
                        for cell, changed in zip(memory.cells(rank), memory.changed[rank], strict=True)
                    )
                    for memory in ((step.vector, step.scratch) if self.scratch else (step.vector,))
                )
                did = "   " + "; ".join(step.operations[rank]) if operations and step.operations[rank] else ""
                lines.append(f"  rank {rank:<3}{shown}{did}".rstrip())
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; values that a rank does not have are None."""
        return {
            "collective": self.collective,
            "algorithm": self.algorithm,
            "op": self.op,
            "root": self.root,
            "ranks": self.size,
            "dtype": self.start.values.dtype.name,
            "start": self.start.vector.rows(),
            "steps": [
                {
                    "step": step.number,
                    "phase": step.phase,
                    "states": step.vector.rows(),
                    "changed": [np.flatnonzero(row).tolist() for row in step.changed],
                    "scratch": step.scratch.rows(),
                    "scratch_changed": [np.flatnonzero(row).tolist() for row in step.scratch.changed],
                    "operations": [list(each) for each in step.operations],
                }
                for step in self.steps
            ],
        }


def _plain(value: Any) -> Any:
    """A scalar as JSON has it."""
    found = value.item()
    return str(found) if isinstance(found, complex) else found


def example_length(verb: str, algorithm: str, size: int) -> int:
    """A number of 8-byte elements of the working vector that gives every chunk and channel some of its own.

    Channels divide chunks at cache lines, so several channels need a line each.
    """
    schedule = find(verb, algorithm).schedule(size)
    each = schedule.nchunks * (8 * schedule.channels if schedule.channels > 1 else 1)
    return lcm(each, size) if COLLECTIVES[verb].in_blocks else each


def example(verb: str, rank: int, size: int, elements: int, dtype: Any = np.int64) -> Array:
    """The input of `rank`, as textbooks have it: 1, 2, 3, ... over all ranks. `elements`: of the vector.

    Raises InvalidArgumentError where the vector cannot be cut into one block per rank.
    """
    contract = contract_of(verb)
    if verb == "barrier":
        return np.array([1 << rank], dtype=np.int64)
    if elements < 1:
        raise InvalidArgumentError(f"elements is {elements}; a trace needs at least one")
    if contract.in_blocks and elements % size:
        raise InvalidArgumentError(
            f"{verb} on {size} ranks needs a multiple of {size} elements, not {elements}"
        )
    count = elements // size if contract.input == "block" else elements
    return np.arange(1 + rank * count, 1 + (rank + 1) * count).astype(dtype)


def trace(
    comm: Communicator, verb: str, algorithm: str, x: Array, op: OpLike = "sum", *, root: int = 0
) -> Trace:
    """Collective: run `algorithm` on `x` and return the states of all ranks, on every rank.

    `x` (one-dimensional) is what the verb takes: a block of each rank for gathers, else the whole vector.
    all_to_all shows the input at the start and the output after every step; scratch memory is beside it. A barrier moves no
    data: the trace shows whom each rank has heard of, bit r standing for rank r, and `x` is not looked at.
    Raises InvalidArgumentError for an unknown name or a bad `x`, UnsupportedError for reductions of 16- and
    8-bit floats (their partial sums are float32 and lie outside of the vector).
    """
    one = find(verb, algorithm)
    contract = COLLECTIVES[verb]
    if verb == "barrier":
        x, op = example(verb, comm.rank, comm.size, 1), "bor"
    if x.ndim != 1 or x.size == 0:
        raise InvalidArgumentError(f"x has shape {x.shape}; a trace needs a vector with at least one element")
    if (contract.output == "block" or contract.apart) and x.size % comm.size:
        raise InvalidArgumentError(f"x has {x.size} elements, which is no multiple of {comm.size} ranks")
    operator, place = check_arguments(verb, comm.size, x.dtype, op, root)
    schedule = one.schedule(comm.size, root=place or 0)

    inputs = comm.all_gather(x)
    blank = _blank(inputs)
    apart = contract.apart
    own = np.repeat(blank, x.size) if apart else _vector(schedule, contract.input, inputs, comm.rank, blank)
    where = -1 if place is None else place
    events = comm._trace(one, x if apart else own, own, x.size, operator, where, blank)

    def shown(operation: Operation) -> str:
        return f"{operation} (channel {operation.channel})" if schedule.channels > 1 else str(operation)

    operations = schedule.operations()
    nsteps = 1 + max((o.step for each in operations.values() for o in each), default=-1)
    own_longest = max((len(state) for _, state in events), default=own.nbytes)
    longest = int(comm.all_reduce(np.array([own_longest]), "max")[0])
    if longest > own.nbytes and not contract.reduces and own.size % schedule.nchunks:
        text = f"{verb} by {algorithm} puts parts of elements into scratch memory"
        raise UnsupportedError(f"{text}: trace a multiple of {schedule.nchunks} elements, not {own.size}")
    start = _extended(own, longest // x.itemsize, blank)
    written = [
        (step, _extended(np.frombuffer(state, own.dtype), start.size, blank)) for step, state in events
    ]
    everyone = comm.all_gather(np.stack([start, *_states(start, written, nsteps)]))
    vectors, scratch = everyone[..., : own.size], everyone[..., own.size :]
    states, extra = _memories(vectors, blank), _memories(scratch, blank)
    if apart:
        states[:1] = _memories(inputs[:, None], blank)
    names = {o.step: o.phase for each in operations.values() for o in each}
    steps = []
    for i in range(nsteps + 1):
        did = tuple(tuple(shown(o) for o in operations[r] if o.step == i - 1) for r in range(comm.size))
        steps.append(Step(i - 1, names.get(i - 1, ""), states[i], extra[i], did))
    return Trace(verb, algorithm, operator.name if operator else None, place, steps[0], tuple(steps[1:]))


def check_arguments(
    verb: str, size: int, dtype: np.dtype[Any], op: OpLike, root: int
) -> tuple[Operator | None, int | None]:
    """The operator and the root of a traced call, None where the verb has none. Raises as `trace` does."""
    contract = contract_of(verb)
    if contract.rooted and not 0 <= root < size:
        raise InvalidArgumentError(f"root {root} is not in 0..{size - 1}, the ranks")
    operator = resolve(op, size) if contract.reduces else None
    if operator is not None:
        check(operator, reducible(dtype))
        if dtype.itemsize < 4 and dtype.kind in "fV":
            raise UnsupportedError(f"partial sums of {dtype} are float32: trace float32 instead")
    return operator, root if contract.rooted else None


def _same(a: Array, b: Array) -> Array:
    """Where two arrays hold the same bits."""
    width = a.dtype.itemsize
    left, right = (np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, width) for x in (a, b))
    same: Array = (left == right).all(axis=-1)
    return same


def _blank(inputs: Array) -> Array:
    """A value that no input holds, of shape (1,): what it stands for is not there."""
    for byte in (0xA5, *range(255, -1, -1)):
        value = np.full(inputs.dtype.itemsize, byte, np.uint8).view(inputs.dtype)
        if not _same(inputs, value).any():
            return value
    raise UnsupportedError("the inputs hold every value of their dtype: there is none left for 'no data'")


def _vector(schedule: Schedule, held: str, inputs: Array, rank: int, blank: Array) -> Array:
    """The working vector of `rank` at the start."""
    if held == "block":
        vector = np.repeat(blank, inputs.size).reshape(inputs.shape)
        vector[rank] = inputs[rank]
        return vector.reshape(-1)
    has = held == "all" or rank == schedule.root
    return inputs[rank].copy() if has else np.repeat(blank, inputs.shape[1])


def _extended(state: Array, length: int, blank: Array) -> Array:
    """A rank's memory, as long as the longest of all ranks."""
    return np.concatenate([state, np.repeat(blank, length - state.size)])


def _memories(states: Array, blank: Array) -> list[Memory]:
    """The states of one memory, of shape (ranks, steps, elements), step by step."""
    known = ~_same(states, blank)
    changed = np.zeros_like(known)
    changed[:, 1:] = ~_same(states[:, 1:], states[:, :-1])
    return [Memory(states[:, i], known[:, i], changed[:, i]) for i in range(states.shape[1])]


def _states(start: Array, events: Iterable[tuple[int, Array]], nsteps: int) -> list[Array]:
    """The memory after each step: what the operations of this and earlier steps have written."""
    writes: list[list[tuple[Array, Array]]] = [[] for _ in range(nsteps)]
    before = start
    for step, after in events:
        writes[step].append((~_same(after, before), after))
        before = after
    now, states = start.copy(), []
    for written in writes:
        for where, after in written:
            now[where] = after[where]
        states.append(now.copy())
    return states
