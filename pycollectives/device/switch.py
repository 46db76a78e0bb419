"""Device memory of all ranks that is bound to one multicast object of the switch between them (csrc/cuda/host/multicast.hpp)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import DeviceError

if TYPE_CHECKING:
    from ..communicator import Communicator


def bound_to_switch(comm: Communicator, rank: Any, name: str, nbytes: int) -> Any:
    """Collective: this rank's piece, of at least `nbytes`; None on all ranks if one of them cannot. `name`: of the meeting."""
    fds: list[int] = []

    def step(what: str, act: Callable[[], None]) -> bool:
        problem = b""
        try:
            act()
        except DeviceError as error:
            problem = str(error).encode()
        told = comm._exchange(f"{name} {what}", problem, fds if what == "make" and not problem else [])
        if what == "make":
            close(fds)
            fds[:] = [fd for _, theirs in told for fd in theirs]
        return not any(text for text, _ in told)

    def make() -> None:
        if comm.rank == 0:
            fds.append(rank.make_multicast(nbytes))

    try:
        works = (
            step("make", make)
            and step("join", lambda: rank.join_multicast(fds[0], nbytes))
            and step("bind", rank.bind_multicast)
        )
    finally:
        close(fds)
    memory = rank.take_multicast()
    return memory if works else None


def close(fds: list[int]) -> None:
    """Of descriptors."""
    for fd in fds:
        os.close(fd)
    fds.clear()
