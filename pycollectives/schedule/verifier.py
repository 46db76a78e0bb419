"""The verifier: proves that a schedule is right for one number of ranks, or says where it is not."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from fractions import Fraction

from ..errors import InvalidArgumentError
from .checks import check_operation, check_shape, failure, place
from .collectives import COLLECTIVES
from .execution import Execution
from .flow import Messages, Operations, check_deadlock, run_order, waits
from .program import Loop, Space
from .reduction import Stage, Tree, members
from .registry import Algorithm
from .schedule import Operation, Schedule

__all__ = ["Proof", "Stage", "Tree", "verified", "verify"]


@dataclass(frozen=True)
class Proof:
    """What the verifier has found out about a right schedule.

    rank_identical    every output chunk has the same reduction tree on every rank that holds it
    left_fold         that tree is the left fold in rank order, ((0+1)+2)+3 or 0+1+2+3
    rank_order        contributions appear in rank order in every tree: non-commutative operators work
    in_program_order  every rank may run its operations strictly one after the other, each channel by itself,
                      with one message per pair and channel under way
    order             per rank the positions of its operations in an order that may be run like that
    message           per rank and operation: the stage of what each part carries (a send: to each peer, a
                      receive: from each peer, a local operation: what is read)
    before, after     per rank and operation: the stage of its target chunks (a send: of what it sends)
    steps             number of distinct steps
    bytes_sent        per rank, in units of the whole vector, each peer counted, all chunks being equal
    """

    schedule: Schedule
    operations: Operations
    rank_identical: bool
    left_fold: bool
    rank_order: bool
    in_program_order: bool
    order: dict[int, list[int]]
    message: dict[int, list[tuple[Stage, ...]]]
    before: dict[int, list[Stage]]
    after: dict[int, list[Stage]]
    steps: int
    bytes_sent: tuple[Fraction, ...]
    trees: dict[tuple[int, int, int], Tree] = field(repr=False)  # by rank, channel and output chunk

    def tree(self, rank: int, chunk: int, channel: int = 0) -> Tree:
        """The reduction tree of an output chunk. Raises InvalidArgumentError if `rank` does not hold it."""
        try:
            return self.trees[rank, channel, chunk]
        except KeyError:
            text = f"the output of rank {rank} holds no chunk {chunk} on channel {channel}"
            raise InvalidArgumentError(text, rank=rank) from None


def verify(schedule: Schedule) -> Proof:
    """Prove a schedule that was evaluated for all its ranks.

    Proved are: every send has its receive, of the same chunks; no deadlock with queues of one message per
    pair and channel; nothing reads an empty chunk, writes the input or overlaps itself; every output chunk
    ends with exactly the contributions that the collective asks for, each once.

    Raises ScheduleError, which names rank, step and chunk.
    """
    check_shape(schedule)
    operations = schedule.operations()
    for rank, mine in operations.items():
        for op in mine:
            check_operation(schedule, rank, op)
    messages = Messages(schedule, operations)
    graph = waits(messages, in_program_order=False)
    order = run_order(graph)
    check_deadlock(messages, graph, order)
    execution = Execution(schedule, messages)
    execution.run(order)
    trees = _results(schedule, execution)

    total = len(order)
    in_program_order = len(run_order(waits(messages, in_program_order=True))) == total
    by_rank: dict[int, list[int]] = {rank: [] for rank in operations}
    for rank, i in order:
        by_rank[rank].append(i)
    program_order = {rank: list(range(len(mine))) for rank, mine in operations.items()}
    holders: dict[tuple[int, ...], set[int]] = {}
    for (_, channel, _), tree in trees.items():
        holders.setdefault((channel, tree.chunk, tree.contributors), set()).add(id(tree))
    return Proof(
        schedule=schedule,
        operations=operations,
        rank_identical=all(len(distinct) == 1 for distinct in holders.values()),
        left_fold=all(tree.fold for tree in trees.values()),
        rank_order=all(tree.ordered for tree in trees.values()),
        in_program_order=in_program_order,
        order=program_order if in_program_order else by_rank,
        message=execution.message,
        before=execution.before,
        after=execution.after,
        steps=len({op.step for mine in operations.values() for op in mine}),
        bytes_sent=tuple(_sent(schedule, mine) for mine in operations.values()),
        trees=trees,
    )


def _sent(schedule: Schedule, mine: list[Operation]) -> Fraction:
    chunks = sum(len(chunks.index) for op in mine if op.kind == "send" for _, chunks in op.parts)
    return Fraction(chunks, schedule.nchunks * schedule.channels)


def _results(schedule: Schedule, execution: Execution) -> dict[tuple[int, int, int], Tree]:
    """The trees of all output chunks, by rank, channel and chunk; ScheduleError for one that is not right."""
    size, verb = schedule.size, COLLECTIVES[schedule.collective]
    where: Space = "output" if verb.apart or verb.prefix == "exclusive" else "data"
    trees: dict[tuple[int, int, int], Tree] = {}
    for rank in range(size):
        if verb.repeats and execution.heard[rank] != (1 << size) - 1:
            missing = members(((1 << size) - 1) & ~execution.heard[rank])
            last = execution.operations[rank][-1:]
            text = f"passes the {verb.name} without having heard of {_ranks(missing)}"
            raise failure(schedule, text, rank=rank, at=last[0] if last else None, chunk=0, peer=missing[0])
        for channel in range(schedule.channels):
            for chunk in verb.output_chunks(rank, size, schedule.root, schedule.nchunks):
                tree = execution.value(rank, channel, where, chunk)
                origin = verb.origin(chunk, rank, size, schedule.nchunks)
                if tree is None or tree.contributors != execution.wanted(rank, chunk) or tree.chunk != origin:
                    raise _wrong(schedule, execution, rank, channel, chunk, tree)
                trees[rank, channel, chunk] = tree
    return trees


def _wrong(
    schedule: Schedule, execution: Execution, rank: int, channel: int, chunk: int, tree: Tree | None
) -> Exception:
    verb, wanted = execution.verb, execution.wanted(rank, chunk)
    has = 0 if tree is None else tree.contributors
    text = f"ends with chunk {chunk} wrong" + (f" on channel {channel}" if schedule.channels > 1 else "")
    missing, extra = members(wanted & ~has), members(has & ~wanted)
    text += f": {_ranks(missing)} missing" if missing else ""
    text += f"{' and' if missing else ':'} {_ranks(extra)} too much" if extra else ""
    origin = verb.origin(chunk, rank, schedule.size, schedule.nchunks)
    if tree is not None and tree.chunk != origin:
        text += f"; it is their input chunk {tree.chunk}, not {origin}"
    written = execution.written[rank, channel].get(place("output", chunk, verb.apart))
    last = None if written is None else execution.operations[rank][written[1]]
    text += "; it is never written" if last is None else f"; it is last written in step {last.step}: {last}"
    values = ((r, execution.value(r, channel, "data", chunk)) for r in range(schedule.size))
    whole = [r for r, v in values if v is not None and v.contributors == wanted]
    if whole and not (verb.apart or verb.prefix):
        text += f"; {_ranks(whole)} {'has' if len(whole) == 1 else 'have'} it complete"
    return failure(schedule, text, rank=rank, at=last, chunk=chunk)


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' * (len(ranks) > 1)} {shown}"


@functools.lru_cache(maxsize=64)
def verified(algorithm: Algorithm, size: int, root: int = 0) -> Proof:
    """Prove `algorithm` for `size` ranks, evaluated for all ranks at once, rank by rank, and symbolically.

    The three evaluations must give the same operations, since each rank compiles its plan alone.

    Raises ScheduleError, which names rank, step and chunk.
    """
    proof = verify(algorithm.schedule(size, root=root))
    symbolic = algorithm.schedule(size, root=root, symbolic=True)
    if any(isinstance(node, Loop) for node in symbolic.program.nodes):
        _compare(proof, symbolic, "with symbolic steps", "operators and select keep a symbolic step")
    hint = "values may depend on the numbers in p.rank, not on how many there are"
    for rank in range(size):
        _compare(proof, algorithm.schedule(size, [rank], root), "alone", hint)
    return proof


def _compare(proof: Proof, other: Schedule, how: str, hint: str) -> None:
    """ScheduleError if the ranks of `other` do something else than in the proof."""
    schedule = proof.schedule
    shape = (schedule.nchunks, schedule.channels)
    if (other.nchunks, other.channels) != shape:
        text = f"evaluated {how} it has chunks, channels = {other.nchunks}, {other.channels}"
        raise failure(schedule, f"{text}, else {shape[0]}, {shape[1]}: {hint}", rank=other.ranks[0])
    for rank, there in other.operations().items():
        if there != proof.operations[rank]:
            raise _difference(proof, rank, there, how, hint)


def _difference(proof: Proof, rank: int, there: list[Operation], how: str, hint: str) -> Exception:
    here = proof.operations[rank]
    i = next(
        (i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there))
    )
    if i == len(here):
        text = f"evaluated {how} it has {len(there)} operations, else {i}; the first more is: {there[i]}"
    else:
        found = str(there[i]) if i < len(there) else "nothing"
        if found == str(here[i]):
            found += f" in step {there[i].step}, phase {there[i].phase!r}, channel {there[i].channel}"
        text = f"evaluated {how} its operation {i} is: {found}; among all ranks: {here[i]}"
    op = (here if i < len(here) else there)[i]
    chunk = op.parts[0][1].index[0]
    return failure(proof.schedule, f"{text}: {hint}", rank=rank, at=op, chunk=chunk)
