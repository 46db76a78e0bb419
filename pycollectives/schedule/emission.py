"""The instructions of one channel: where each chunk lives, in which type, and which flags an instruction has.

A chunk is read from the input until the rank first writes it, then from the output if the rank has it there,
else from a work buffer. Partial sums of 16- and 8-bit floats travel and rest as float32 (`wide`); what rests
in work or scratch memory is always wide then. A prefix sum is the result of one rank and a partial sum of the
next: where it needs rounding or scaling it rests in work memory, and goes to the output in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .plan import Flag, LoweredPlan, Where
from .schedule import Chunks


@dataclass
class Step:
    """One operation with a single message set: what fusion works on."""

    kind: str
    peers: tuple[int, ...]  # targets of a send, sources otherwise
    chunks: Chunks
    into: Chunks | None
    step: int
    message_partial: tuple[bool, ...] = ()
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
    return set(keys_of(chunks))


def keys_of(chunks: Chunks) -> list[tuple[str, int]]:
    """What names each chunk within a rank."""
    return [(chunks.space, i) for i in chunks.index]


def _last_use(step: Step, later: Sequence[Step]) -> int:
    """Does this rank not read again what `step` stores?"""
    written = step.writes()
    return 0 if any(written & other.reads() for other in later) else Flag.LAST_USE


class Channel:
    """Emits the instructions of one channel into a plan."""

    def __init__(
        self,
        plan: LoweredPlan,
        held_in: Iterable[int],
        held_out: Iterable[int],
        *,
        wide: bool,
        rests_in_work: bool,
        finishes_input: bool,
        all_places_output: bool,
        partials_apart: bool = False,
    ) -> None:
        self.plan, self.held_in, self.held_out, self.wide = plan, set(held_in), set(held_out), wide
        self.rests_in_work, self.finishes_input = rests_in_work, finishes_input
        self.always_out = all_places_output
        self.partials_apart = partials_apart
        self.stored: dict[tuple[str, int], Where] = {}  # where a written chunk is now
        self.is_wide: dict[tuple[str, int], bool] = {}  # and whether as float32
        self.connections: dict[tuple[int, ...], int] = {}
        self.first_instruction, self.first_connection = len(plan.instructions), len(plan.connections)
        self.output_written = False
        self.heard: set[int] = set()

    def emit(self, steps: list[Step]) -> None:
        written = {i for s in steps for space, i in s.writes() if space == "data"}
        untouched = [] if self.always_out else sorted(self.held_in & self.held_out - written)
        self.finished = set(untouched) if self.finishes_input else set()
        sends = 0
        while sends < len(steps) and steps[sends].kind == "send":
            sends += 1
        for i, step in enumerate(steps):
            if i == sends:
                self._fill(untouched)
            self._instruction(step, steps[i + 1 :])
        if sends == len(steps):
            self._fill(untouched)
        if not self.always_out:
            self._finish(steps[-1].step if steps else 0)
        plan = self.plan
        plan.channels.append(
            (
                self.first_instruction,
                len(plan.instructions) - self.first_instruction,
                self.first_connection,
                len(plan.connections) - self.first_connection,
            )
        )

    def _fill(self, chunks: list[int]) -> None:
        """Copies of chunks whose result is the rank's own input; nothing moves where the call is in place."""
        for i in chunks:
            flags = Flag.LAST_USE | (Flag.FINAL if self.finishes_input else 0)
            self._copy((Where.DATA_IN, i), (Where.DATA_OUT, i), False, flags | self._first_output(True), 0)

    def _finish(self, step: int) -> None:
        """Results that rest in work memory go to the output."""
        for i in sorted(self.held_out):
            if self.stored.get(("data", i)) == Where.DATA_WORK:
                flags = Flag.LAST_USE | (Flag.FINAL if self.rests_in_work else 0) | self._first_output(True)
                wide = self.is_wide["data", i]
                self._copy((Where.DATA_WORK, i), (Where.DATA_OUT, i), wide, flags, step)

    def _copy(
        self, source: tuple[Where, int], target: tuple[Where, int], wide: bool, flags: int, step: int
    ) -> None:
        read, written = self._refs([source]), self._refs([target])
        self._add([(-1, read, int(wide))], 1, written, written, -1, flags, step)

    def _instruction(self, step: Step, later: Sequence[Step]) -> None:
        n = len(step.chunks.index)
        if step.kind == "send":
            wide = self.wide and any(step.message_partial)
            operand = self._local(step.chunks, step.step)
            flags = Flag.SEND_WIDE if wide else 0
            flags |= self._may_point(step.chunks, later, wide or bool(operand[2]))
            self._add([operand], n, operand[1], -1, self._connection(step.peers), flags, step.step)
            return
        operands: list[tuple[int, int, int]] = []
        if step.kind in ("recv", "reduce"):
            arrived = step.message_partial or (False,) * len(step.peers)
            operands = sorted((q, 0, int(self.wide and w)) for q, w in zip(step.peers, arrived, strict=True))
            self.heard.update(step.peers)
        if step.kind == "reduce":
            own = self._local(step.chunks, step.step)
            operands.insert(sum(q < self.plan.rank for q in step.peers), own)
        if step.kind in ("copy", "combine"):
            operands = [self._local(step.chunks, step.step)]
        if step.kind == "combine":
            operands.append(self._local(step.target, step.step))
        targets = self._targets(step.target, self.wide and step.after_partial, later)
        store_wide = self.wide and all(w in (Where.DATA_WORK, Where.SCRATCH) for w, _ in targets)
        shape = self._refs(targets)
        flags = (Flag.STORE_WIDE if store_wide else 0) | (Flag.FINAL if step.completes else 0)
        connection = -1
        if step.forward:
            connection = self._connection(step.forward)
            forward_wide = self.wide and step.forward_partial
            flags |= Flag.SEND_WIDE if forward_wide else 0
        if step.keep:
            for (where, _), key in zip(targets, keys_of(step.target), strict=True):
                self.stored[key], self.is_wide[key] = where, store_wide
            flags |= self._first_output(any(w in (Where.DATA_OUT, Where.OUTPUT) for w, _ in targets))
            flags |= _last_use(step, later)
            if step.forward and store_wide == forward_wide:
                flags |= self._may_point(step.target, later, store_wide)
        self._add(operands, n, shape, shape if step.keep else -1, connection, flags, step.step)

    def _local(self, chunks: Chunks, step: int) -> tuple[int, int, int]:
        """The operand that reads `chunks` where they are; if some are wide the others are widened first."""
        keys = keys_of(chunks)
        wide = any(self.is_wide.get(key, False) for key in keys)
        for key, place in zip(keys, self._places(chunks), strict=True):
            if wide and not self.is_wide.get(key, False):
                self._copy(place, (Where.DATA_WORK, place[1]), False, Flag.STORE_WIDE, step)
                self.stored[key], self.is_wide[key] = Where.DATA_WORK, True
        return -1, self._refs(self._places(chunks)), int(wide)

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

    def _targets(self, chunks: Chunks, wide: bool, later: Sequence[Step]) -> list[tuple[Where, int]]:
        """Where `chunks` are written to."""
        if chunks.space == "scratch":
            return self._scratch(chunks)
        if chunks.space != "data":
            return [(Where.OUTPUT, i) for i in chunks.index]
        works = wide or self.rests_in_work or (self.wide and not self.held_out.issuperset(chunks.index))
        outgoing = set() if works else self.held_out
        if self.partials_apart and outgoing:
            again = {i for step in later for space, i in step.writes() if space == "data"}
            outgoing = outgoing - again
        return [(Where.DATA_OUT if i in outgoing else Where.DATA_WORK, i) for i in chunks.index]

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
        """The agreement check: at the first write of the output, unless all ranks have been heard then."""
        if not writes_output or self.output_written:
            return 0
        self.output_written = True
        return 0 if len(self.heard) == self.plan.size - 1 else Flag.FIRST_OUTPUT

    def _may_point(self, chunks: Chunks, later: Sequence[Step], wide: bool) -> int:
        """May peers read the sent chunk in place? One that this call does not write again, or not there."""
        if len(chunks.index) != 1 or wide or chunks.space not in ("data", "input", "output"):
            return 0
        key = next(iter(_keys(chunks)))
        if any(key in step.writes() for step in later):
            return Flag.MAY_POINT_APART if key not in self.stored else 0
        return Flag.MAY_POINT_APART if key[1] in self.finished else Flag.MAY_POINT  # in place they are scaled
