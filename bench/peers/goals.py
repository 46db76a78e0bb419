"""What the project wants to reach, and whether a run did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .catalogue import MEMCPY
from .results import Measured, Results, geometric_mean, size

NEVER_SLOWER = 1.05
FROM_MEMORY = 1 << 20  # bytes from which a memcpy is the yardstick


@dataclass(frozen=True)
class Verdict:
    """`found` is the worst case or the geometric mean; the goal is `found <= limit`."""

    goal: str
    mode: str
    limit: float
    found: float
    where: str = ""

    @property
    def met(self) -> bool:
        """Is it reached?"""
        return self.found <= self.limit


def judge(results: Results) -> list[Verdict]:
    """Every goal that the results say something about."""
    found: list[Verdict] = []
    for group, cases in results.groups().items():
        for mode in dict.fromkeys(mode for case in cases for mode in case.times):
            limits = list(_limits(group.collective, group.algorithm, group.ranks))
            for column, each, mean in limits if group.dtype in ("float32", "uint8") else ():
                name = f"{group}: {column} / fastest peer"
                found += _all(name, mode, cases, column, each, mean)
            if (group.collective, group.ranks, group.algorithm, group.dtype) == (
                "all_reduce",
                2,
                "",
                "float32",
            ):
                large = [case for case in cases if case.nbytes >= FROM_MEMORY]
                found += _all(f"{group}: empty / memcpy, from 1 MiB", mode, large, "empty", 1.5, None, MEMCPY)
    return found + list(_half_precision(results))


def _limits(collective: str, algorithm: str, ranks: int) -> Iterator[tuple[str, float, float | None]]:
    """Column, limit at every size, limit of the geometric mean."""
    if algorithm:
        yield "array", 1.0, None
    elif collective == "all_reduce" and ranks == 2:
        yield "array", 0.7, 0.5
        yield "empty", 0.5, None
    else:
        yield "array", NEVER_SLOWER, 0.6 if ranks == 2 else 0.5


def _all(
    name: str,
    mode: str,
    cases: Sequence[Measured],
    column: str,
    each: float,
    mean: float | None,
    other: str | None = None,
) -> Iterator[Verdict]:
    """The worst size, and the mean over the sizes."""
    ratios = [
        (ratio.median, case) for case in cases if (ratio := case.ratio(mode, column, other)) is not None
    ]
    if not ratios:
        return
    worst, case = max(ratios, key=lambda pair: pair[0])
    yield Verdict(f"{name}, every size", mode, each, worst, size(case.nbytes))
    average = geometric_mean(ratio for ratio, _ in ratios)
    if mean is not None and average is not None:
        yield Verdict(f"{name}, geometric mean", mode, mean, average)


def _half_precision(results: Results) -> Iterator[Verdict]:
    """Bytes per second of 16-bit floats against float32."""
    whole = {
        (case.collective, case.ranks, case.nbytes, mode): time
        for case in results.cases
        for mode in case.times
        if case.dtype == "float32" and not case.algorithm and (time := case.median(mode, "array"))
    }
    rates: dict[tuple[str, str, int, str], list[tuple[float, int]]] = {}
    for case in results.cases:
        if case.dtype in ("bfloat16", "float16") and not case.algorithm:
            for mode in case.times:
                half = case.median(mode, "array")
                full = whole.get((case.collective, case.ranks, case.nbytes, mode))
                if half and full:
                    key = case.collective, case.dtype, case.ranks, mode
                    rates.setdefault(key, []).append((half / full, case.nbytes))
    for (collective, dtype, ranks, mode), found in rates.items():
        worst, nbytes = max(found)
        name = f"{collective}, {ranks} ranks: {dtype} / float32 of as many bytes, every size"
        yield Verdict(name, mode, 1 / 0.9, worst, size(nbytes))
