"""schedule -> fuse -> plan: one rank's operations as the flat arrays that the C++ executor runs (csrc/core/plan.hpp).

    reduce(c, left)                      one instruction: operands {left's message, own c},
    send(c, right)           ------>     connection {right}; the store to c is dropped where c is
                                         overwritten before it is read (the ring's first phase)

A plan holds chunk indices and no sizes. Where each chunk lives is decided here: it is read from the input until the rank
first writes it, then from the output if the rank has it there, else from a work buffer. Partial sums of 16- and 8-bit
floats travel and rest as float32 (`wide`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from functools import lru_cache
from typing import Any

import numpy as np

from .collectives import COLLECTIVES
from .registry import Algorithm
from .schedule import Chunks, Operation


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


@dataclass
class LoweredPlan:
    """The arrays of a plan: rows of `instructions` are operand, noperands, nrefs, shape, store, connection, flags, step."""

    size: int
    rank: int
    nchunks: int
    max_message: int
    max_connections: int
    waits_for_all: bool
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
            "waits_for_all": self.waits_for_all,
            "instructions": table(self.instructions, 8),
            "operands": table(self.operands, 3),
            "refs": table(self.refs, 2),
            "connections": table(self.connections, 2),
            "peers": np.asarray(self.peers, dtype=np.int32),
            "channels": table(self.channels, 4),
            "scratch_like": np.asarray(self.scratch_like, dtype=np.int32),
        }


@dataclass
class _Step:
    """One operation with a single message set: what fusion works on."""

    kind: str
    peers: tuple[int, ...]  # targets of a send, sources otherwise
    chunks: Chunks
    into: Chunks | None
    step: int
    message_partial: tuple[bool, ...] = ()
    before_partial: bool = False
    after_partial: bool = False
    completes: bool = False
    forward: tuple[int, ...] = ()  # targets of the fused send
    forward_partial: bool = False
    keep: bool = True  # the store is needed

    @property
    def target(self) -> Chunks:
        return self.chunks if self.into is None else self.into

    def reads(self) -> set[tuple[str, int]]:
        if self.kind in ("send", "reduce"):
            return _keys(self.chunks)
        if self.kind == "recv":
            return set()
        return _keys(self.chunks) | (_keys(self.target) if self.kind == "combine" else set())

    def writes(self) -> set[tuple[str, int]]:
        return set() if self.kind == "send" else _keys(self.target)


def _keys(chunks: Chunks) -> set[tuple[str, int]]:
    return {(chunks.space, i) for i in chunks.index}


def _messages(
    operation: Operation, rank: int, size: int
) -> Iterator[tuple[tuple[int, ...], Chunks, tuple[int, ...]]]:
    """The single messages of an operation: peers, chunks, indices of the parts. Different messages go round the ranks
    from the right neighbour on, so that not everyone starts with rank 0."""
    parts = operation.parts
    if operation.kind not in ("send", "recv"):
        yield operation.peers, parts[0][1], tuple(range(len(parts)))
        return
    if operation.kind == "send" and len({chunks for _, chunks in parts}) == 1:
        yield operation.peers, parts[0][1], tuple(range(len(parts)))
        return
    turned = sorted(range(len(parts)), key=lambda i: ((parts[i][0] or 0) - rank) % size)
    for i in turned:
        yield (parts[i][0] or 0,), parts[i][1], (i,)


def _connections(operations: Sequence[Operation], rank: int, size: int) -> int:
    """The most connections in one channel."""
    found: dict[int, set[tuple[int, ...]]] = {}
    for operation in operations:
        if operation.kind == "send":
            for peers, _, _ in _messages(operation, rank, size):
                found.setdefault(operation.channel, set()).add(peers)
    return max((len(c) for c in found.values()), default=0)


@lru_cache(maxsize=256)
def limits(algorithm: Algorithm, size: int, root: int) -> tuple[int, int]:
    """The most chunks in one message and the most connections of one channel over all ranks: all must agree on them."""
    everyone = algorithm.schedule(size, root=root).operations()
    message = max((len(c.index) for ops in everyone.values() for op in ops for _, c in op.parts), default=1)
    return message, max(1, *(_connections(ops, rank, size) for rank, ops in everyone.items()))


def lower(
    algorithm: Algorithm,
    size: int,
    rank: int,
    root: int = 0,
    *,
    staged: bool = False,
    wide: bool = False,
    fuse: bool = True,
) -> LoweredPlan:
    """The plan of `rank`.

    staged: find out which values are partial and which complete (needed for averages and for 16- and 8-bit floats).
    wide: partial values are kept and sent in the accumulation type. fuse=False: one instruction per operation, all stores
    kept and made to the output (for tracing: the output then has the size of the whole working vector).
    A schedule that is not the project's own is verified first: raises ScheduleError.
    """
    from .verifier import Stage, verified

    partial: list[tuple[tuple[bool, ...], bool, bool, bool]] | None = None
    if algorithm.builtin and not staged:
        schedule = algorithm.schedule(size, [rank], root)
        operations = schedule.operations()[rank]
        order: Sequence[int] = range(len(operations))
    else:
        proof = verified(algorithm, size, root)
        schedule, operations, order = proof.schedule, proof.operations[rank], proof.order[rank]
        partial = [
            (
                tuple(s == Stage.PARTIAL for s in message),
                before == Stage.PARTIAL,
                after == Stage.PARTIAL,
                after == Stage.COMPLETE and before != Stage.COMPLETE and op.kind in ("reduce", "combine"),
            )
            for op, message, before, after in zip(
                operations, proof.message[rank], proof.before[rank], proof.after[rank], strict=True
            )
        ]
    contract = COLLECTIVES[algorithm.collective]
    message, connections = limits(algorithm, size, root)
    plan = LoweredPlan(size, rank, schedule.nchunks, message, connections, contract.needs_all)
    everything = range(schedule.nchunks)
    held_in = everything if not fuse else contract.input_chunks(rank, size, root, schedule.nchunks)
    held_out = everything if not fuse else contract.output_chunks(rank, size, root, schedule.nchunks)
    for channel in range(schedule.channels):
        steps = []
        for i in order:
            if operations[i].channel != channel:
                continue
            for peers, chunks, parts in _messages(operations[i], rank, size):
                op = operations[i]
                one = _Step(op.kind, peers, chunks, op.into, op.step)
                if partial is not None:
                    messages, one.before_partial, one.after_partial, one.completes = partial[i]
                    one.message_partial = tuple(messages[k] for k in parts)
                steps.append(one)
        if fuse:
            steps = _fused(steps, held_out)
        alone = contract.reduces and size == 1
        _Channel(plan, set(held_in), set(held_out), wide and staged, all_places_output=not fuse).emit(
            steps, alone
        )
    return plan


def _fused(steps: list[_Step], held_out: range) -> list[_Step]:
    """Joins a receive or reduction with the send of its result that follows it, and drops stores that nobody reads."""
    fused: list[_Step] = []
    for step in steps:
        last = fused[-1] if fused else None
        if (
            step.kind == "send"
            and last
            and last.kind in ("recv", "reduce")
            and last.target == step.chunks
            and not last.forward
        ):
            last.forward, last.forward_partial = step.peers, any(step.message_partial)
            continue
        fused.append(step)
    for i, step in enumerate(fused):
        if not step.forward or step.kind != "reduce":
            continue
        for key in step.writes():
            if not _overwritten_unread(fused[i + 1 :], key) and (
                key[0] != "data" or key[1] in held_out or _read_later(fused[i + 1 :], key)
            ):
                break
        else:
            step.keep = False
    return fused


def _overwritten_unread(later: Sequence[_Step], key: tuple[str, int]) -> bool:
    for step in later:
        if key in step.reads():
            return False
        if key in step.writes():
            return True
    return False


def _read_later(later: Sequence[_Step], key: tuple[str, int]) -> bool:
    return any(key in step.reads() for step in later)


class _Channel:
    """Emits the instructions of one channel into a plan."""

    def __init__(
        self, plan: LoweredPlan, held_in: set[int], held_out: set[int], wide: bool, *, all_places_output: bool
    ) -> None:
        self.plan, self.held_in, self.held_out, self.wide = plan, held_in, held_out, wide
        self.always_out = all_places_output
        self.stored: dict[tuple[str, int], Where] = {}  # where a written chunk is now
        self.connections: dict[tuple[int, ...], int] = {}
        self.first_instruction, self.first_connection = len(plan.instructions), len(plan.connections)
        self.output_written = False
        self.heard: set[int] = set()

    def emit(self, steps: list[_Step], alone: bool) -> None:
        untouched = (
            []
            if self.always_out
            else sorted(
                self.held_in
                & self.held_out - {i for s in steps for space, i in s.writes() if space == "data"}
            )
        )
        sends = 0
        while sends < len(steps) and steps[sends].kind == "send":
            sends += 1
        for i, step in enumerate(steps):
            if i == sends:
                self._fill(untouched, alone)
            self._instruction(step, steps[i + 1 :])
        if sends == len(steps):
            self._fill(untouched, alone)
        plan = self.plan
        plan.channels.append(
            (
                self.first_instruction,
                len(plan.instructions) - self.first_instruction,
                self.first_connection,
                len(plan.connections) - self.first_connection,
            )
        )

    def _fill(self, chunks: list[int], alone: bool) -> None:
        """Copies of chunks whose result is the rank's own input; nothing moves where the call is in place."""
        for i in chunks:
            source = self._refs([(Where.DATA_IN, i)])
            target = self._refs([(Where.DATA_OUT, i)])
            flags = (Flag.FINAL if alone else 0) | self._first_output(True)
            self._add([(-1, source, 0)], 1, target, target, -1, flags, 0)

    def _instruction(self, step: _Step, later: Sequence[_Step]) -> None:
        n = len(step.chunks.index)
        if step.kind == "send":
            local = self._refs(self._places(step.chunks))
            wide = self.wide and any(step.message_partial)
            flags = (Flag.SEND_WIDE if wide else 0) | self._may_point(step.chunks, later, wide)
            self._add([(-1, local, int(wide))], n, local, -1, self._connection(step.peers), flags, step.step)
            return
        operands: list[tuple[int, int, int]] = []
        if step.kind in ("recv", "reduce"):
            arrived = step.message_partial or (False,) * len(step.peers)
            operands = [(q, 0, int(self.wide and w)) for q, w in zip(step.peers, arrived, strict=True)]
            self.heard.update(step.peers)
        if step.kind == "reduce":
            own = (-1, self._refs(self._places(step.chunks)), int(self.wide and step.before_partial))
            place = sum(q < self.plan.rank for q in step.peers)
            operands = sorted(operands)
            operands.insert(place, own)
        if step.kind in ("copy", "combine"):
            read = any(step.message_partial)
            operands = [(-1, self._refs(self._places(step.chunks)), int(self.wide and read))]
        if step.kind == "combine":
            operands.append(
                (-1, self._refs(self._places(step.target)), int(self.wide and step.before_partial))
            )
        store_wide = self.wide and step.after_partial
        targets = self._targets(step.target, store_wide)
        shape = self._refs(targets)
        flags = (Flag.STORE_WIDE if store_wide else 0) | (Flag.FINAL if step.completes else 0)
        connection = -1
        if step.forward:
            connection = self._connection(step.forward)
            forward_wide = self.wide and step.forward_partial
            flags |= Flag.SEND_WIDE if forward_wide else 0
        if step.keep:
            self.stored.update(
                ((step.target.space, i), w) for (w, _), i in zip(targets, step.target.index, strict=True)
            )
            flags |= self._first_output(any(w in (Where.DATA_OUT, Where.OUTPUT) for w, _ in targets))
            if step.forward and store_wide == forward_wide:
                flags |= self._may_point(step.target, later, store_wide)
        self._add(operands, n, shape, shape if step.keep else -1, connection, flags, step.step)

    def _add(
        self,
        operands: list[tuple[int, int, int]],
        nrefs: int,
        shape: int,
        store: int,
        connection: int,
        flags: int,
        step: int,
    ) -> None:
        plan = self.plan
        plan.instructions.append(
            (len(plan.operands), len(operands), nrefs, shape, store, connection, int(flags), step)
        )
        plan.operands.extend(operands)

    def _refs(self, places: Sequence[tuple[Where, int]]) -> int:
        self.plan.refs.extend((int(where), chunk) for where, chunk in places)
        return len(self.plan.refs) - len(places)

    def _places(self, chunks: Chunks) -> list[tuple[Where, int]]:
        """Where the values of `chunks` are."""
        if chunks.space == "scratch":
            return self._scratch(chunks)
        if chunks.space != "data":
            return [(Where.INPUT if chunks.space == "input" else Where.OUTPUT, i) for i in chunks.index]
        unread = Where.DATA_OUT if self.always_out else Where.DATA_IN
        return [(self.stored.get(("data", i), unread), i) for i in chunks.index]

    def _targets(self, chunks: Chunks, wide: bool) -> list[tuple[Where, int]]:
        """Where `chunks` are written to."""
        if chunks.space == "scratch":
            return self._scratch(chunks)
        if chunks.space != "data":
            return [(Where.OUTPUT, i) for i in chunks.index]
        return [
            (Where.DATA_OUT if i in self.held_out and not wide else Where.DATA_WORK, i) for i in chunks.index
        ]

    def _scratch(self, chunks: Chunks) -> list[tuple[Where, int]]:
        sizes = self.plan.scratch_like
        for i, like in zip(chunks.index, chunks.like, strict=True):
            sizes.extend([0] * (i + 1 - len(sizes)))
            sizes[i] = like
        return [(Where.SCRATCH, i) for i in chunks.index]

    def _connection(self, peers: tuple[int, ...]) -> int:
        if peers not in self.connections:
            self.connections[peers] = len(self.connections)
            self.plan.connections.append((len(self.plan.peers), len(peers)))
            self.plan.peers.extend(peers)
        return self.connections[peers]

    def _first_output(self, writes_output: bool) -> int:
        """The agreement check belongs to the first write of the caller's output, unless all ranks have been heard by then."""
        if not writes_output or self.output_written:
            return 0
        self.output_written = True
        return 0 if len(self.heard) == self.plan.size - 1 else Flag.FIRST_OUTPUT

    def _may_point(self, chunks: Chunks, later: Sequence[_Step], wide: bool) -> int:
        """May peers read the sent chunk in place? Only one chunk that this call does not write again, or not there."""
        if len(chunks.index) != 1 or wide or chunks.space not in ("data", "input", "output"):
            return 0
        key = next(iter(_keys(chunks)))
        if not any(key in step.writes() for step in later):
            return Flag.MAY_POINT
        return Flag.MAY_POINT_APART if key not in self.stored else 0
