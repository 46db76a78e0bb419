"""Which contributions belong together: the bookkeeping of exchanges, without sockets, threads or clocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pycollectives.bootstrap.wire import Descriptors

_REMEMBERED_FAILURES = 1024


@dataclass(frozen=True)
class Contribution:
    """What one rank gave to an exchange."""

    rank: int
    ticket: int  # the rank's own number of its call
    index: int
    payload: bytes
    descriptors: Descriptors
    deadline: float
    timeout: float
    members: frozenset[int] | None = None  # the ranks that take part, where known


class Outcome(NamedTuple):
    """How the call ``ticket`` of ``rank`` ended: with everyone's parts by index, or with an error."""

    rank: int
    ticket: int
    parts: list[Contribution] | None
    error: str = ""
    peer: int | None = None
    cause: str = ""  # "gone", "late", or "" for anything else
    missing: tuple[int, ...] = ()  # the indices that are late


@dataclass
class _Exchange:
    key: str
    count: int
    parts: dict[int, Contribution] = field(default_factory=dict)
    gave_up: dict[int, int] = field(default_factory=dict)  # index -> rank
    members: frozenset[int] | None = None


@dataclass
class _Failure:
    error: str
    peer: int | None
    cause: str
    told: set[int]


class Table:
    """All exchanges that are under way in a job of ``size`` ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.gone: dict[int, str] = {}
        self._exchanges: dict[str, _Exchange] = {}
        self._failures: dict[str, _Failure] = {}

    def join(self, key: str, count: int, part: Contribution) -> list[Outcome]:
        """Add a contribution; return the calls that it ends."""
        if (failure := self._failures.get(key)) is not None:
            if part.rank in failure.told:
                del self._failures[key]  # this rank starts the next exchange of that name
            else:
                self._tell(key, failure, part.rank)
                return [Outcome(part.rank, part.ticket, None, failure.error, failure.peer, failure.cause)]
        exchange = self._exchanges.setdefault(key, _Exchange(key, count))
        if any(other.rank == part.rank for other in exchange.parts.values()):
            text = f"exchange {key!r}: rank {part.rank} takes part twice at once"
            return [Outcome(part.rank, part.ticket, None, text, part.rank)]
        if exchange.count != count:
            first = next(iter(exchange.parts.values()), None)
            whom = f"rank {first.rank}" if first else "an earlier rank"
            text = (
                f"exchange {key!r}: {whom} says {exchange.count} participants, rank {part.rank} says {count}"
            )
            return self._fail(exchange, text, part.rank, [part])
        if (other_part := exchange.parts.get(part.index)) is not None:
            text = f"exchange {key!r}: ranks {other_part.rank} and {part.rank} both are index {part.index}"
            return self._fail(exchange, text, part.rank, [part])
        exchange.members = exchange.members or part.members
        exchange.parts[part.index] = part
        exchange.gave_up.pop(part.index, None)
        if len(exchange.parts) < count:
            return self._fail_if_hopeless(exchange)
        del self._exchanges[key]
        parts = [exchange.parts[index] for index in range(count)]
        return [Outcome(each.rank, each.ticket, parts) for each in parts]

    def leave(self, rank: int, reason: str) -> list[Outcome]:
        """Note that a rank has gone, ``reason`` as in "rank 1 has ended"; return the calls that this ends.

        The rank's own are among them: a thread of it may have closed while another one waits.
        """
        if rank in self.gone:
            return []
        self.gone[rank] = reason
        ended: list[Outcome] = []
        for exchange in list(self._exchanges.values()):
            own = [part for part in exchange.parts.values() if part.rank == rank]
            if own:
                text = f"exchange {exchange.key!r}: rank {rank} (index {own[0].index}) {reason}"
                ended += self._fail(exchange, text, rank, cause="gone")
            else:
                ended += self._fail_if_hopeless(exchange)
        return ended

    def withdraw(self, rank: int, ticket: int) -> None:
        """Forget the contribution of a call that its rank has given up."""
        for exchange in list(self._exchanges.values()):
            for part in list(exchange.parts.values()):
                if (part.rank, part.ticket) == (rank, ticket):
                    self._remove(exchange, part)

    def expire(self, now: float) -> list[Outcome]:
        """End the calls whose deadline has passed."""
        ended = []
        for exchange in list(self._exchanges.values()):
            late = [part for part in exchange.parts.values() if part.deadline <= now]
            for part in late:
                ended.append(self._timed_out(exchange, part))
            for part in late:
                self._remove(exchange, part)
        return ended

    def next_deadline(self) -> float | None:
        """The earliest deadline of all calls under way."""
        return min(
            (part.deadline for e in self._exchanges.values() for part in e.parts.values()), default=None
        )

    def _remove(self, exchange: _Exchange, part: Contribution) -> None:
        del exchange.parts[part.index]
        exchange.gave_up[part.index] = part.rank
        if not exchange.parts:
            self._exchanges.pop(exchange.key, None)

    def _timed_out(self, exchange: _Exchange, part: Contribution) -> Outcome:
        missing = [i for i in range(exchange.count) if i not in exchange.parts and i not in exchange.gave_up]
        text = f"exchange {exchange.key!r}: index {_listed(missing)} did not come within {part.timeout:g} s"
        if not missing:
            text = f"exchange {exchange.key!r} was not complete within {part.timeout:g} s"
        if exchange.gave_up:
            gave_up = (f"{index} (rank {rank})" for index, rank in sorted(exchange.gave_up.items()))
            text += f"; index {', '.join(gave_up)} had come and gave up earlier"
        if self.gone:
            text += f"; {self._gone_text(self.gone)}"
        peer = missing[0] if len(missing) == 1 and exchange.count == self.size else None
        return Outcome(part.rank, part.ticket, None, text, peer, "late", tuple(missing))

    def _fail_if_hopeless(self, exchange: _Exchange) -> list[Outcome]:
        """An exchange fails as soon as a member has gone or, where they are not known, fewer ranks are left than
        it still needs."""
        came = {part.rank for part in exchange.parts.values()}
        gone = [rank for rank in self.gone if rank not in came]
        if exchange.members is not None:
            gone = [rank for rank in gone if rank in exchange.members]
            hopeless = bool(gone)
        else:
            hopeless = self.size - len(came) - len(gone) < exchange.count - len(exchange.parts)
        if not hopeless:
            return []
        text = f"exchange {exchange.key!r} cannot complete: {self._gone_text(gone)}"
        # The first that went: the others may have ended because of it.
        return self._fail(exchange, text, gone[0] if gone else None, cause="gone")

    def _gone_text(self, ranks: Iterable[int]) -> str:
        return ", ".join(f"rank {rank} {self.gone[rank]}" for rank in sorted(ranks))

    def _fail(
        self,
        exchange: _Exchange,
        error: str,
        peer: int | None,
        more: Iterable[Contribution] = (),
        cause: str = "",
    ) -> list[Outcome]:
        self._exchanges.pop(exchange.key, None)
        outcomes = [
            Outcome(part.rank, part.ticket, None, error, peer, cause)
            for part in [*exchange.parts.values(), *more]
        ]
        if len(self._failures) >= _REMEMBERED_FAILURES:
            del self._failures[next(iter(self._failures))]
        failure = _Failure(error, peer, cause, set())
        self._failures[exchange.key] = failure
        for outcome in outcomes:
            self._tell(exchange.key, failure, outcome.rank)
        return outcomes

    def _tell(self, key: str, failure: _Failure, rank: int) -> None:
        """Latecomers of a failed exchange hear of it, until every rank that is left has."""
        failure.told.add(rank)
        if len(failure.told | self.gone.keys()) >= self.size:
            self._failures.pop(key, None)


class Epochs:
    """The tables of a job whose ranks may leave and open their rendezvous anew.

    The epoch counts how often a rank has opened it. A rank that has closed the first one is gone there, and
    still expected in the second.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.dead: dict[int, str] = {}
        self._tables: dict[int, Table] = {}

    def join(self, epoch: int, key: str, count: int, part: Contribution) -> list[Outcome]:
        """See `Table.join`."""
        return self._table(epoch).join(key, count, part)

    def close(self, epoch: int, rank: int) -> list[Outcome]:
        """A rank has closed its rendezvous."""
        ended = self._table(epoch).leave(rank, "has closed its rendezvous")
        self._forget_finished()
        return ended

    def lose(self, rank: int, reason: str) -> list[Outcome]:
        """A rank has gone for good."""
        self.dead[rank] = reason
        ended = [outcome for table in self._tables.values() for outcome in table.leave(rank, reason)]
        self._forget_finished()
        return ended

    def withdraw(self, epoch: int, rank: int, ticket: int) -> None:
        """See `Table.withdraw`."""
        self._table(epoch).withdraw(rank, ticket)

    def expire(self, now: float) -> list[Outcome]:
        """See `Table.expire`."""
        return [outcome for table in self._tables.values() for outcome in table.expire(now)]

    def next_deadline(self) -> float | None:
        """See `Table.next_deadline`."""
        deadlines = (table.next_deadline() for table in self._tables.values())
        return min((each for each in deadlines if each is not None), default=None)

    def _table(self, epoch: int) -> Table:
        table = self._tables.get(epoch)
        if table is None:
            table = self._tables[epoch] = Table(self.size)
            for rank, reason in self.dead.items():
                table.leave(rank, reason)
        return table

    def _forget_finished(self) -> None:
        for epoch in [e for e, table in self._tables.items() if len(table.gone) == self.size]:
            del self._tables[epoch]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:16])) + (f" and {len(numbers) - 16} more" if len(numbers) > 16 else "")
