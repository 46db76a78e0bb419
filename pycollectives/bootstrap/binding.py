"""Which cores a rank is bound to, where the user wants ranks bound."""

from __future__ import annotations

from collections.abc import Sequence


def cores_of(rank: int, size: int, cores: Sequence[int]) -> set[int]:
    """The cores of one of `size` ranks: equal shares in order, or one core each that several ranks share.

    8 cores, 3 ranks: 0-1, 2-4, 5-7. 2 cores, 4 ranks: 0, 0, 1, 1.
    """
    n = len(cores)
    first, end = rank * n // size, (rank + 1) * n // size
    return set(cores[first : max(end, first + 1)])
