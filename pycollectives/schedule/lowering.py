"""schedule -> fuse -> plan: from a schedule to what the C++ executor runs.

    reduce(c, left)                      one instruction: operands {left's message, own c},
    send(c, right)           ------>     connection {right}; the store to c is dropped where c is
                                         overwritten before it is read (the ring's first phase)

Named chunks of the input and of the output are those of the working vector (a verified schedule reads the
input only before the chunk is written), but for verbs whose output lies apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from .collectives import COLLECTIVES
from .emission import Channel, Step
from .plan import LoweredPlan
from .registry import Algorithm
from .schedule import Chunks, Operation


def _in_vector(chunks: Chunks) -> Chunks:
    """Chunks of the input or the output as those of the working vector."""
    return replace(chunks, space="data") if chunks.space in ("input", "output") else chunks


def _pieces(chunks: Chunks, most: int) -> list[Chunks]:
    """`chunks` in sets of at most `most`."""
    starts = range(0, len(chunks.index), most)
    return [replace(chunks, index=chunks.index[i : i + most], like=chunks.like[i : i + most]) for i in starts]


def _messages(
    operation: Operation, rank: int, size: int
) -> Iterator[tuple[tuple[int, ...], Chunks, tuple[int, ...]]]:
    """The single messages of an operation: peers, chunks, indices of the parts.

    Different messages go round the ranks from the right neighbour on: not everyone starts with rank 0.
    """
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


class Limits(NamedTuple):
    """What all ranks must agree on: the most chunks in one message, the most connections of one channel, the number of
    steps; do all ranks send as many messages?"""

    message: int
    connections: int
    steps: int
    balanced: bool


@lru_cache(maxsize=256)
def limits(algorithm: Algorithm, size: int, root: int) -> Limits:
    """Read off the schedules of all ranks."""
    everyone = algorithm.schedule(size, root=root).operations()
    messages = (op for ops in everyone.values() for op in ops if op.into is None)
    message = max((len(c.index) for op in messages for _, c in op.parts), default=1)
    steps = 1 + max((op.step for ops in everyone.values() for op in ops), default=0)
    connections = max(1, *(_connections(ops, rank, size) for rank, ops in everyone.items()))
    balanced = len({sum(op.kind == "send" for op in ops) for ops in everyone.values()}) == 1
    return Limits(message, connections, steps, balanced)


def lower(
    algorithm: Algorithm,
    size: int,
    rank: int,
    root: int = 0,
    *,
    staged: bool = False,
    wide: bool = False,
    fuse: bool = True,
    partials_apart: bool = False,
) -> LoweredPlan:
    """The plan of `rank`.

    staged: find out which values are partial and which complete (needed for averages and for 16- and 8-bit
    floats). wide: partial values are kept and sent in the accumulation type. fuse=False: one instruction per
    operation, all stores kept and made to the output (for tracing: the output then has the size of the whole
    working vector). partials_apart: a chunk goes to the output only when it is written for the last time, that is when it is
    complete: it then has passed through all ranks, each of which has compared the fingerprint of the call.
    A schedule that is not the project's own is verified first: raises ScheduleError.
    """
    from .verifier import Stage, verified

    partial: list[tuple[tuple[bool, ...], bool, bool]] | None = None
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
                after == Stage.PARTIAL,
                after == Stage.COMPLETE and before != Stage.COMPLETE and op.kind in ("reduce", "combine"),
            )
            for op, message, before, after in zip(
                operations, proof.message[rank], proof.before[rank], proof.after[rank], strict=True
            )
        ]
    contract = COLLECTIVES[algorithm.collective]
    message, connections, depth, balanced = limits(algorithm, size, root)
    proves_all = partials_apart and fuse and contract.reduces
    plan = LoweredPlan(
        size, rank, schedule.nchunks, message, connections, depth, contract.needs_all, proves_all, balanced
    )
    everything = range(schedule.nchunks)
    held_in = everything if not fuse else contract.input_chunks(rank, size, root, schedule.nchunks)
    held_out = everything if not fuse else contract.output_chunks(rank, size, root, schedule.nchunks)
    for channel in range(schedule.channels):
        steps: list[Step] = []
        for i in order:
            op = operations[i]
            if op.channel != channel:
                continue
            into = op.into if op.into is None or contract.apart else _in_vector(op.into)
            for peers, chunks, parts in _messages(op, rank, size):
                named = chunks if contract.apart else _in_vector(chunks)
                sources = [named] if into is None else _pieces(named, message)
                targets = [into] if into is None else _pieces(into, message)
                for source, target in zip(sources, targets, strict=True):
                    one = Step(op.kind, peers, source, target, op.step)
                    if partial is not None:
                        messages, one.after_partial, one.completes = partial[i]
                        one.message_partial = tuple(messages[k] for k in parts)
                    steps.append(one)
        if fuse:
            steps = _fused(steps, held_out)
        Channel(
            plan,
            () if contract.apart else held_in,
            () if contract.apart else held_out,
            wide=wide and staged,
            rests_in_work=bool(contract.prefix) and staged and fuse,
            finishes_input=contract.reduces and (size == 1 or bool(contract.prefix)),
            all_places_output=not fuse,
            partials_apart=proves_all,
        ).emit(steps)
    return plan


def _fused(steps: list[Step], held_out: range) -> list[Step]:
    """Joins a receive or reduction with the send of its result behind it; drops stores that nobody reads."""
    fused: list[Step] = []
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


def _overwritten_unread(later: Sequence[Step], key: tuple[str, int]) -> bool:
    for step in later:
        if key in step.reads():
            return False
        if key in step.writes():
            return True
    return False


def _read_later(later: Sequence[Step], key: tuple[str, int]) -> bool:
    return any(key in step.reads() for step in later)
