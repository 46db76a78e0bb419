"""What is measured: the cases that the options of a benchmark stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import ops
from ..errors import InvalidArgumentError, UnsupportedError
from ..schedule import COLLECTIVES, find, names
from ..schedule.registry import suggest

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST_SIZES = 10_000


@dataclass(frozen=True)
class Case:
    """One line of the table. `algorithm` None: the selector's choice; `count`: elements of the vector."""

    collective: str
    algorithm: str | None
    dtype: np.dtype[Any]
    op: str | None
    count: int

    @property
    def nbytes(self) -> int:
        """The size of the whole vector (reduce_scatter: of the input, all_gather: of the result)."""
        return self.count * self.dtype.itemsize


@dataclass(frozen=True)
class Options:
    """How a case is measured."""

    in_place: bool = False
    fresh: bool = False  # every rank rewrites its input before each call
    symmetric: bool = False  # arrays of comm.empty
    iterations: int | None = None  # None: as many as fit into min_time
    warmup: int | None = None
    min_time: float = 0.3  # seconds
    check: bool = True


def parse_size(text: str) -> int:
    """Bytes: a number with an optional suffix K, M or G (powers of 1024), also with B or iB after it."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise InvalidArgumentError(
            f"{text!r} is not a size: expected a number with K, M, G or nothing after it"
        )
    return int(float(match[1]) * _UNITS[match[2].upper()])


def parse_sizes(text: str) -> list[int]:
    """`8,1K,1M` a list; `8:64M:x4` from 8 bytes to 64 MiB, each 4 times the last; `1M:4M:+1M` in steps.

    Raises InvalidArgumentError with what is wrong.
    """
    found: list[int] = []
    for part in text.split(","):
        start, *rest = part.split(":")
        if not rest:
            found.append(parse_size(start))
            continue
        step = rest[1].strip() if len(rest) == 2 else "x2"
        match = re.fullmatch(r"[xX*](\d+(?:\.\d+)?)|\+(.+)", step)
        if len(rest) > 2 or match is None:
            raise InvalidArgumentError(
                f"{part!r} is not a range of sizes: expected start:end:x4 or start:end:+1M"
            )
        low, high = parse_size(start), parse_size(rest[0])
        factor, add = float(match[1] or 1), parse_size(match[2]) if match[2] else 0
        if low > high:
            raise InvalidArgumentError(f"the range {part!r} begins above its end")
        if (match[1] and (factor <= 1 or low == 0)) or (not match[1] and add == 0):
            raise InvalidArgumentError(f"the range {part!r} never ends")
        while low <= high and len(found) <= _MOST_SIZES:
            found.append(low)
            low = max(low + 1, int(low * factor)) if match[1] else low + add
    if len(found) > _MOST_SIZES:
        raise InvalidArgumentError(f"{text!r} are more than {_MOST_SIZES} sizes")
    return found


def cases(
    collectives: Sequence[str],
    algorithms: Sequence[str],
    dtypes: Sequence[np.dtype[Any]],
    op: str,
    sizes: Iterable[int],
    ranks: int,
    *,
    in_place: bool = False,
) -> list[Case]:
    """All combinations, in the order of the table. `all` stands for every collective or algorithm, `auto` for
    the selector's choice; what cannot run (on `ranks` ranks, or in place) is left out of `all`.

    Sizes are rounded up to whole elements, and to one per rank where the vector has a block for each.
    Raises InvalidArgumentError for unknown names, UnsupportedError for an operator that a dtype has not.
    """
    everything = [verb for verb, each in COLLECTIVES.items() if not (in_place and each.apart)]
    verbs = everything if "all" in collectives else list(dict.fromkeys(collectives))
    for verb in verbs:
        if verb not in COLLECTIVES:
            raise InvalidArgumentError(f"unknown collective {verb!r}{suggest(verb, [*COLLECTIVES, 'all'])}")
        if verb not in everything:
            raise UnsupportedError(f"{verb} is never in place: its output blocks come from other inputs")
    wanted = {verb: _algorithms(verb, algorithms, ranks, alone=len(verbs) == 1) for verb in verbs}
    for name in algorithms:
        if name not in ("all", "auto") and not any(name in found for found in wanted.values()):
            known = sorted({each for verb in verbs for each in names(verb)})
            raise InvalidArgumentError(
                f"no chosen collective has an algorithm {name!r}{suggest(name, known)}"
            )
    sizes = list(sizes)
    result = []
    for verb in verbs:
        for algorithm in wanted[verb]:
            if verb == "barrier":
                result.append(Case(verb, algorithm, np.dtype(np.uint8), None, 0))
                continue
            for dtype in dtypes:
                operator = op if COLLECTIVES[verb].reduces else None
                if operator is not None:
                    ops.check(ops.resolve(operator, ranks), dtype.name)
                counts = (elements(verb, size, dtype, ranks) for size in sizes)
                result += [Case(verb, algorithm, dtype, operator, count) for count in dict.fromkeys(counts)]
    return result


def _algorithms(verb: str, asked: Sequence[str], ranks: int, *, alone: bool) -> list[str | None]:
    """Those of a verb; `all` leaves out what cannot run on so many ranks."""
    found: list[str | None] = []
    for name in asked:
        if name == "all":
            found += [each for each in names(verb) if not find(verb, each).obstacle(ranks)]
        elif name == "auto":
            found.append(None)
        elif alone or name.partition("(")[0] in names(verb):
            one = find(verb, name)
            if why := one.obstacle(ranks):
                raise UnsupportedError(f"{verb} by {name!r}: {why}")
            found.append(one.name)
    return list(dict.fromkeys(found))


def elements(verb: str, nbytes: int, dtype: np.dtype[Any], ranks: int) -> int:
    """Of a vector of `nbytes`: rounded up to whole ones, and to one per rank where it has a block for each."""
    unit = ranks if COLLECTIVES[verb].in_blocks else 1
    each = unit * dtype.itemsize
    return -(-nbytes // each) * unit
