"""What the core tells the program beside results and errors: long waits, and what the ranks did when a call failed."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

from . import flight
from .bootstrap import launched
from .bootstrap.recorders import snapshot

REPORT = "PYCOLLECTIVES_REPORT"
_logger = logging.getLogger("pycollectives")
_reported: set[str] = set()


def warn(text: str) -> None:
    """Called from inside a wait: a warning of the logger "pycollectives", which the program may send where it likes."""
    _logger.warning(text)


def failed() -> None:
    """A collective has failed. Where no launcher writes a report into the folder that REPORT names, this rank does.

    Once for each communicator; the memory of all its ranks is at hand, also of those that are dead.
    """
    folder = os.environ.get(REPORT)
    if not folder or launched.present():
        return
    from .communicator import _living

    broken = [each for each in _living() if each._core is not None and each._core.state(each.rank)["failed"]]
    broken = [each for each in broken if each.name not in _reported]
    if not broken:
        return
    _reported.update(each.name for each in broken)
    communicators: list[dict[str, Any]] = [
        {
            "name": each.name,
            "ranks": [
                {"job_rank": each.world_ranks[rank]} | each._core.state(rank) | {"rank": rank}
                for rank in range(each.size)
            ],
        }
        for each in broken
    ]
    known = snapshot(broken[0]._rendezvous.size, communicators, {})
    with contextlib.suppress(OSError):  # the failure itself is what the program must hear of
        flight.save(known, folder)
