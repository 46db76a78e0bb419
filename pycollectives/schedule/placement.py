"""Where ranks are: the parameter of algorithms that know hosts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import groupby

from .registry import Parameter


def compact(numbers: Iterable[Hashable]) -> tuple[int, ...]:
    """The same numbers, or names, renumbered from 0 on in the order in which they come."""
    order: dict[Hashable, int] = {}
    return tuple(order.setdefault(number, len(order)) for number in numbers)


def blocks(size: int) -> list[tuple[int, ...]]:
    """The placements of `size` ranks in blocks of one length on several hosts."""
    return [tuple(r // k for r in range(size)) for k in range(1, size) if size % k == 0]


@dataclass(frozen=True)
class Placement(Parameter):
    """The host of every rank, numbered in the order of their first ranks.

    A communicator across hosts fills it in; a user may write 2x4 (two hosts of four ranks), 3+1 (three ranks on one host,
    one on another) or 0,1,0,1 (rank by rank). `even`: it takes hosts of equally many ranks only.
    """

    even: bool = False

    def parse(self, text: str) -> tuple[int, ...]:
        """See `Parameter.parse`."""
        if "," in text:
            return compact(int(part) for part in text.split(","))
        if "+" in text:
            sizes = [int(part) for part in text.split("+")]
        else:
            hosts, ranks = (int(part) for part in text.split("x"))
            sizes = [ranks] * hosts
        if not sizes or min(sizes) < 1:
            raise ValueError(text)
        return tuple(host for host, size in enumerate(sizes) for _ in range(size))

    def show(self, argument: tuple[int, ...]) -> str:
        """See `Parameter.show`."""
        runs = [(host, len(list(run))) for host, run in groupby(argument)]
        if [host for host, _ in runs] != list(range(len(runs))):
            return ",".join(map(str, argument))
        sizes = [size for _, size in runs]
        return "+".join(map(str, sizes)) if len(set(sizes)) > 1 else f"{len(sizes)}x{sizes[0]}"

    def misfit(self, argument: tuple[int, ...], size: int) -> str:
        """See `Parameter.misfit`."""
        return "" if len(argument) == size else f"that is a placement of {len(argument)} ranks, not {size}"

    def obstacle(self, argument: tuple[int, ...] | None) -> str:
        """See `Parameter.obstacle`."""
        if argument is None:
            return "it needs several hosts"
        if self.even and len({argument.count(host) for host in set(argument)}) > 1:
            return "it needs hosts of equally many ranks"
        return ""


HOSTS = Placement("HOSTSxRANKS", blocks)
EVEN_HOSTS = Placement("HOSTSxRANKS", blocks, even=True)
