"""Symbolic execution: the operations of all ranks in a given order, on reduction trees in place of data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..errors import ScheduleError
from .checks import failure, place
from .collectives import COLLECTIVES
from .flow import End, Messages
from .program import Space
from .reduction import Stage, Tree, Trees, common, members
from .schedule import Chunks, Operation, Schedule


class Execution:
    """Runs every operation once and records the stage of all that it moves.

    Raises ScheduleError where an operation reads a chunk that is empty, or counts a contribution twice.
    """

    def __init__(self, schedule: Schedule, messages: Messages) -> None:
        self.schedule, self.messages = schedule, messages
        self.operations = messages.operations
        self.verb, self.trees = COLLECTIVES[schedule.collective], Trees()
        ranks, n = range(schedule.size), schedule.nchunks
        self.inputs = [self.verb.input_chunks(r, schedule.size, schedule.root, n) for r in ranks]
        self._complete = {} if self.verb.prefix else {c: self.wanted(0, c) for c in range(n)}
        self.heard = [1 << r for r in ranks]  # whose token has come (barrier)
        # What has been written, by (rank, channel) and place: the tree and the operation.
        self.written: dict[tuple[int, int], dict[int, tuple[Tree, int]]] = defaultdict(dict)
        self.under_way: dict[End, tuple[Tree, ...]] = {}
        empty = {r: len(mine) for r, mine in self.operations.items()}
        self.message: dict[int, list[tuple[Stage, ...]]] = {r: [()] * k for r, k in empty.items()}
        self.before = {r: [Stage.EMPTY] * k for r, k in empty.items()}
        self.after = {r: [Stage.EMPTY] * k for r, k in empty.items()}

    def run(self, order: Iterable[tuple[int, int]]) -> None:
        """Execute the operations (rank, index) of `order`."""
        for rank, i in order:
            op = self.operations[rank][i]
            if op.kind == "send":
                carried = self._send(rank, i, op)
            elif op.into is None:
                carried = self._receive(rank, i, op)
            else:
                carried = self._local(rank, i, op, op.into)
            self.message[rank][i] = tuple(self.stage(part) for part in carried)

    def wanted(self, rank: int, chunk: int) -> int:
        """The contributors that `rank`'s result of `chunk` must have, as a mask."""
        schedule = self.schedule
        found = self.verb.contributors(chunk, rank, schedule.size, schedule.root, schedule.nchunks)
        return (1 << found.stop) - (1 << found.start)

    def stage(self, values: Iterable[Tree | None]) -> Stage:
        """The stage of several chunks together."""
        return common([self._stage(v) for v in values])

    def _stage(self, tree: Tree | None) -> Stage:
        if tree is None:
            return Stage.EMPTY
        if self.verb.reduces and tree.contributors == self._complete.get(tree.chunk):
            return Stage.COMPLETE
        return Stage.PARTIAL if tree.parts else Stage.ORIGINAL

    def value(self, rank: int, channel: int, space: Space, index: int) -> Tree | None:
        """What a chunk holds now; None if it is empty. Data that was never written is the input's."""
        if space != "input":
            found = self.written[rank, channel].get(place(space, index, self.verb.apart))
            if found is not None:
                return found[0]
        from_input = space in ("data", "input") and index in self.inputs[rank]
        return self.trees.leaf(rank, index) if from_input else None

    # -- operations ----------------------------------------------------------------------------------------

    def _send(self, rank: int, i: int, op: Operation) -> list[tuple[Tree, ...]]:
        carried = [self._read(rank, i, op, chunks, "sends") for _, chunks in op.parts]
        for k, values in enumerate(carried):
            self.under_way[End(rank, i, k)] = values
        self.before[rank][i] = self.after[rank][i] = self.stage(v for part in carried for v in part)
        return carried

    def _receive(self, rank: int, i: int, op: Operation) -> list[tuple[Tree, ...]]:
        sources = [self.messages.source[End(rank, i, k)] for k in range(len(op.parts))]
        carried = [self.under_way.pop(source) for source in sources]
        arrived: dict[tuple[Space, int], list[tuple[int, Tree]]] = defaultdict(list)
        for (peer, chunks), values in zip(op.parts, carried, strict=True):
            assert peer is not None
            for index, tree in zip(chunks.index, values, strict=True):
                arrived[chunks.space, index].append((peer, tree))
                self.heard[rank] |= tree.contributors
        before = [self.value(rank, op.channel, *where) for where in arrived]
        if op.kind == "reduce":
            for _, chunks in op.parts:
                self._read(rank, i, op, chunks, "reduces into")
        results = []
        for (space, index), found in arrived.items():
            tree = found[0][1]
            if op.kind == "reduce":
                own = self.value(rank, op.channel, space, index)
                assert own is not None
                tree = self._join(rank, op, index, [*found, (rank, own)])
            self.written[rank, op.channel][place(space, index, self.verb.apart)] = (tree, i)
            results.append(tree)
        self.before[rank][i], self.after[rank][i] = self.stage(before), self.stage(results)
        return carried

    def _local(self, rank: int, i: int, op: Operation, into: Chunks) -> list[tuple[Tree, ...]]:
        verb = "copies" if op.kind == "copy" else "combines"
        values = self._read(rank, i, op, op.parts[0][1], verb)
        before = [self.value(rank, op.channel, into.space, index) for index in into.index]
        results = values
        if op.kind == "combine":
            targets = self._read(rank, i, op, into, "combines into")
            joined = zip(into.index, values, targets, strict=True)
            results = tuple(self._join(rank, op, c, [(0, a), (1, b)]) for c, a, b in joined)
        for index, tree in zip(into.index, results, strict=True):
            self.written[rank, op.channel][place(into.space, index, self.verb.apart)] = (tree, i)
        self.before[rank][i], self.after[rank][i] = self.stage(before), self.stage(results)
        return [values]

    def _read(self, rank: int, i: int, op: Operation, chunks: Chunks, verb: str) -> tuple[Tree, ...]:
        values = []
        for index, content in zip(chunks.index, chunks.contents, strict=True):
            if chunks.space == "input" and index in self.written[rank, op.channel]:
                text = f"{verb} input chunk {index} after chunk {index} was written (in place: the same)"
                text += "; keep a copy in scratch"
                raise failure(self.schedule, text, rank=rank, at=op, chunk=index)
            tree = self.value(rank, op.channel, chunks.space, index)
            if tree is None:
                raise self._empty(rank, i, op, Chunks(chunks.space, (index,)), verb)
            if tree.chunk != content and not self.verb.apart:
                text = f"{verb} scratch chunk {index} as chunk {content}, but it holds chunk {tree.chunk}"
                text += ": the two say different like="
                raise failure(self.schedule, text, rank=rank, at=op, chunk=index)
            values.append(tree)
        return tuple(values)

    def _join(self, rank: int, op: Operation, index: int, values: list[tuple[int, Tree]]) -> Tree:
        parts = tuple(tree for _, tree in sorted(values, key=lambda entry: entry[0]))
        seen = 0
        for tree in parts:
            if seen & tree.contributors and not self.verb.repeats:
                raise self._twice(rank, op, index, values, members(seen & tree.contributors))
            seen |= tree.contributors
        return self.trees.join(parts)

    # -- failures ------------------------------------------------------------------------------------------

    def _empty(self, rank: int, i: int, op: Operation, chunks: Chunks, verb: str) -> ScheduleError:
        text, chunk = f"{verb} {chunks}, which is still empty", chunks.index[0]
        apart = self.verb.apart
        where = place(chunks.space, chunk, apart)
        for later in self.operations[rank][i + 1 :]:
            targets = [later.into] if later.into else [c for _, c in later.parts if later.kind != "send"]
            if later.channel == op.channel and any(
                where in (place(c.space, index, apart) for index in c.index) for c in targets
            ):
                text += f": it is first written in step {later.step}, later in the program"
                break
        else:
            text += ": nothing is written to it before" if op.kind != "reduce" else ""
        if op.kind == "reduce":
            text += "; did you mean recv?"
        return failure(self.schedule, text, rank=rank, at=op, chunk=chunk)

    def _twice(
        self, rank: int, op: Operation, index: int, values: list[tuple[int, Tree]], ranks: list[int]
    ) -> ScheduleError:
        peer = op.parts[0][0] if len(op.parts) == 1 else None
        source = "" if op.into is not None else f" from {', '.join(map(str, op.peers))}"
        whose = (
            f"the contribution of rank {ranks[0]}"
            if len(ranks) == 1
            else f"the contributions of ranks {ranks}"
        )
        text = f"{op.kind} of chunk {index}{source} counts {whose} twice"
        if op.kind == "reduce" and peer is not None:
            arrived, own = values[0][1].contributors, values[-1][1].contributors
            if arrived & own == own:
                text += ": what arrives contains all that is here; did you mean recv?"
            elif arrived & own == arrived:
                text += ": all that arrives is here already"
        return failure(self.schedule, text, rank=rank, at=op, chunk=index, peer=peer)
