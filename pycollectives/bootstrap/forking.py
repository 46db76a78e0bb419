"""After a fork the child lets go of every inherited rendezvous, without disturbing the parent's."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inheritable(Protocol):
    """Something that holds descriptors which a forked child must not keep."""

    def after_fork_in_child(self) -> None:
        """Close the child's copies of the descriptors; no shutdown, no lock, no thread to join."""
        ...


_live: weakref.WeakSet[Inheritable] = weakref.WeakSet()


def watch(owner: Inheritable) -> None:
    """Call ``owner.after_fork_in_child()`` in every child that this process forks while the owner lives."""
    _live.add(owner)


def _in_child() -> None:
    for owner in list(_live):
        owner.after_fork_in_child()
    _live.clear()


os.register_at_fork(after_in_child=_in_child)
