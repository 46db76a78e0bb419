"""A call in pieces, so that one can travel while the next is copied from the device and the last one back.

blocks     |---- 0 ----|---- 1 ----|---- 2 ----|      one per rank where the verb has blocks, else one
piece 0    |==|        |==|        |==|               a piece has the same part of every block,
piece 1       |====|      |====|      |====|          so it is a call of the same verb
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..calls import Calls, Kind
from ..fusion import LabelledKind
from ..schedule import COLLECTIVES

LINE = 256  # bytes; pieces begin at multiples of it in their block


@dataclass(frozen=True)
class Piece:
    """One call. `takes`, `gives`: the runs of this rank's input and output that it reads and fills, one of each block, as
    (first element, elements)."""

    kind: Kind
    takes: tuple[tuple[int, int], ...]
    gives: tuple[tuple[int, int], ...]


def cut(calls: Calls, kind: Kind, most: int) -> list[Piece]:
    """`kind` as calls of about `most` bytes of the whole vector each; a single one is `kind` itself. The same on all ranks."""
    contract, rank, size = COLLECTIVES[kind.verb], calls.rank, calls.size
    blocks, sent, taken = calls.elements(kind)
    root, n = max(kind.root, 0), len(blocks)
    if contract.apart:
        taking, giving = sent, taken
    else:
        taking = [blocks[i] for i in contract.input_chunks(rank, size, root, n)]
        giving = [blocks[i] for i in contract.output_chunks(rank, size, root, n)]
    grain = _grain(kind)
    pieces = max(1, min(-(-_longest(kind, size) // most), max(blocks, default=0) // grain))
    if pieces == 1:
        return [Piece(kind, _runs(taking, grain, 0, 1), _runs(giving, grain, 0, 1))]
    label = (*getattr(kind, "label", ()), "a piece of", kind.count, kind.counts, pieces)
    named = calls.choose(kind).name  # by the size of the whole
    made = []
    for i in range(pieces):
        counts, count = _counts(kind, grain, i, pieces, n)
        one = LabelledKind(
            *(kind.verb, kind.dtype, count, kind.operator, kind.root, named, kind.deterministic, counts),
            label,
        )
        made.append(Piece(one, _runs(taking, grain, i, pieces), _runs(giving, grain, i, pieces)))
    return made


def merged(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same elements in as few runs as there are."""
    found: list[tuple[int, int]] = []
    for first, n in runs:
        if found and sum(found[-1]) == first:
            found[-1] = (found[-1][0], found[-1][1] + n)
        elif n:
            found.append((first, n))
    return found


def _grain(kind: Kind) -> int:
    """Elements that are not cut: whole items of a user's operator."""
    user = None if kind.operator is None else kind.operator.user
    item = 1 if user is None else int(user.compile(kind.dtype).count)
    return item * max(1, LINE // (item * kind.dtype.itemsize))


def _longest(kind: Kind, size: int) -> int:
    """Bytes of the longest input or output of any rank."""
    if kind.counts is not None and kind.verb == "all_to_all":
        matrix = np.asarray(kind.counts, dtype=np.int64)
        return int(max(matrix.sum(0).max(), matrix.sum(1).max())) * kind.dtype.itemsize
    return kind.vector_bytes(size)


def _start(length: int, grain: int, i: int, pieces: int) -> int:
    return length if i == pieces else length // grain * i // pieces * grain


def _part(length: int, grain: int, i: int, pieces: int) -> int:
    return _start(length, grain, i + 1, pieces) - _start(length, grain, i, pieces)


def _runs(blocks: list[int], grain: int, i: int, pieces: int) -> tuple[tuple[int, int], ...]:
    runs, first = [], 0
    for length in blocks:
        runs.append((first + _start(length, grain, i, pieces), _part(length, grain, i, pieces)))
        first += length
    return tuple(runs)


def _counts(kind: Kind, grain: int, i: int, pieces: int, n: int) -> tuple[tuple[Any, ...] | None, int]:
    """`counts` and `count` of a piece of `kind`, which has `n` blocks."""
    if kind.counts is None:
        if n == 1 or COLLECTIVES[kind.verb].input == "block":
            return None, _part(kind.count, grain, i, pieces)
        return None, n * _part(kind.count // n, grain, i, pieces)
    if kind.verb == "all_to_all":
        return tuple(tuple(_part(k, grain, i, pieces) for k in row) for row in kind.counts), 0
    counts = tuple(_part(k, grain, i, pieces) for k in kind.counts)
    return counts, sum(counts)
