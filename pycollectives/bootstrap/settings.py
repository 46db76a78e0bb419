"""What the environment says about the bootstrap."""

from __future__ import annotations

import os

from pycollectives.errors import BootstrapError


def number(name: str) -> int | None:
    """The environment variable as a number >= 0, None when it is not set. Raises BootstrapError."""
    text = os.environ.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise BootstrapError(f"the environment variable {name} is {text!r}, not a number >= 0")
    return value


def seconds(name: str, default: float) -> float:
    """The environment variable as a number of seconds > 0. Raises BootstrapError."""
    text = os.environ.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise BootstrapError(f"{name} is {text!r}, not a number of seconds > 0")
    return value


def connect_timeout() -> float:
    """Seconds to wait for the other ranks to start: PYCOLLECTIVES_BOOTSTRAP_TIMEOUT, 300 unless set."""
    return seconds("PYCOLLECTIVES_BOOTSTRAP_TIMEOUT", 300.0)
