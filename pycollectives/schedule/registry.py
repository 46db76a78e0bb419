"""The `@algorithm` decorator and the table of known algorithms."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, ScheduleError
from .collectives import COLLECTIVES
from .program import Program
from .schedule import Schedule

Author = Callable[[Any], None]


@dataclass(frozen=True)
class Algorithm:
    """A named schedule of one collective; call `schedule` to evaluate it.

    `cost` is its alpha-beta-gamma cost as a formula for people; `builtin` says that the project's own
    tests have verified it.
    """

    collective: str
    name: str
    author: Author
    cost: str = ""
    builtin: bool = False
    restriction: Callable[[int], str] | None = None
    even_only: bool = False

    def obstacle(self, size: int) -> str:
        """Why it cannot run on `size` ranks; empty if it can."""
        return self.restriction(size) if self.restriction else ""

    def schedule(
        self, size: int, ranks: Sequence[int] | None = None, root: int = 0, *, symbolic: bool = False
    ) -> Schedule:
        """The schedule for `size` ranks, evaluated for `ranks` (default: all)."""
        program = Program(size, np.arange(size) if ranks is None else ranks, root, symbolic=symbolic)
        try:
            self.author(program)
        except (TypeError, ValueError, IndexError) as error:
            hint = (
                "; there is no branch on the rank: use select"
                if "truth value of an array" in str(error)
                else ""
            )
            text = f"{self.collective} by {self.name!r}: {error}{hint}"
            raise ScheduleError(text, collective=self.collective, algorithm=self.name) from error
        return Schedule(self.collective, self.name, program)

    def __call__(self, program: Program) -> None:
        """An algorithm can be used inside another: `ring(p.view(order))`."""
        self.author(program)


ALGORITHMS: dict[tuple[str, str], Algorithm] = {}


def algorithm(
    collective: str,
    *,
    name: str | None = None,
    cost: str = "",
    restriction: Callable[[int], str] | None = None,
    even_only: bool = False,
) -> Callable[[Author], Algorithm]:
    """Register a schedule for `collective` under `name` (default: the function's).

    `restriction(size)` says why it cannot run on so many ranks, or nothing; `even_only`: only for blocks of one
    size. Raises InvalidArgumentError for an unknown collective. The schedule is verified for a world size at its
    first use there (those of the project itself: by its tests). Registering a name again replaces it.
    """
    if collective not in COLLECTIVES:
        raise InvalidArgumentError(f"unknown collective {collective!r}{suggest(collective, COLLECTIVES)}")

    def register(author: Author) -> Algorithm:
        builtin = author.__module__.startswith("pycollectives.algorithms.")
        found = Algorithm(collective, name or author.__name__, author, cost, builtin, restriction, even_only)
        ALGORITHMS[collective, found.name] = found
        return found

    return register


def names(collective: str) -> list[str]:
    """The names of the known algorithms of `collective`."""
    return [name for verb, name in ALGORITHMS if verb == collective]


def find(collective: str, name: str) -> Algorithm:
    """The algorithm of that name; InvalidArgumentError suggests the near one."""
    known = names(collective)
    if name not in known:
        elsewhere = [verb for verb, other in ALGORITHMS if other == name]
        hint = suggest(name, known) or (f" ({name!r} exists for {', '.join(elsewhere)})" if elsewhere else "")
        raise InvalidArgumentError(f"{collective} has no algorithm {name!r}{hint}; known: {', '.join(known)}")
    return ALGORITHMS[collective, name]


def suggest(word: str, known: Any) -> str:
    """A hint for a misspelt word: "; did you mean 'ring'?" or nothing."""
    near = difflib.get_close_matches(str(word), list(known), 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
