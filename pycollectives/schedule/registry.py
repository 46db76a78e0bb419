"""The `@algorithm` decorator and the table of known algorithms."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, ScheduleError, UnsupportedError
from .collectives import COLLECTIVES, Collective
from .program import Program
from .schedule import Schedule

Author = Callable[..., None]


@dataclass(frozen=True)
class Restriction:
    """What an algorithm asks of the number of ranks: `text` ("an even number of ranks") and the test."""

    text: str
    holds: Callable[[int], bool]


@dataclass(frozen=True)
class Parameter:
    """What a user may choose of an algorithm, as numbers: `torus(2x4)`.

    `form` names them ("ROWSxCOLUMNS"); `choices(size)` lists what fits `size` ranks; `default(size)` is what the
    algorithm takes where the user chooses nothing. With it, the selector tries the others too.
    """

    form: str
    choices: Callable[[int], list[tuple[int, ...]]]
    default: Callable[[int], tuple[int, ...]] | None = None

    def parse(self, text: str) -> tuple[int, ...]:
        """The numbers in "2x4". Raises ValueError for anything else."""
        numbers = tuple(int(part) for part in text.split("x"))
        if (len(numbers) != len(self.form.split("x")) and "..." not in self.form) or min(numbers) < 1:
            raise ValueError(text)
        return numbers

    def show(self, argument: tuple[int, ...]) -> str:
        """As a user writes it: 2x4."""
        return "x".join(map(str, argument))

    def misfit(self, argument: tuple[int, ...], size: int) -> str:
        """Why `argument` is not for `size` ranks; empty if it is."""
        return "" if argument in self.choices(size) else f"that does not fit {size} ranks"

    def obstacle(self, argument: tuple[int, ...] | None) -> str:
        """Why it cannot run with `argument`, None where there is none; empty if it can."""
        return ""


@dataclass(frozen=True)
class Algorithm:
    """A named schedule of one collective; call `schedule` to evaluate it.

    `cost` is its alpha-beta-gamma cost as a formula for people; `builtin` says that the project's own
    tests have verified it. `even_only`: it needs blocks of one size, so it cannot run the uneven forms.
    `argument` is the user's choice of its `parameter`, None for the author's own.
    """

    collective: str
    name: str
    author: Author
    cost: str = ""
    builtin: bool = False
    restriction: Restriction | None = None
    even_only: bool = False
    parameter: Parameter | None = None
    argument: tuple[int, ...] | None = None

    def schedule(
        self, size: int, ranks: Sequence[int] | None = None, root: int = 0, *, symbolic: bool = False
    ) -> Schedule:
        """The schedule for `size` ranks, evaluated for `ranks` (default: all).

        Raises UnsupportedError and InvalidArgumentError where there is none for `size` ranks, and
        ScheduleError where the author's function fails.
        """
        if why := self.obstacle(size):
            raise UnsupportedError(f"{self.collective} by {self.name!r}: {why}", algorithm=self.name)
        program = Program(size, np.arange(size) if ranks is None else ranks, root, symbolic=symbolic)
        try:
            self(program)
        except (TypeError, ValueError, IndexError) as error:
            hint = (
                "; there is no branch on the rank: use select"
                if "truth value of an array" in str(error)
                else ""
            )
            text = f"{self.collective} by {self.name!r}: {error}{hint}"
            raise ScheduleError(text, collective=self.collective, algorithm=self.name) from error
        return Schedule(self.collective, self.name, program)

    def __call__(self, program: Any, *arguments: Any) -> None:
        """An algorithm can be used inside another: `ring(p.view(order))`."""
        if not arguments and self.argument is not None:
            arguments = (self.argument,)
        self.author(program, *arguments)

    def obstacle(self, size: int) -> str:
        """Why it cannot run on `size` ranks; empty if it can.

        Raises InvalidArgumentError where the user's `argument` does not fit `size` ranks.
        """
        if self.restriction is not None and not self.restriction.holds(size):
            return f"it needs {self.restriction.text}, not {size}"
        if self.parameter is None:
            return ""
        if self.argument is not None and (why := self.parameter.misfit(self.argument, size)):
            base = self.name.partition("(")[0]
            fit = (f"{base}({self.parameter.show(each)})" for each in self.parameter.choices(size))
            text = f"{self.collective} by {self.name!r}: {why}; these do: {', '.join(fit)}"
            raise InvalidArgumentError(text)
        return self.parameter.obstacle(self.argument)

    def on(self, hosts: tuple[int, ...]) -> Algorithm:
        """The algorithm for ranks on these hosts, if it wants to know them and the user has not said it."""
        from .placement import Placement

        wants = isinstance(self.parameter, Placement) and self.argument is None and max(hosts) > 0
        return replace(self, argument=hosts) if wants else self

    def bind(self, text: str) -> Algorithm:
        """The algorithm with the parameter `text`. Raises InvalidArgumentError if it cannot be read."""
        if self.parameter is None:
            raise InvalidArgumentError(f"{self.collective} by {self.name!r} takes no parameter: {text!r}")
        try:
            argument = self.parameter.parse(text)
        except ValueError:
            expected = f"{self.name}({self.parameter.form})"
            raise InvalidArgumentError(f"{self.name}({text}): expected {expected}, in numbers") from None
        return replace(self, name=f"{self.name}({self.parameter.show(argument)})", argument=argument)


ALGORITHMS: dict[tuple[str, str], Algorithm] = {}
on_change: list[
    Callable[[], None]
] = []  # called when an algorithm is registered: decisions may be others now


def algorithm(
    collective: str,
    *,
    name: str | None = None,
    cost: str = "",
    restriction: Restriction | None = None,
    even_only: bool = False,
    parameter: Parameter | None = None,
) -> Callable[[Author], Algorithm]:
    """Register a schedule for `collective` under `name` (default: the function's).

    The function takes the program, and after it the numbers of its `parameter` (None: its own choice).
    Raises InvalidArgumentError for an unknown collective. The schedule is verified for a world size at its
    first use there (those of the project itself: by its tests). Registering a name again replaces it.
    """
    contract_of(collective)

    def register(author: Author) -> Algorithm:
        builtin = author.__module__.startswith("pycollectives.algorithms.")
        found = Algorithm(
            collective, name or author.__name__, author, cost, builtin, restriction, even_only, parameter
        )
        ALGORITHMS[collective, found.name] = found
        for forget in on_change:
            forget()
        return found

    return register


def contract_of(collective: str) -> Collective:
    """The contract of the collective of that name. Raises InvalidArgumentError, which suggests the near name."""
    if collective not in COLLECTIVES:
        raise InvalidArgumentError(f"unknown collective {collective!r}{suggest(collective, COLLECTIVES)}")
    return COLLECTIVES[collective]


def names(collective: str) -> list[str]:
    """The names of the known algorithms of `collective`."""
    return [name for verb, name in ALGORITHMS if verb == collective]


def find(collective: str, name: str) -> Algorithm:
    """The algorithm of that name, its parameter behind it in parentheses: `ring`, `torus(2x4)`.

    Raises InvalidArgumentError, which suggests the near name.
    """
    contract_of(collective)
    base, parenthesis, parameter = str(name).partition("(")
    known = names(collective)
    if base not in known:
        elsewhere = [verb for verb, other in ALGORITHMS if other == base]
        hint = suggest(base, known) or (f" ({base!r} exists for {', '.join(elsewhere)})" if elsewhere else "")
        raise InvalidArgumentError(
            f"{collective} has no algorithm {base!r}{hint}. Known: {', '.join(sorted(known))}"
        )
    found = ALGORITHMS[collective, base]
    return found.bind(parameter.removesuffix(")")) if parenthesis else found


def suggest(word: str, known: Any) -> str:
    """A hint for a misspelt word: "; did you mean 'ring'?" or nothing."""
    near = difflib.get_close_matches(str(word).lower(), list(known), 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
