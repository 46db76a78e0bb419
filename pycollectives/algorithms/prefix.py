r"""Prefix sums: rank r gets the sum of ranks 0..r (scan) or 0..r-1 (exscan), in rank order.

    recursive doubling             0   1   2   3   4          in step k everyone sends its sum to the rank
        step 0, distance 1         0  01  12  23  34          2^k to the right: sums cover twice as many
        step 1, distance 2         0  01 012 0123 1234        ranks each time
        step 2, distance 4                       01234

    linear                         0 -> 1 -> 2 -> 3           the left fold; pipelined for long data

cost     recursive doubling: ceil(log2 P) (alpha + n (beta + gamma)), exscan: 2 gamma
         linear: (P-1) alpha + n (beta + gamma), pipelined
source   Hillis and Steele, "Data parallel algorithms", CACM 1986
"""

from __future__ import annotations

from typing import Any

from ..schedule import Program, algorithm, log2_ceil


def partners(p: Program, distance: int) -> tuple[Any, Any]:
    """The ranks `distance` to the left and to the right, NULL beyond the ends."""
    left, right = p.rank - distance, p.rank + distance
    return p.select(left >= 0, left), p.select(right < p.size, right)


@algorithm("scan", name="recursive_doubling", cost="⌈log₂P⌉ (α + n (β + γ))")
def recursive_doubling_scan(p: Program) -> None:
    """In every step a sum covers twice as many ranks."""
    p.chunks(1)
    for step in p.steps(log2_ceil(p.size)):
        left, right = partners(p, 1 << step)
        p.send(p.chunk(0), to=right)
        p.reduce(p.chunk(0), source=left)


@algorithm("exscan", name="recursive_doubling", cost="⌈log₂P⌉ (α + n β + 2 n γ)")
def recursive_doubling_exscan(p: Program) -> None:
    """What comes is added to two sums: without the own data, the result, and with it, to be sent on."""
    p.chunks(1)
    result, total, arrived = p.output(0), p.scratch(0), p.scratch(1, like=0)
    p.copy(p.input(0), into=total, when=p.rank + 1 < p.size)
    for step in p.steps(log2_ceil(p.size)):
        distance = 1 << step
        left, right = partners(p, distance)
        p.send(total, to=right)
        p.recv(arrived if step else result, source=left)
        p.combine(arrived, into=result, when=(p.rank >= distance) & (step > 0))
        sends_on = (p.rank >= distance) & (p.rank + 2 * distance < p.size)
        p.combine(arrived if step else result, into=total, when=sends_on)


@algorithm("scan", name="linear", cost="(P-1) α + n (β + γ), pipelined")
def linear_scan(p: Program) -> None:
    """Everyone adds its data to what comes and passes it on."""
    p.chunks(1)
    left, right = partners(p, 1)
    p.reduce(p.chunk(0), source=left)
    p.send(p.chunk(0), to=right)


@algorithm("exscan", name="linear", cost="(P-1) α + n (β + γ), pipelined")
def linear_exscan(p: Program) -> None:
    """What comes is the result; with its own data added it goes on."""
    p.chunks(1)
    left, right = partners(p, 1)
    inner = p.rank + 1 < p.size
    p.copy(p.input(0), into=p.scratch(0), when=inner)
    p.recv(p.output(0), source=left)
    p.combine(p.output(0), into=p.scratch(0), when=inner & (p.rank > 0))
    p.send(p.scratch(0), to=right)
