"""The operations, proofs and errors of small schedules, for the tests of the language and the verifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pycollectives.errors import ScheduleError
from pycollectives.schedule import Algorithm, Program
from pycollectives.schedule.verifier import Proof, verified

Author = Callable[[Program], None]
Place = tuple[int | None, int | None, int | None, int | None]  # rank, step, chunk, peer


def operations(author: Author, size: int, ranks: Sequence[int] | None = None) -> dict[int, list[str]]:
    """The operations of an author's function, as text."""
    found = Algorithm("all_reduce", "test", author).schedule(size, ranks).operations()
    return {rank: [str(op) for op in mine] for rank, mine in found.items()}


def prove(collective: str, author: Author, size: int, root: int = 0) -> Proof:
    return verified(Algorithm(collective, "mine", author), size, root)


def refused(collective: str, author: Author, size: int, *texts: str) -> Place:
    """Where the error says the schedule is wrong; its message has all of `texts`."""
    with pytest.raises(ScheduleError) as caught:
        prove(collective, author, size)
    error = caught.value
    assert (error.collective, error.algorithm) == (collective, "mine")
    assert str(error).startswith(f"{collective} by 'mine' with {size} ranks: ")
    for text in texts:
        assert text in str(error), str(error)
    return error.rank, error.step, error.chunk, error.peer


def neighbours(p: Program) -> tuple[np.ndarray, np.ndarray]:
    return (p.rank + 1) % p.size, (p.rank - 1) % p.size
