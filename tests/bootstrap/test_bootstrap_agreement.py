"""The agreement of ranks on several hosts, explored: every order in which three ranks can come, take their turns, be lost and
find each other late, with a clock that stands still unless it is moved.

The ranks are real (agreement.py, reunion.py); what is between them is a queue for each direction.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pycollectives.bootstrap import agreement
from pycollectives.bootstrap.agreement import Agreement, Decision
from pycollectives.bootstrap.reunion import Line, Reunion
from pycollectives.errors import PeerError

TIMEOUT = 10.0
LATE = 4 * TIMEOUT  # nobody comes later


class Socket:
    """One end of a connection."""

    def __init__(self) -> None:
        self.peer: Socket
        self.data, self.closed = b"", False

    @classmethod
    def pair(cls) -> tuple[Socket, Socket]:
        one, other = cls(), cls()
        one.peer, other.peer = other, one
        return one, other

    def setblocking(self, _: bool) -> None: ...
    def settimeout(self, _: float) -> None: ...

    def sendall(self, data: bytes) -> None:
        if self.peer.closed:
            raise BrokenPipeError
        self.peer.data += data

    def recv(self, _: int) -> bytes:
        data, self.data = self.data, b""
        if not data and not self.peer.closed:
            raise BlockingIOError
        return data

    def close(self) -> None:
        self.closed = True


class Listener:
    """The queue at a door."""

    def __init__(self) -> None:
        self.queue: list[Socket] = []

    def accept(self) -> tuple[Socket, None]:
        if not self.queue:
            raise BlockingIOError
        return self.queue.pop(0), None

    def close(self) -> None: ...


class Door(Reunion):
    """A door of this world."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank
        self._listener: Any = Listener()
        self.secret = b"secret"
        self._callers = []
        self._lock: Any = contextlib.nullcontext()

    def call(self, ranks: Any) -> dict[int, Line]:
        lines = {}
        for rank in ranks:
            if rank not in self.world.dead:
                mine, theirs = Socket.pair()
                self.world.doors[rank]._listener.queue.append(theirs)
                lines[rank] = Line(mine, self.secret)  # type: ignore[arg-type]
        return lines


class World:
    """Ranks that have not come, are in the agreement, have an outcome, or are dead."""

    def __init__(self, size: int, timeouts: list[float]) -> None:
        self.size, self.now, self.timeouts = size, 0.0, timeouts
        self.dead: set[int] = set()
        self.doors = [Door(self, rank) for rank in range(size)]
        self.inside: dict[int, Agreement] = {}
        self.came: dict[int, float] = {}
        self.outcomes: dict[int, Decision | None] = {}  # None: the others have gone on without it
        self.over = LATE  # when the first one has decided

    def gone(self, rank: int) -> str:
        return "dead" if rank in self.dead else ""

    def come(self, rank: int) -> None:
        self.came[rank] = self.now
        self.inside[rank] = Agreement(
            self.doors[rank], "world", 1, rank, range(self.size), self.timeouts[rank], self.gone, int
        )

    def step(self, rank: int) -> None:
        try:
            found = self.inside[rank].step(self.now)
        except PeerError:
            self.outcomes[rank] = None
        else:
            if found is None:
                return
            self.outcomes[rank] = found[0]
            self.over = min(self.over, self.now)
        self.leave(rank)

    def leave(self, rank: int) -> None:
        for line in self.inside.pop(rank)._lines.values():
            line.close()

    def kill(self, rank: int) -> None:
        self.dead.add(rank)
        if rank in self.inside:
            self.leave(rank)
        for caller in self.doors[rank]._callers:
            caller.line.close()
        for sock in self.doors[rank]._listener.queue:
            sock.close()

    def deadlines(self) -> list[float]:
        """When something happens by itself."""
        times = [
            time
            for one in self.inside.values()
            for time in [*one._late.values(), *([] if one._until is None else [one._until])]
        ]
        return sorted({time for time in times if time > self.now})

    def key(self) -> Any:
        """Two worlds of one key have the same future."""

        def at(time: float | None) -> float | None:
            return None if time is None else max(round(time - self.now, 3), 0.0)

        def said(line: Line) -> Any:
            return line.sock.data, line._read, line.ended, line.sock.peer.closed  # type: ignore[attr-defined]

        ranks = []
        for rank in range(self.size):
            door, one = self.doors[rank], self.inside.get(rank)
            ranks.append((
                rank in self.dead, rank in self.came, str(self.outcomes.get(rank, "")),
                [(sock.data, sock.peer.closed) for sock in door._listener.queue],
                [(str(each.request), each.told, said(each.line)) for each in door._callers],
                one and [
                    [(peer, said(line)) for peer, line in sorted(one._lines.items())],
                    [(peer, at(time)) for peer, time in sorted(one._late.items())], sorted(one._here), at(one._until),
                ],
            ))  # fmt: skip
        return str((min(self.now, LATE), ranks))


def explore(
    first: World, moves: Callable[[World], list[Callable[[World], None]]], most: int = 200_000
) -> Iterator[World]:
    """Every world in which nothing can happen any more."""
    seen, left = {first.key()}, [first]
    while left:
        world = left.pop()
        key, over = world.key(), True
        for move in moves(world):
            then = copy.deepcopy(world)
            move(then)
            if (after := then.key()) == key:
                continue
            over = False
            if after not in seen:
                assert len(seen) < most
                seen.add(after)
                left.append(then)
        if over:
            yield world


def quiet(world: World) -> bool:
    """Would nobody do anything if it had its turn?"""
    then = copy.deepcopy(world)
    before = then.key()
    for rank in list(then.inside):
        then.step(rank)
    return then.key() == before


def some_moves(world: World, come: dict[int, list[float]], mortal: set[int]) -> list[Callable[[World], None]]:
    """Turns; deaths, one at most; arrivals; time passes when all have done what there is to do: a network that is in order."""
    moves: list[Callable[[World], None]] = [
        lambda then, rank=rank: then.step(rank)  # type: ignore[misc]
        for rank in world.inside
    ]
    if not world.dead:
        moves += [lambda then, rank=rank: then.kill(rank) for rank in mortal]  # type: ignore[misc]
    arrivals = [
        (time, rank) for rank in come if rank not in world.came and rank not in world.dead for time in come[rank]
        if time >= world.now
    ]  # fmt: skip
    moves += [lambda then, rank=rank: then.come(rank) for time, rank in arrivals if time == world.now]  # type: ignore[misc]
    times = sorted({time for time, _ in arrivals if time > world.now} | set(world.deadlines()))
    forced = [
        rank for rank in come if rank not in world.came and rank not in world.dead and max(come[rank]) == world.now
    ]  # fmt: skip
    if times and not forced and quiet(world):
        moves.append(lambda then: setattr(then, "now", times[0]))
    return moves


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> None:
    class Port:
        def getsockname(self) -> tuple[str, int]:
            return "", 1

    monkeypatch.setattr(agreement, "listen", lambda _: Port())
    monkeypatch.setattr(agreement.secrets, "token_hex", lambda _: "")


def ends(come: dict[int, list[float]], mortal: set[int], timeouts: list[float]) -> list[World]:
    found = list(explore(World(len(come), timeouts), lambda world: some_moves(world, come, mortal)))
    assert found
    for world in found:
        assert not world.inside
        for rank in world.came:
            assert rank in world.outcomes or rank in world.dead
    return found


def one_decision(world: World) -> set[int]:
    """The ranks of it that live; nobody has gone on by another one."""
    decisions = {found for rank, found in world.outcomes.items() if found and rank not in world.dead}
    assert len(decisions) <= 1, world.outcomes
    return {rank for each in decisions for rank in each.ranks if rank not in world.dead}


IN_TIME = [0.0, TIMEOUT / 2]


@pytest.mark.parametrize("mortal", [0, 1, 2, None])
def test_all_come_in_time_and_one_may_die(mortal: int | None) -> None:
    """Whenever it dies, the others agree, or those who have been told have one who is dead in their list, and will try again."""
    for world in ends(dict.fromkeys(range(3), IN_TIME), {mortal} - {None}, [TIMEOUT] * 3):
        living = {0, 1, 2} - world.dead
        assert all(world.outcomes[rank] for rank in living), world.outcomes
        if not world.dead:
            assert one_decision(world) == {0, 1, 2}


@pytest.mark.parametrize("late", [0, 1, 2])
def test_one_comes_late(late: int) -> None:
    """Whenever it comes, it is in the decision, or is told that it comes too late; the others are in it in any case."""
    come = {rank: [0.0] for rank in range(3)} | {late: [5.0, 10.0, 15.0, 20.0, 25.0, 40.0]}
    for world in ends(come, set(), [TIMEOUT] * 3):
        in_it = one_decision(world)
        assert {0, 1, 2} - {late} <= in_it
        assert (late in in_it) == (world.outcomes[late] is not None)
        assert late in in_it or world.came[late] >= TIMEOUT


@pytest.mark.parametrize("punctual", [0, 1, 2])
def test_two_come_late(punctual: int) -> None:
    """Nobody goes on twice: the late ones find the punctual one, or are told so.

    It waits for each that is before it, one after the other, and knows which of them have come: these it does not leave behind.
    """
    come = {rank: [5.0, 10.0, 15.0, 20.0, 30.0, 40.0] for rank in range(3)} | {punctual: [0.0]}
    for world in ends(come, set(), [TIMEOUT] * 3):
        in_it = one_decision(world)
        for rank in range(3):
            if world.came[rank] < (world.over if rank < punctual else TIMEOUT):
                assert rank in in_it, (world.came, world.over)


@pytest.mark.parametrize("hasty", [0, 1, 2])
def test_one_is_less_patient_than_the_others(hasty: int) -> None:
    """It stays with those that have told it to wait."""
    timeouts = [TIMEOUT] * 3
    timeouts[hasty] = 1.0
    come = {rank: [0.0, 0.5] for rank in range(3)}
    for world in ends(come, set(), timeouts):
        assert one_decision(world) == {0, 1, 2}
