r"""BlueConnect: reduce-scatter along one dimension of the ranks after the other, then all-gather the way back.

    blueconnect(2x3)    0 1 | 2 3 | 4 5     rings of 2 neighbours on all of the data: each keeps a half
                        0   | 2   | 4       rings of 3 on the half, between what neighbours have kept: each keeps a
                          1 |   3 |   5     sixth; and back

    The first number counts nearest neighbours: the ranks of a host, of a rack, ... Without numbers the prime factors.

cost     factors p1 p2 ...: 2 sum (p_i - 1) alpha_i + 2 sum (p_i - 1)/p_i n/(p_1 .. p_(i-1)) beta_i
source   Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", MLSys
         2019
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..schedule import Parameter, Program, View, algorithm
from .ring import gather, scatter_sums


def factorizations(size: int) -> list[tuple[int, ...]]:
    """All ways to write `size` as a product of factors above 1, in every order; (1,) for 1."""
    if size == 1:
        return [(1,)]
    found: list[tuple[int, ...]] = [(size,)]
    for first in range(2, size // 2 + 1):
        if size % first == 0:
            found += [(first, *rest) for rest in factorizations(size // first)]
    return found


def primes(size: int) -> tuple[int, ...]:
    """The prime factors of `size`, smallest first."""
    found, factor = [], 2
    while size > 1:
        while size % factor == 0:
            found.append(factor)
            size //= factor
        factor += 1
    return tuple(found) or (1,)


FACTORS = Parameter("NEARxFARx...", factorizations)


@algorithm(
    "all_reduce",
    cost="2 Σ(pᵢ-1) α + 2(P-1)/P n β + (P-1)/P n γ, the most of it between near ranks",
    parameter=FACTORS,
)
def blueconnect(p: Program, factors: tuple[int, ...] | None = None) -> None:
    """Down one dimension after the other, and back."""
    levels = [_level(p, width, factor) for width, factor in _widths(factors or primes(p.size))]
    with p.phase("reduce-scatter"):
        for view, chunks in levels:
            scatter_sums(view, chunks)
    with p.phase("all-gather"):
        for view, chunks in reversed(levels):
            gather(view, chunks)


def _widths(factors: tuple[int, ...]) -> list[tuple[int, int]]:
    width, found = 1, []
    for factor in factors:
        found.append((width, factor))
        width *= factor
    return found


def _level(p: Program, width: int, factor: int) -> tuple[View, Callable[[Any], Any]]:
    """The ranks that differ in one digit of their number, and the chunks that belong to its values.

    A rank holds the chunks whose lower digits are its own.
    """
    digit, lower = p.rank // width % factor, p.rank % width
    base = p.rank - digit * width
    view = p.renumber(factor, digit, lambda i: base + i * width)
    return view, lambda i: p.chunk(lower + i * width, p.size // (width * factor), width * factor)
