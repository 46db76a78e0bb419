"""How the ranks that are left of a job on several hosts agree on who they are, and where they meet next.

    rank 3  -- "join" ---------->  the door of the lowest rank that is there, and of each that it has given up waiting for
            <-- "wait" ---------   of whoever takes part, with the seconds in which it will know more
            <-- "decided" ------   who is left, and the port at which the decider serves them
    rank 5  <-- "without" ------   left at the door of a rank that is late, which reads it when it comes

Every rank has a door: a listening TCP socket, where the kernel lets callers in whether its owner looks or not. Each follows
the lowest rank that is there and not late. One that follows nobody decides, as soon as all behind it have come, have gone,
or are late; if it is lost before all have been told, the next one decides anew. Whoever was late and comes before the decision
is followed again, since the others still stand at its door.

What holds:

* All who are in time, and all who come before anybody has decided, are in the same decision, whoever is lost meanwhile.
* Who is waited for by others, or has been told to wait, does not go because of a rank behind the one that it follows: a rank that
  has misjudged who is there goes on without them, and not they without each other. One that comes when it is over, to whom
  nobody has come, is told so by anybody's note.
* Two ranks that believe different ranks to be there may decide apart: then the first exchange of one of the new communicators
  fails, and they try again. Where a network is cut in two, both parts go on.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from pycollectives.bootstrap.addresses import listen
from pycollectives.bootstrap.reunion import Caller, Line, Reunion
from pycollectives.errors import PeerError

_GRACE = 5.0  # seconds beyond a timeout that whoever keeps it may take to say so


@dataclass(frozen=True)
class Decision:
    """Who is left of a communicator, as its ranks; the first of them serves the others at `port`."""

    attempt: int
    ranks: tuple[int, ...]
    port: int
    nonce: str


@dataclass
class Agreement:
    """One rank's part in one attempt.

    `ranks`: those of the job, by the communicator's; `gone(r)`: why the communicator's rank r is not there any more, or "";
    `look` is called some times a second.
    """

    reunion: Reunion
    name: str
    attempt: int
    rank: int
    ranks: Sequence[int]
    timeout: float
    gone: Callable[[int], str]
    look: Callable[[], None]
    _lines: dict[int, Line] = field(default_factory=dict)  # to the doors of ranks before this one
    _late: dict[int, float] = field(default_factory=dict)  # when a rank before this one is given up
    _here: set[int] = field(default_factory=set)  # those of them that have said "wait"
    _until: float | None = None  # when this rank, which follows nobody, decides

    def reach(self) -> tuple[Decision, socket.socket | None]:
        """What has been decided, and, for the first one that is left, the socket where it has to serve the others.

        Raises PeerError on a rank that the others have gone on without.
        """
        try:
            while (found := self.step(time.monotonic())) is None:
                self.reunion.wait(self._lines.values())
            return found
        finally:
            for line in self._lines.values():
                line.close()

    def step(self, now: float) -> tuple[Decision, socket.socket | None] | None:
        """What there is to do; the decision when there is one."""
        self.look()
        if (decision := self._hear(now)) is not None:
            return decision, None
        first = self._first(now)
        callers = self.reunion.callers(self.name)
        joins = [each for each in callers if each.request and each.request["kind"] == "join"]
        for caller in callers:
            if caller.request and caller.request["kind"] == "without":
                self._read(caller, joins)
        if first != self.rank:
            self._until = None
            self._join(first)
            self._greet(joins, first, self._late[first] - now + self.timeout)
            return None
        if self._until is None:
            self._until = now + self.timeout
        self._greet(joins, first, self._until - now)
        come = {each.request["rank"] for each in joins if each.request}
        above = range(self.rank + 1, len(self.ranks))
        if now >= self._until or all(rank in come or self.gone(rank) for rank in above):
            return self._decide(joins)
        return None

    def _hear(self, now: float) -> Decision | None:
        """What those have said at whose doors this rank stands."""
        for rank, line in sorted(self._lines.items()):
            for said in line.hear():
                if said["kind"] == "wait":
                    self._here.add(rank)
                    self._late[rank] = now + said["seconds"] + _GRACE
                elif said["kind"] == "decided" and self.rank in said["ranks"]:
                    return Decision(said["attempt"], tuple(said["ranks"]), said["port"], said["nonce"])
                elif said["kind"] == "decided" and not any(each < rank for each in self._here):
                    self._left_behind(rank)
            if line.ended:  # it is lost, as will be seen, or has given up
                self._lines.pop(rank).close()
                self._here.discard(rank)
        return None

    def _first(self, now: float) -> int:
        """Whom this rank follows: the lowest one that is there and not late, itself at last."""
        for rank in range(self.rank):
            if self.gone(rank):
                self._here.discard(rank)
            elif now < self._late.setdefault(rank, now + self.timeout):
                return rank
            else:
                self._here.discard(rank)
        return self.rank

    def _join(self, first: int) -> None:
        """Go to its door; this rank stays at those where it is."""
        if first in self._lines:
            return
        line = self.reunion.call([self.ranks[first]]).get(self.ranks[first])
        if line is not None:
            line.say(kind="join", name=self.name, attempt=self.attempt, rank=self.rank)
            self._lines[first] = line

    def _greet(self, joins: Sequence[Caller], first: int, seconds: float) -> None:
        """Tell those who have come that this rank takes part, again when it follows another one."""
        for caller in joins:
            if caller.told != first:
                caller.told = first
                caller.line.say(kind="wait", seconds=seconds)

    def _read(self, note: Caller, joins: Sequence[Caller]) -> None:
        """Others have gone on without this rank. Does it go on without them?"""
        assert note.request is not None
        if note.request["attempt"] < self.attempt:  # of one that this rank has been in
            self.reunion.dismiss([note])
            return
        others = [
            each for each in joins if each.request and each.request["rank"] not in note.request["ranks"]
        ]
        follows = min(self._here, default=None)
        if follows is None and any(each.told is not None for each in others):
            follows = self.rank
        if follows is None or note.request["rank"] <= follows:
            self._left_behind(note.request["rank"])

    def _left_behind(self, peer: int) -> NoReturn:
        raise PeerError(
            "the other ranks have shrunk the communicator without this one, which came too late",
            rank=self.rank,
            peer=peer,
        )

    def _decide(self, joins: Sequence[Caller]) -> tuple[Decision, socket.socket]:
        """Tell all that have come, and leave a note to those that have not."""
        come = {each.request["rank"]: each.request for each in joins if each.request}
        left = [self.rank, *(rank for rank in sorted(come) if not self.gone(rank))]
        attempt = max([self.attempt, *(come[rank]["attempt"] for rank in left[1:])])
        listener = listen(len(self.ranks) + 16)
        decision = Decision(attempt, tuple(left), listener.getsockname()[1], secrets.token_hex(16))
        for caller in joins:
            caller.line.say(kind="decided", **vars(decision))
        self.reunion.dismiss(joins)
        behind = [r for r in range(len(self.ranks)) if r not in left and r not in come and not self.gone(r)]
        for line in self.reunion.call([self.ranks[r] for r in behind]).values():
            line.say(kind="without", name=self.name, attempt=attempt, rank=self.rank, ranks=left)
            line.close()
        return decision, listener
