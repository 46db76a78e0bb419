"""What can be wrong with one operation by itself, and how the verifier words a failure."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import ScheduleError
from .collectives import COLLECTIVES
from .program import Space
from .schedule import Chunks, Operation, Schedule


def failure(
    schedule: Schedule,
    text: str,
    *,
    rank: int | None = None,
    at: Operation | None = None,
    chunk: int | None = None,
    peer: int | None = None,
) -> ScheduleError:
    """The ScheduleError that says `text` of `rank` at operation `at`."""
    where = "" if rank is None else f"rank {rank}: "
    if at is not None:
        phase = f" ({at.phase})" if at.phase else ""
        channel = f", channel {at.channel}" if schedule.channels > 1 else ""
        where = f"rank {rank}, step {at.step}{phase}{channel}: "
    return ScheduleError(
        f"{schedule.collective} by {schedule.algorithm!r} with {schedule.size} ranks: {where}{text}",
        chunk=chunk,
        rank=rank,
        step=None if at is None else at.step,
        peer=peer,
        collective=schedule.collective,
        algorithm=schedule.algorithm,
    )


def check_shape(schedule: Schedule) -> None:
    """The schedule as a whole: ranks, root, number of chunks."""
    verb, size = COLLECTIVES[schedule.collective], schedule.size
    if schedule.ranks != list(range(size)):
        raise failure(schedule, f"only all ranks together can be verified, not {schedule.ranks}")
    if not 0 <= schedule.root < size:
        raise failure(schedule, f"there is no root {schedule.root}")
    if verb.in_blocks and schedule.nchunks % size:
        text = f"{schedule.nchunks} chunks; the blocks of the ranks need a multiple of {size}"
        raise failure(schedule, text)


def check_operation(schedule: Schedule, rank: int, op: Operation) -> None:
    """One operation: peers, buffers it may touch, and that its chunks do not overlap.

    Raises ScheduleError.
    """
    _check_peers(schedule, rank, op)
    verb = COLLECTIVES[schedule.collective]
    outputs = verb.output_chunks(rank, schedule.size, schedule.root, schedule.nchunks)
    inputs = verb.input_chunks(rank, schedule.size, schedule.root, schedule.nchunks)
    for peer, chunks in op.parts:
        _check_set(schedule, rank, op, chunks, peer)
        if verb.apart and chunks.space == "data":
            raise _no_vector(schedule, rank, op, chunks)
        if op.kind in ("recv", "reduce"):
            _check_target(schedule, rank, op, chunks, outputs)
        elif chunks.space in ("input", "output"):
            held = inputs if chunks.space == "input" else outputs
            for chunk in (c for c in chunks.index if c not in held):
                text = f"{op.kind} reads {chunks.space} chunk {chunk}, but {_holding(chunks.space, held)}"
                raise failure(schedule, text, rank=rank, at=op, chunk=chunk, peer=peer)
    if op.into is not None:
        _check_set(schedule, rank, op, op.into, None)
        if verb.apart and op.into.space == "data":
            raise _no_vector(schedule, rank, op, op.into)
        _check_target(schedule, rank, op, op.into, outputs)
        _check_local(schedule, rank, op, op.parts[0][1], op.into)
    if op.kind == "recv":
        _check_disjoint(schedule, rank, op)
    if op.kind == "reduce" and len({chunks for _, chunks in op.parts}) > 1:
        text = "reduce names different chunks for its sources: an n-ary reduction has one result"
        raise failure(schedule, text, rank=rank, at=op, chunk=op.parts[0][1].index[0], peer=op.parts[1][0])


def _no_vector(schedule: Schedule, rank: int, op: Operation, chunks: Chunks) -> ScheduleError:
    text = f"{op.kind} names {chunks}, but {schedule.collective} has no working vector"
    text += ": use input(), output() and scratch()"
    return failure(schedule, text, rank=rank, at=op, chunk=chunks.index[0])


def _check_peers(schedule: Schedule, rank: int, op: Operation) -> None:
    chunk = op.parts[0][1].index[0]
    for i, peer in enumerate(op.peers):
        if not 0 <= peer < schedule.size:
            text = f"{op.kind} names peer {peer}, but ranks are 0..{schedule.size - 1}: use % size, or NULL"
            raise failure(schedule, text, rank=rank, at=op, chunk=chunk, peer=peer)
        if peer == rank:
            text = f"{op.kind} names the rank itself as its peer: use copy or combine, or NULL"
            raise failure(schedule, text, rank=rank, at=op, chunk=chunk, peer=peer)
        if peer in op.peers[:i]:
            text = f"{op.kind} names peer {peer} twice: one operation, one message to a peer"
            raise failure(schedule, text, rank=rank, at=op, chunk=chunk, peer=peer)


def _check_set(schedule: Schedule, rank: int, op: Operation, chunks: Chunks, peer: int | None) -> None:
    if chunks.space == "scratch" and min(chunks.index) < 0:
        text = f"scratch chunk {min(chunks.index)}: scratch is numbered from 0 and does not wrap"
        raise failure(schedule, text, rank=rank, at=op, chunk=min(chunks.index), peer=peer)
    twice = _repeated(chunks.index)
    if twice is not None:
        text = f"{op.kind} names chunk {twice} twice in one set {list(chunks.index)}"
        if len(chunks.index) > schedule.nchunks:
            text += f": there are only {schedule.nchunks} chunks"
        raise failure(schedule, text, rank=rank, at=op, chunk=twice, peer=peer)


def _check_target(schedule: Schedule, rank: int, op: Operation, chunks: Chunks, outputs: range) -> None:
    if chunks.space == "input":
        text = f"{op.kind} writes {chunks}: the input is read only; use chunk() for the working vector"
        raise failure(schedule, text, rank=rank, at=op, chunk=chunks.index[0])
    for chunk in chunks.index if chunks.space == "output" else ():
        if chunk not in outputs:
            text = f"{op.kind} writes output chunk {chunk}, but {_holding('output', outputs)}"
            text += ": use chunk() or scratch()"
            raise failure(schedule, text, rank=rank, at=op, chunk=chunk)


def _check_local(schedule: Schedule, rank: int, op: Operation, source: Chunks, target: Chunks) -> None:
    if len(source.index) != len(target.index):
        text = f"{op.kind} of {len(source.index)} chunks into {len(target.index)}: {source} into {target}"
        raise failure(schedule, text, rank=rank, at=op, chunk=target.index[0])
    apart = COLLECTIVES[schedule.collective].apart
    overlap = sorted(places(source, apart) & places(target, apart))
    if overlap:
        chunk = index_of(overlap[0])
        text = f"{op} onto itself (chunk {chunk})"
        if source.space == "input":
            text += ": chunk() reads the input until it is first written"
        raise failure(schedule, text, rank=rank, at=op, chunk=chunk)
    for a, b in zip(source.contents, target.contents, strict=True):
        if a != b and not apart:
            text = f"{op}: data of chunk {a} would end in chunk {b}"
            if "scratch" in (source.space, target.space):
                text += "; say by like= which data chunk a scratch chunk stands for"
            raise failure(schedule, text, rank=rank, at=op, chunk=b)


def _check_disjoint(schedule: Schedule, rank: int, op: Operation) -> None:
    seen: dict[int, int | None] = {}
    for peer, chunks in op.parts:
        for chunk in chunks.index:
            where = place(chunks.space, chunk)  # a receive never writes the input
            if where in seen:
                text = f"recv puts what ranks {seen[where]} and {peer} send into the same chunk {chunk}"
                text += ": did you mean reduce?"
                raise failure(schedule, text, rank=rank, at=op, chunk=chunk, peer=peer)
            seen[where] = peer


OUTPUT_APART = 1 << 40


def place(space: Space, index: int, apart: bool = False) -> int:
    """Where a chunk lies, as a number; scratch is below 0.

    Data, input and output share places (as in a call in place), but for verbs whose output lies `apart`.
    """
    if space == "scratch":
        return -1 - index
    return index + OUTPUT_APART if apart and space == "output" else index


def index_of(place: int) -> int:
    """The chunk at a place."""
    return -1 - place if place < 0 else place % OUTPUT_APART


def place_name(place: int) -> str:
    """A place in words."""
    kind = "scratch " if place < 0 else "output " if place >= OUTPUT_APART else ""
    return f"{kind}chunk {index_of(place)}"


def places(chunks: Chunks, apart: bool = False) -> set[int]:
    """`place` of each."""
    return {place(chunks.space, i, apart) for i in chunks.index}


def _repeated(index: Iterable[int]) -> int | None:
    seen: set[int] = set()
    for i in index:
        if i in seen:
            return i
        seen.add(i)
    return None


def _holding(space: str, held: range) -> str:
    if not held:
        return f"this rank has no {space}"
    return f"the {space} of this rank holds chunk" + (
        f"s {held[0]}..{held[-1]}" if len(held) > 1 else f" {held[0]}"
    )
