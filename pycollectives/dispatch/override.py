"""What the user asks for: a `with` block, an environment variable. (`algorithm=` is an argument of the call.)"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

from .. import _core
from ..errors import InvalidArgumentError
from ..schedule import COLLECTIVES, find
from ..schedule.registry import suggest

_forced: ContextVar[dict[str, str] | None] = ContextVar("pycollectives_algorithm", default=None)
VARIABLE = "PYCOLLECTIVES_ALGORITHM"  # "all_reduce=ring,broadcast=binomial"


@contextlib.contextmanager
def use(**choices: str) -> Iterator[None]:
    """Force algorithms inside a `with` block: `with pc.use(all_reduce="ring"): ...`. Unknown names raise at once."""
    for collective, name in choices.items():
        find(collective, name)
    token = _forced.set({**(_forced.get() or {}), **choices})
    _core.override(1)  # what the native fast path remembers does not hold now
    try:
        yield
    finally:
        _core.override(-1)
        _forced.reset(token)


def environment() -> dict[str, str]:
    """The choices of the environment variable; InvalidArgumentError for an unknown name."""
    choices: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in os.environ.get(VARIABLE, "").split(","))):
        collective, equals, name = part.partition("=")
        if not equals or collective not in COLLECTIVES:
            hint = suggest(collective, COLLECTIVES)
            raise InvalidArgumentError(f"{VARIABLE}={part!r}: expected collective=algorithm{hint}")
        choices[collective] = find(collective, name).name
    return choices


def forced(collective: str) -> str | None:
    """The algorithm that a `with` block asks for here, if any."""
    return (_forced.get() or {}).get(collective)
