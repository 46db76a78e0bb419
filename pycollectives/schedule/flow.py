"""Who waits for whom: every message paired with its receive, and an order of all operations without deadlock.

An operation happens at once, after
    earlier operations of its rank on the same chunk (one of the two writes it),
    a receive: the sends of its messages,
    a send: the receives that take the messages before it out of the queues to its peers (queue depth 1).
A schedule is free of deadlock if this graph has no cycle.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import NamedTuple

from .checks import failure, place_name, places
from .collectives import COLLECTIVES
from .schedule import Chunks, Operation, Schedule

Operations = dict[int, list[Operation]]
Pair = tuple[int, int, int]  # sender, receiver, channel


class End(NamedTuple):
    """One end of a message: part `part` of the operation of `rank` at `position` in its program."""

    rank: int
    position: int
    part: int


class Wait(NamedTuple):
    """A reason to wait: for the operation of `rank` at `position`."""

    rank: int
    position: int
    why: str


Waits = dict[int, list[list[Wait]]]  # per rank and operation


class Messages:
    """All messages of a schedule, by pair of ranks and channel, first in first out.

    Raises ScheduleError where a send has no receive, a receive no send, or the two disagree on the chunks.
    """

    def __init__(self, schedule: Schedule, operations: Operations) -> None:
        self.schedule, self.operations = schedule, operations
        self.apart = COLLECTIVES[schedule.collective].apart
        self.sends: dict[Pair, list[End]] = defaultdict(list)
        self.receives: dict[Pair, list[End]] = defaultdict(list)
        for rank, mine in operations.items():
            for i, op in enumerate(mine):
                for k, peer in enumerate(op.peers):
                    if op.kind == "send":
                        self.sends[rank, peer, op.channel].append(End(rank, i, k))
                    else:
                        self.receives[peer, rank, op.channel].append(End(rank, i, k))
        pairs = sorted(self.sends.keys() | self.receives.keys())
        for pair in pairs:
            self._check_count(pair)
        self.source: dict[End, End] = {}
        for pair in pairs:
            for k, (send, receive) in enumerate(zip(self.sends[pair], self.receives[pair], strict=True)):
                self._check_chunks(pair, k, send, receive)
                self.source[receive] = send

    def _at(self, end: End) -> tuple[Operation, Chunks]:
        op = self.operations[end.rank][end.position]
        return op, op.parts[end.part][1]

    def _check_count(self, pair: Pair) -> None:
        sends, receives = self.sends.get(pair, []), self.receives.get(pair, [])
        if len(sends) == len(receives):
            return
        more, less = (sends, receives) if len(sends) > len(receives) else (receives, sends)
        same = (self._at(a)[1].contents == self._at(b)[1].contents for a, b in zip(more, less, strict=False))
        extra = more[next((k for k, equal in enumerate(same) if not equal), len(less))]
        op, chunks = self._at(extra)
        peer = pair[1] if op.kind == "send" else pair[0]
        if op.kind == "send":
            text = f"sends {chunks} to rank {peer}, which never receives it"
        else:
            text = f"{op.kind} waits for {chunks} from rank {peer}, which never sends it"
        text += (
            f" ({len(sends)} sends, {len(receives)} receives){self._instead(pair, peer, op.kind == 'send')}"
        )
        raise failure(self.schedule, text, rank=extra.rank, at=op, chunk=chunks.index[0], peer=peer)

    def _instead(self, pair: Pair, peer: int, sent: bool) -> str:
        """What the peer does instead: the likely slip of the author."""
        table, other = (self.receives, self.sends) if sent else (self.sends, self.receives)
        word = "waits for" if sent else "sends to"
        for found in sorted(table):
            source, target, channel = found
            surplus = len(table[found]) > len(other.get(found, []))
            if not surplus or peer != (target if sent else source):
                continue
            step = self._at(table[found][0])[0].step
            if (source, target) == pair[:2]:
                return f"; rank {peer} {word} this rank on channel {channel} in step {step}: wrong channel?"
            third = source if sent else target
            return f"; rank {peer} {word} rank {third} in step {step} instead: wrong peer?"
        return ""

    def _check_chunks(self, pair: Pair, k: int, send: End, receive: End) -> None:
        (op, sent), (target, taken) = self._at(send), self._at(receive)
        if sent.contents == taken.contents or (self.apart and len(sent.index) == len(taken.index)):
            return
        text = f"sends {sent} to rank {pair[1]}, which receives it in step {target.step} as {taken}"
        if len(sent.index) != len(taken.index):
            text += f": {len(sent.index)} chunks sent, room for {len(taken.index)}"
        later = next(
            (e for e in self.receives[pair][k + 1 :] if self._at(e)[1].contents == sent.contents), None
        )
        if later is not None:
            text += (
                f"; {sent} is expected in step {self._at(later)[0].step}: are the two ends in another order?"
            )
        elif "scratch" in (sent.space, taken.space):
            text += "; say by like= which data chunk a scratch chunk stands for"
        wrong = next(
            (a for a, b in zip(sent.contents, taken.contents, strict=False) if a != b), sent.contents[0]
        )
        raise failure(self.schedule, text, rank=send.rank, at=op, chunk=wrong, peer=pair[1])


def accesses(op: Operation, apart: bool = False) -> tuple[set[int], set[int]]:
    """The places that an operation reads, and those that it writes."""
    named: set[int] = set()
    for _, chunks in op.parts:
        named |= places(chunks, apart)
    into = set() if op.into is None else places(op.into, apart)
    if op.kind == "send":
        return named, set()
    if op.kind == "recv":
        return set(), named
    if op.kind == "reduce":
        return named, named
    return (named if op.kind == "copy" else named | into), into


def waits(messages: Messages, *, in_program_order: bool) -> Waits:
    """What every operation waits for; `in_program_order`: also for the one before it on its channel."""
    result: Waits = {rank: [[] for _ in mine] for rank, mine in messages.operations.items()}
    for receive, send in messages.source.items():
        result[receive.rank][receive.position].append(Wait(send.rank, send.position, "its message"))
    for pair, sends in messages.sends.items():
        for taken, send in zip(messages.receives[pair], sends[1:], strict=False):
            why = f"room in the queue to rank {pair[1]}, until the message before is taken"
            result[send.rank][send.position].append(Wait(taken.rank, taken.position, why))
    for rank, mine in messages.operations.items():
        if in_program_order:
            _chain(rank, mine, result[rank])
        else:
            _conflicts(rank, mine, result[rank], messages.apart)
    return result


def _chain(rank: int, mine: list[Operation], into: list[list[Wait]]) -> None:
    before: dict[int, int] = {}
    for i, op in enumerate(mine):
        if op.channel in before:
            into[i].append(Wait(rank, before[op.channel], "the operation before it"))
        before[op.channel] = i


def _conflicts(rank: int, mine: list[Operation], into: list[list[Wait]], apart: bool) -> None:
    writer: dict[tuple[int, int], int] = {}
    readers: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, op in enumerate(mine):
        reads, writes = accesses(op, apart)
        earlier: dict[int, int] = {}
        for place in reads | writes:
            if (op.channel, place) in writer:
                earlier.setdefault(writer[op.channel, place], place)
        for place in writes:
            for reader in readers.pop((op.channel, place), ()):
                earlier.setdefault(reader, place)
            writer[op.channel, place] = i
        for place in reads - writes:
            readers[op.channel, place].append(i)
        for j, place in earlier.items():
            into[i].append(Wait(rank, j, f"an earlier operation on {place_name(place)}"))


def run_order(graph: Waits) -> list[tuple[int, int]]:
    """All operations as (rank, position) in an order that respects `graph`, near program order.

    Those on a cycle, and all that wait for them, are left out.
    """
    missing = {rank: [len(w) for w in mine] for rank, mine in graph.items()}
    unlocks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for rank, mine in graph.items():
        for i, reasons in enumerate(mine):
            for wait in reasons:
                unlocks[wait.rank, wait.position].append((rank, i))
    ready = [(i, rank) for rank, counts in missing.items() for i, n in enumerate(counts) if n == 0]
    heapq.heapify(ready)
    order: list[tuple[int, int]] = []
    while ready:
        i, rank = heapq.heappop(ready)
        order.append((rank, i))
        for after, j in unlocks[rank, i]:
            missing[after][j] -= 1
            if missing[after][j] == 0:
                heapq.heappush(ready, (j, after))
    return order


def _by_position(node: tuple[int, int]) -> tuple[int, int]:
    return node[1], node[0]


SHOWN = 12  # lines of a cycle that an error shows


def check_deadlock(messages: Messages, graph: Waits, order: list[tuple[int, int]]) -> None:
    """Raises ScheduleError with the cycle if `order` does not hold every operation."""
    done = set(order)
    stuck = [(rank, i) for rank, mine in graph.items() for i in range(len(mine)) if (rank, i) not in done]
    if not stuck:
        return
    why: dict[tuple[int, int], str] = {}
    here = stuck[0]
    while here not in why:
        wait = next(w for w in graph[here[0]][here[1]] if (w.rank, w.position) not in done)
        why[here] = wait.why
        here = (wait.rank, wait.position)
    start = list(why).index(here)
    path, reasons = list(why)[start:], list(why.values())[start:]
    first = path.index(min(path, key=_by_position))
    path, reasons = path[first:] + path[:first], reasons[first:] + reasons[:first]
    rank, i = path[0]
    stuck_op = messages.operations[rank][i]
    lines = [f"{stuck_op} can never happen (deadlock); it waits for"]
    for reason, (rank, i) in zip(reasons, [*path[1:], path[0]], strict=True):
        op = messages.operations[rank][i]
        lines.append(f"  {reason}: rank {rank}, step {op.step}: {op}, which waits for")
    lines[-1] = lines[-1].removesuffix(", which waits for") + " (the first again)"
    if len(lines) > SHOWN:
        lines[SHOWN - 2 : -1] = [f"  ... {len(lines) - SHOWN + 1} more ..."]
    chunk, peer = stuck_op.parts[0][1].index[0], stuck_op.parts[0][0]
    raise failure(messages.schedule, "\n".join(lines), rank=path[0][0], at=stuck_op, chunk=chunk, peer=peer)
