r"""2D torus: rings along the rows and the columns of a grid of ranks, both halves of the data at once.

    0 - 1 - 2 - 3 -        half 0: reduce-scatter along the rows, then along the columns on what is left,
    |   |   |   |                  all-gather along the columns, then along the rows
    4 - 5 - 6 - 7 -        half 1: columns first, then rows, so that all links are busy
    |   |   |   |

    torus(2x4) is 2 rows of 4; without numbers the squarest grid. A single row or column, all that a prime
    number of ranks has, is a ring.

cost     R x C ranks: 2(R-1) + 2(C-1) alpha + 2(P-1)/P n beta + (P-1)/P n gamma; the others: half of the steps
source   Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", 2018; Cho et al.,
         "BlueConnect", MLSys 2019
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any

from ..schedule import EVEN_HOSTS, Parameter, Program, View, algorithm
from .hosts import Hosts
from .ring import gather, ring, ring_all_gather, ring_reduce_scatter, scatter_sums

Shape = tuple[int, int]


def shapes(size: int) -> list[tuple[int, ...]]:
    """All grids of `size` ranks."""
    return [(rows, size // rows) for rows in range(1, size + 1) if size % rows == 0]


def squarest(size: int) -> Shape:
    """The grid with the least steps, not higher than wide."""
    rows = next(r for r in range(isqrt(size), 0, -1) if size % r == 0)
    return rows, size // rows


GRID = Parameter("ROWSxCOLUMNS", shapes, squarest)
Half = tuple[View, Callable[[Any], Any], View, Callable[[Any], Any]]


def halves(p: Program, shape: Shape) -> Iterator[Half]:
    """Of each half: the first rings and their sets of chunks, the second rings and the chunks of one set."""
    rows, columns = shape
    row, column = p.grid(rows, columns)
    x, y = row.rank, column.rank
    with p.channel(0):
        yield row, lambda i: p.chunk(i, rows, columns), column, lambda i: p.chunk(i * columns + x)
    with p.channel(1):
        yield column, lambda i: p.chunk(i * columns, columns), row, lambda i: p.chunk(y * columns + i)


@algorithm("all_reduce", cost="2(R+C-2) α + 2(P-1)/P n β + (P-1)/P n γ", parameter=GRID)
def torus(p: Program, shape: Shape | None = None) -> None:
    """Down to one chunk per rank and back."""
    if 1 in (shape := shape or squarest(p.size)):
        return ring(p)
    for first, sets, second, chunks in halves(p, shape):
        with p.phase("reduce-scatter"):
            scatter_sums(first, sets)
            scatter_sums(second, chunks)
        with p.phase("all-gather"):
            gather(second, chunks)
            gather(first, sets)


@algorithm(
    "all_reduce",
    cost="2(H+k-2) α + 2(P-1)/P n β + (P-1)/P n γ, half of it between hosts",
    parameter=EVEN_HOSTS,
)
def host_torus(p: Program, hosts: tuple[int, ...] | None = None) -> None:
    """The torus whose rows are the hosts: one half of the data begins inside them, the other between them."""
    placed = Hosts.of(p, hosts)
    torus.author(p.view(placed.order), (placed.count, p.size // placed.count))


@algorithm("reduce_scatter", name="torus", cost="(R+C-2) α + (P-1)/P n (β + γ)", parameter=GRID)
def torus_reduce_scatter(p: Program, shape: Shape | None = None) -> None:
    """Down to one chunk per rank."""
    if 1 in (shape := shape or squarest(p.size)):
        return ring_reduce_scatter(p)
    for first, sets, second, chunks in halves(p, shape):
        scatter_sums(first, sets)
        scatter_sums(second, chunks)


@algorithm("all_gather", name="torus", cost="(R+C-2) α + (P-1)/P n β", parameter=GRID)
def torus_all_gather(p: Program, shape: Shape | None = None) -> None:
    """From one chunk per rank up."""
    if 1 in (shape := shape or squarest(p.size)):
        return ring_all_gather(p)
    for first, sets, second, chunks in halves(p, shape):
        gather(second, chunks)
        gather(first, sets)
