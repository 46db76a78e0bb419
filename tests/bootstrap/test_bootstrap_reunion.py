"""How ranks on several hosts agree on who is left; each rank is a thread with a door of its own here."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from pycollectives.bootstrap.agreement import Agreement, Decision
from pycollectives.bootstrap.reunion import Line, Reunion
from pycollectives.errors import PeerError


class Ranks:
    """`size` ranks of a job in which the communicator's rank r is rank 10 + r."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.gone: set[int] = set()
        self.doors = [Reunion() for _ in range(size)]
        for rank, own in enumerate(self.doors):
            own.others = {10 + r: (each.door, each.secret) for r, each in enumerate(self.doors) if r != rank}
        self.found: dict[int, Any] = {}
        self.threads: list[threading.Thread] = []

    def come(self, rank: int, timeout: float = 10.0, attempt: int = 1, name: str = "world") -> None:
        """A rank begins to shrink."""

        def look() -> None:
            if rank in self.gone:
                raise InterruptedError  # it dies: nothing more is said, its lines are closed

        def reach() -> None:
            one = Agreement(
                self.doors[rank], name, attempt, rank, [10 + r for r in range(self.size)], timeout,
                lambda r: "dead" if r in self.gone else "", look,
            )  # fmt: skip
            try:
                decision, listener = one.reach()
                self.found[rank] = decision
                assert (listener is not None) == (decision.ranks[0] == rank)
                if listener is not None:
                    assert listener.getsockname()[1] == decision.port
                    listener.close()
            except (PeerError, InterruptedError) as error:
                self.found[rank] = error

        self.threads.append(threading.Thread(target=reach, daemon=True))
        self.threads[-1].start()

    def end(self) -> None:
        for thread in self.threads:
            thread.join(15)
            assert not thread.is_alive()
        self.threads.clear()

    def close(self) -> None:
        for each in self.doors:
            each.close()


@pytest.fixture
def ranks(request: pytest.FixtureRequest) -> Any:
    made = Ranks(5)
    yield made
    made.close()


def agreed(ranks: Ranks, left: list[int]) -> Decision:
    decisions = [ranks.found[rank] for rank in left]
    assert all(each == decisions[0] for each in decisions), ranks.found
    assert list(decisions[0].ranks) == left
    found: Decision = decisions[0]
    return found


def test_all_are_there(ranks: Ranks) -> None:
    """Twice, and one rank has counted more attempts than the others."""
    for attempt in (1, 2):
        for rank in range(5):
            ranks.come(rank, attempt=attempt + (rank == 3))
        ranks.end()
        assert agreed(ranks, [0, 1, 2, 3, 4]).attempt == attempt + 1


@pytest.mark.parametrize("lost", [{0}, {4}, {0, 1}, {1, 2, 3, 4}, {0, 2, 4}])
def test_some_are_lost(ranks: Ranks, lost: set[int]) -> None:
    ranks.gone = lost
    left = [rank for rank in range(5) if rank not in lost]
    for rank in left:
        ranks.come(rank)
    ranks.end()
    agreed(ranks, left)


def test_the_first_one_is_lost_while_the_others_wait_for_it(ranks: Ranks) -> None:
    for rank in (0, 1, 2, 3):
        ranks.come(rank)
    time.sleep(0.2)
    ranks.gone.add(0)
    time.sleep(0.2)
    ranks.come(4)
    ranks.end()
    agreed(ranks, [1, 2, 3, 4])


@pytest.mark.parametrize("late", [0, 2])
def test_one_that_is_late_is_told_so(ranks: Ranks, late: int) -> None:
    """Also the first one, at whose door the others have waited; and again when it tries once more."""
    left = [rank for rank in range(5) if rank != late]
    for rank in left:
        ranks.come(rank, timeout=0.4)
    ranks.end()
    agreed(ranks, left)
    for _ in range(2):
        ranks.come(late)
        ranks.end()
        assert "without this one" in str(ranks.found[late])


def test_two_communicators_at_once(ranks: Ranks) -> None:
    """The callers of one are not those of the other: rank 0 waits for rank 1, which has come because of another."""
    ranks.gone = {2, 3, 4}
    ranks.come(1, name="world/1.0")
    ranks.come(0, name="world")
    time.sleep(0.3)
    assert all(each.is_alive() for each in ranks.threads)
    other = Agreement(
        ranks.doors[0], "world/1.0", 1, 0, range(10, 15), 10.0, lambda r: "dead" if r > 1 else "", int
    )
    decision, listener = other.reach()
    assert listener is not None
    listener.close()
    assert decision.ranks == (0, 1)
    ranks.come(1, name="world")
    ranks.end()
    agreed(ranks, [0, 1])


def test_strangers_are_not_heard(ranks: Ranks) -> None:
    """Whoever does not know the secret takes no part, and keeps nobody."""
    ranks.gone = {2, 3, 4}
    strangers = []
    for secret in (b"a guess", ranks.doors[1].secret):
        sock = socket.create_connection(("127.0.0.1", ranks.doors[0].door.port))
        strangers.append(Line(sock, secret))
        strangers[-1].say(kind="join", name="world", attempt=7, rank=1)
    sock = socket.create_connection(("127.0.0.1", ranks.doors[0].door.port))
    sock.sendall(b"GET / HTTP/1.0\n\n\xff")
    ranks.come(0)
    time.sleep(0.3)
    assert ranks.threads[0].is_alive()
    ranks.come(1)
    ranks.end()
    assert agreed(ranks, [0, 1]).attempt == 1
    for each in strangers:
        each.close()
    sock.close()


def leave_a_note(ranks: Ranks, by: int, at: int, attempt: int = 1) -> None:
    line = ranks.doors[by].call([10 + at])[10 + at]
    line.say(kind="without", name="world", attempt=attempt, rank=by, ranks=[by])
    line.close()


def test_those_who_wait_together_go_on_whatever_a_later_rank_believes(ranks: Ranks) -> None:
    """Rank 3 believes to be alone, for example since it could not reach the others for a while; these wait for rank 4."""
    for rank in (0, 1, 2):
        ranks.come(rank)
    time.sleep(1.0)
    for at in (0, 1, 2):
        leave_a_note(ranks, 3, at)
    time.sleep(0.3)
    ranks.gone = {3}
    ranks.come(4)
    ranks.end()
    agreed(ranks, [0, 1, 2, 4])


def test_an_earlier_rank_leaves_behind_those_who_wait_for_a_later_one(ranks: Ranks) -> None:
    """Rank 0 has gone on, and the others believe that it is late."""
    ranks.gone = {0}
    for rank in (1, 2):
        ranks.come(rank)
    time.sleep(0.3)
    for at in (1, 2):
        leave_a_note(ranks, 0, at)
    ranks.end()
    assert all("without this one" in str(ranks.found[rank]) for rank in (1, 2))


def test_a_note_of_an_earlier_attempt_counts_no_more(ranks: Ranks) -> None:
    """It was left by one who decided apart then."""
    for at in (0, 1):
        leave_a_note(ranks, 3, at)
    ranks.gone = {2, 3, 4}
    for rank in (0, 1):
        ranks.come(rank, attempt=2)
    ranks.end()
    agreed(ranks, [0, 1])


def test_one_that_is_late_is_followed_again(ranks: Ranks) -> None:
    """It comes while the others, who have given it up, wait for one more."""
    for rank in (1, 2, 3):
        ranks.come(rank, timeout=2.0)
    time.sleep(2.8)
    ranks.come(0, timeout=2.0)
    time.sleep(0.2)
    ranks.come(4, timeout=2.0)
    ranks.end()
    agreed(ranks, [0, 1, 2, 3, 4])


def test_an_impatient_rank_stays_with_those_who_have_told_it_to_wait(ranks: Ranks) -> None:
    for rank in (0, 1):
        ranks.come(rank)
    ranks.come(2, timeout=1.0)
    time.sleep(2.0)
    for rank in (3, 4):
        ranks.come(rank)
    ranks.end()
    agreed(ranks, [0, 1, 2, 3, 4])
