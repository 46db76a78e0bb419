"""`View`: a program seen through a renumbering of its ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .values import NULL, Deferred, Maybe, columns, plain, present_mask, select

if TYPE_CHECKING:
    from .program import ChunkSet, Program, Switch


class View:
    """A `Program` with its ranks renumbered; all but ranks, peers and root is the program's own."""

    def __init__(self, program: Program | View, size: int, rank: Any, real: Callable[[Any], Any]) -> None:
        self._program: Program = program._program if isinstance(program, View) else program
        self._outer = program if isinstance(program, View) else None
        self._rule = real
        self.size, self.rank = size, rank

    @classmethod
    def of(cls, program: Program | View, order: Any) -> View:
        """The view by a table `order` of shape (n,), or (ranks, n) with a group for every rank.

        Raises ValueError where the table names a rank that does not exist, or one rank twice.
        """
        table = np.asarray(order, dtype=np.int64)
        if table.size and not 0 <= table.min() <= table.max() < program.size:
            raise ValueError(f"an order of ranks must lie in 0..{program.size - 1}: {table.tolist()}")
        if (np.diff(np.sort(table, axis=-1), axis=-1) == 0).any():
            raise ValueError(f"an order of ranks names a rank twice: {table.tolist()}")
        rank = plain(program.rank)
        present = np.broadcast_to(present_mask(program.rank), rank.shape)
        if table.ndim == 1:
            place = np.full(program.size, -1, dtype=np.int64)
            place[table] = np.arange(table.size)
            mine = place[rank]
            inside = present & (mine >= 0)
        else:
            hit = table == rank[:, None]
            mine, inside = hit.argmax(axis=1), present & hit.any(axis=1)
        line = np.arange(len(table))

        def real(i: Any) -> Any:
            if table.ndim == 1:
                return table[i]
            return table[line if np.ndim(i) < 2 else line[:, None], i]

        return cls(program, table.shape[-1], mine if inside.all() else Maybe(mine, inside), real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    @property
    def root(self) -> Any:
        """The virtual rank of the program's root; NULL where it is outside the group."""
        real = np.atleast_2d(self.real(np.arange(self.size, dtype=np.int64)[None, :]))
        hit = real == self._program.root
        place, inside = hit.argmax(axis=1), hit.any(axis=1)
        if len(real) == 1:
            return int(place[0]) if inside[0] else NULL
        return select(inside, place, NULL)

    def real(self, peer: Any) -> Any:
        """The real rank of a virtual one; NULL stays NULL. Raises IndexError for a rank outside the view."""
        if isinstance(peer, Deferred):
            return Deferred(self.real, peer)
        if peer is NULL:
            return NULL
        number, present = plain(peer), present_mask(peer)
        wrong = ((np.asarray(number) < 0) | (np.asarray(number) >= self.size)) & present
        if wrong.any():
            raise IndexError(f"peer {np.extract(wrong, number)[0]} of a view of {self.size} ranks")
        found = self._rule(number)
        if self._outer is not None:
            found = self._outer.real(found)
        return Maybe(found, present) if isinstance(peer, Maybe) else found

    def others(self) -> Any:
        """All other virtual ranks, in order: shape (ranks, size - 1)."""
        k = np.arange(self.size - 1, dtype=np.int64)[None, :]
        return k + select(k >= columns(self.rank), 1, 0)

    def send(self, chunk: ChunkSet, to: Any) -> None:
        """`Program.send` to virtual ranks."""
        self._program.send(chunk, self._peer(to))

    def recv(self, chunk: ChunkSet, source: Any) -> None:
        """`Program.recv` from virtual ranks."""
        self._program.recv(chunk, self._peer(source))

    def reduce(self, chunk: ChunkSet, source: Any, via: Switch | None = None) -> None:
        """`Program.reduce` from virtual ranks."""
        self._program.reduce(chunk, self._peer(source), via)

    def copy(self, chunk: ChunkSet, into: ChunkSet, when: Any = True) -> None:
        """`Program.copy` on the ranks of the view."""
        self._program.copy(chunk, into, self._inside(when))

    def combine(self, chunk: ChunkSet, into: ChunkSet, when: Any = True) -> None:
        """`Program.combine` on the ranks of the view."""
        self._program.combine(chunk, into, self._inside(when))

    def _inside(self, when: Any) -> Any:
        return when if not isinstance(self.rank, Maybe) else select(self.rank.present, when, False)

    def _peer(self, peer: Any) -> Any:
        """The real peer; NULL for ranks outside the group."""
        return self.real(select(self.rank.present, peer, NULL) if isinstance(self.rank, Maybe) else peer)

    def view(self, order: Any) -> View:
        """A view of this view; `order` names virtual ranks."""
        return View.of(self, order)

    def renumber(self, size: int, rank: Any, real: Callable[[Any], Any]) -> View:
        """`view` by a rule: `rank` is the new rank of every rank, `real(i)` the old rank of i."""
        return View(self, int(size), rank, real)

    def grid(self, rows: int, columns: int) -> tuple[View, View]:
        """The rank's row and its column; see `Program.grid`."""
        return grid(self, rows, columns)


def grid(program: Program | View, rows: int, columns: int) -> tuple[View, View]:
    """The row and the column of every rank of `program`. Raises ValueError unless they cover its ranks."""
    if rows * columns != program.size:
        raise ValueError(f"a grid of {rows} x {columns} does not have {program.size} ranks")
    x, y = program.rank % columns, program.rank // columns

    def beside(mine: Any, i: Any) -> Any:
        return plain(mine)[:, None] if np.ndim(i) == 2 else plain(mine)

    row = program.renumber(columns, x, lambda i: beside(y, i) * columns + i)
    return row, program.renumber(rows, y, lambda i: i * columns + beside(x, i))
