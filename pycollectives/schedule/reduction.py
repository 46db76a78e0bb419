"""Reduction trees: what a chunk holds, symbolically. `((0+1)+2)+3` is the left fold of four ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import IntEnum
from itertools import pairwise


class Stage(IntEnum):
    """How far a chunk is reduced. Where the result is one rank's data (a broadcast), that is ORIGINAL."""

    EMPTY = 0
    ORIGINAL = 1  # one contribution
    PARTIAL = 2
    COMPLETE = 3  # all that the collective asks for


class Tree:
    """A reduction tree of one chunk: a leaf (the data of `rank`) or an n-ary node of `parts`, left to right.

    Trees of one proof are shared: equal trees are the same object.

    contributors  bit r is set where the data of rank r is in it
    ordered       the contributions appear in rank order
    fold          it is a left fold in rank order, ((0+1)+2)+3 or 0+1+2+3
    span          the leftmost and the rightmost contributor
    """

    __slots__ = ("chunk", "contributors", "fold", "ordered", "parts", "rank", "span")

    def __init__(self, chunk: int, rank: int | None, parts: tuple[Tree, ...]) -> None:
        self.chunk, self.rank, self.parts = chunk, rank, parts
        if rank is not None:
            self.contributors, self.ordered, self.fold, self.span = 1 << rank, True, True, (rank, rank)
            return
        self.contributors = 0
        for part in parts:
            self.contributors |= part.contributors
        self.ordered = all(p.ordered for p in parts) and all(
            a.span[1] < b.span[0] for a, b in pairwise(parts)
        )
        self.fold = self.ordered and parts[0].fold and not any(p.parts for p in parts[1:])
        self.span = (parts[0].span[0], parts[-1].span[1])

    def leaves(self) -> Iterator[int]:
        """The contributing ranks from left to right."""
        stack = [self]
        while stack:
            tree = stack.pop()
            if tree.rank is not None:
                yield tree.rank
            stack.extend(reversed(tree.parts))

    def __str__(self) -> str:
        text: list[str] = []
        stack: list[Tree | str] = [self]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                text.append(item)
            elif item.rank is not None:
                text.append(str(item.rank))
            else:
                inner = item is not self
                line: list[Tree | str] = ["("] if inner else []
                for i, part in enumerate(item.parts):
                    line += ["+", part] if i else [part]
                stack.extend(reversed([*line, ")"] if inner else line))
        return "".join(text)

    def __repr__(self) -> str:
        return f"Tree(chunk {self.chunk}, ranks {members(self.contributors)})"


class Trees:
    """Makes the trees of one proof, each distinct one once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Tree] = {}

    def leaf(self, rank: int, chunk: int) -> Tree:
        """The data of `rank`."""
        return self._shared((chunk, rank), chunk, rank, ())

    def join(self, parts: tuple[Tree, ...]) -> Tree:
        """The reduction of `parts` (all of one chunk), left to right."""
        return self._shared((None, *map(id, parts)), parts[0].chunk, None, parts)

    def _shared(self, key: tuple[object, ...], chunk: int, rank: int | None, parts: tuple[Tree, ...]) -> Tree:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Tree(chunk, rank, parts)
        return found


def members(mask: int) -> list[int]:
    """The ranks in a set of contributors."""
    return [i for i, bit in enumerate(reversed(f"{mask:b}")) if bit == "1"]


def common(stages: Collection[Stage]) -> Stage:
    """The stage of several chunks together: PARTIAL where they differ."""
    distinct = set(stages)
    return distinct.pop() if len(distinct) == 1 else Stage.PARTIAL
