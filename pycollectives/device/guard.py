"""Ends calls on a device that cannot end by themselves: kernels wait for peers, and nobody on the host waits for kernels."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from ..errors import CollectiveError, CollectiveTimeoutError, PeerError

if TYPE_CHECKING:
    from ..communicator import Communicator

PERIOD = 0.1  # seconds between two looks, while there is something to look at
IDLE = 1.0  # seconds without a call after which the thread ends
GRACE = 5.0  # seconds that a call may go on without a peer: it may have done its part before it left


class Guard:
    """Looks after the calls of one rank, in a thread of its own that ends when there are none for a while.

    A call has failed if the communicator has, if a peer is gone and the call does not end within `GRACE` seconds, or if its
    `timeout` is over (its stream's earlier work counts). Then all kernels of this rank are ended, and `failure` says why.
    """

    def __init__(self, comm: Communicator, native: Any) -> None:
        self._core, self._rank, self._native = comm._native(), comm.rank, native
        self._peers = [r for r in range(comm.size) if r != comm.rank]
        self.failure: CollectiveError | None = None
        self._lock = threading.Lock()
        self._called, self._closed = threading.Event(), threading.Event()
        self._due = float("inf")
        self._thread: threading.Thread | None = None

    def expect(self, timeout: float) -> None:
        """A call has been launched."""
        if not self._peers:
            return
        with self._lock:
            self._due = time.monotonic() + timeout
            self._called.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pycollectives guard", daemon=True)
                self._thread.start()

    def check(self) -> None:
        """Raises what has ended the calls."""
        if self.failure is not None:
            raise self.failure

    def end(self, why: BaseException) -> None:
        """End this rank's calls, also those that it has handed in for a launch with other ranks, which are told."""
        if self.failure is None and isinstance(why, CollectiveError):
            self.failure = why
        lost = self.failure.peer if isinstance(self.failure, PeerError) else None
        self._native.abort(lost=-1 if lost is None else lost)

    def close(self) -> None:
        """No more calls."""
        self._closed.set()
        self._called.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            idle = not self._called.wait(IDLE)
            with self._lock:
                if idle and not self._called.is_set():
                    self._thread = None
                    return
                self._called.clear()
            without: dict[int, float] = {}  # since when a peer is gone
            while not self._closed.is_set() and self._native.busy:
                if failure := self._look(without):
                    self.end(failure)
                    return
                self._closed.wait(PERIOD)

    def _look(self, without: dict[int, float]) -> CollectiveError | None:
        now = time.monotonic()
        try:
            self._core.check()
        except PeerError:
            pass  # what ended the host's calls need not end the device's
        except CollectiveError as error:
            return error
        for peer in self._peers:
            why = self._core.gone(peer)
            if why and now - without.setdefault(peer, now) > GRACE:
                return PeerError(f"{why}; needed by a call on the device", rank=self._rank, peer=peer)
        if now > self._due:
            return CollectiveTimeoutError("a call on the device did not end in time", rank=self._rank)
        return None
