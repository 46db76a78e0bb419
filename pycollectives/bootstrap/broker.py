"""The server of a job's exchanges: one daemon thread in the launcher or in rank 0's process."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from pycollectives.bootstrap import forking
from pycollectives.bootstrap.desk import Desk, answer, number
from pycollectives.bootstrap.handshake import Doorkeeper, open_pidfd, peer_credentials, refusal_of_user
from pycollectives.bootstrap.inspector import Inspector
from pycollectives.bootstrap.matching import Outcome
from pycollectives.bootstrap.rendezvous import close_all
from pycollectives.bootstrap.wire import Channel, Frame, Kind
from pycollectives.errors import BootstrapError

_HANDSHAKE_SECONDS = 10.0
_STALL_SECONDS = 0.01
_LONGEST_SLEEP = 3600.0  # a deadline may be infinite


class _Peer:
    """One connection: a newcomer while ``rank`` is negative."""

    def __init__(self, channel: Channel, rank: int, pidfd: int | None, doorkeeper: Doorkeeper | None) -> None:
        self.channel = channel
        self.rank = rank
        self.pidfd = pidfd
        self.doorkeeper = doorkeeper
        self.pid: int | None = None  # who said hello over an inherited socket
        self.deadline = time.monotonic() + _HANDSHAKE_SECONDS


class Broker:
    """Collects the contributions of ``size`` ranks and answers them.

    Ranks come over sockets that are handed over (`attach`, trusted) or over ``listener`` (proved with
    ``secret``). With ``keep`` the segments given under keys that start with "keep/" stay mapped in ``recorders``, and
    processes of the same user may ask for what they say (inspector.py). All methods may be called from any thread;
    none waits for a rank.
    """

    def __init__(
        self, size: int, *, keep: bool = False, listener: socket.socket | None = None, secret: bytes = b""
    ) -> None:
        if listener is not None and len(secret) < 16:
            raise BootstrapError("a broker that listens needs a secret of at least 16 bytes")
        self.size = size
        self._desk = Desk(size, keep=keep)
        self.recorders = self._desk.recorders
        self._inspector = Inspector(self.recorders) if keep else None
        self._secret = secret
        self._listener = listener
        self._seen: set[int] = set()
        self._peers: dict[int, _Peer] = {}
        self._newcomers: set[_Peer] = set()
        self._commands: deque[Callable[[], None]] = deque()
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, self._woken)
        if listener is not None:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, self._accept)
        if self._inspector is not None:
            self._selector.register(self._inspector, selectors.EVENT_READ, self._inspect)
        self._stopping = False
        self._draining = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="pycollectives-broker", daemon=True)
        forking.watch(self)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def attach(self, rank: int, sock: socket.socket, pid: int | None = None) -> None:
        """Serve ``rank`` over ``sock``, which becomes the broker's; ``pid`` is watched if given."""
        pidfd = open_pidfd(pid) if pid is not None else None
        peer = _Peer(Channel(sock, trusted=True), rank, pidfd, None)
        self._post(lambda: self._admit(peer))

    def leave(self, rank: int, reason: str) -> None:
        """Note that a rank has gone for good; ``reason`` continues the sentence "rank 1 ..."."""
        self.recorders.say(rank, reason)
        self._post(lambda: self._lose(rank, reason))

    def settle(self, seconds: float) -> None:
        """Wait until the answers given so far have been sent, but not longer than ``seconds``."""
        deadline = time.monotonic() + seconds
        while self._thread.is_alive() and time.monotonic() < deadline:
            if not any(peer.channel.pending for peer in list(self._peers.values())):
                return
            time.sleep(0.002)

    def finish(self) -> None:
        """End by itself once every rank has come and gone."""
        self._post(lambda: setattr(self, "_draining", True))

    def close(self) -> None:
        """End now: every pending exchange fails, what was kept is closed."""
        if self._pid != os.getpid():
            return
        self._post(lambda: setattr(self, "_stopping", True))
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        elif not self._thread.ident:
            self._dispose()

    def after_fork_in_child(self) -> None:
        """Close the child's copies."""
        self._dispose(shutdown=False)

    def _post(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        with contextlib.suppress(OSError):  # full: it will wake up anyway; closed: it has ended
            self._wake_out.send(b"!")

    def _woken(self, _: int) -> None:
        self._wake_in.recv(4096)

    def _run(self) -> None:
        try:
            while not self._stopping:
                for key, mask in self._selector.select(self._patience()):
                    key.data(mask)
                while self._commands:
                    self._commands.popleft()()
                self._tick()
                if (
                    self._draining
                    and not self._peers
                    and not self._newcomers
                    and len(self._seen) == self.size
                ):
                    break
        finally:
            self._dispose()

    def _patience(self) -> float | None:
        now = time.monotonic()
        times = [peer.deadline for peer in self._newcomers]
        if (deadline := self._desk.epochs.next_deadline()) is not None:
            times.append(deadline)
        if any(peer.channel.stalled for peer in self._peers.values()):
            times.append(now + _STALL_SECONDS)
        return min(max(0.0, min(times) - now), _LONGEST_SLEEP) if times else None

    def _tick(self) -> None:
        now = time.monotonic()
        self._deliver(self._desk.epochs.expire(now))
        for peer in [peer for peer in self._newcomers if peer.deadline <= now]:
            self._drop(peer)
        for peer in list(self._peers.values()):
            if peer.channel.stalled:
                self._write(peer)

    def _accept(self, _: int) -> None:
        assert self._listener is not None
        try:
            sock, _address = self._listener.accept()
        except OSError:
            time.sleep(_STALL_SECONDS)  # out of descriptors, perhaps: the newcomer stays in the queue
            return
        channel = Channel(sock, trusted=False)
        peer = _Peer(channel, -1, None, Doorkeeper(self._secret, self.size))
        self._newcomers.add(peer)
        self._selector.register(sock, selectors.EVENT_READ, lambda mask: self._serve(peer, mask))
        if (reason := refusal_of_user(sock)) is not None:
            self._refuse(peer, reason)

    def _inspect(self, _: int) -> None:
        assert self._inspector is not None
        self._inspector.answer()

    def _refuse(self, peer: _Peer, reason: str) -> None:
        peer.channel.queue(Kind.REFUSED, meta={"reason": reason})
        with contextlib.suppress(OSError):
            peer.channel.flush()
        self._drop(peer)

    def _admit(self, peer: _Peer) -> None:
        """A connection is known to be the rank's."""
        self._newcomers.discard(peer)
        self._peers[peer.rank] = peer
        self._seen.add(peer.rank)
        if peer.doorkeeper is None:
            self._selector.register(
                peer.channel.sock, selectors.EVENT_READ, lambda mask: self._serve(peer, mask)
            )
        if peer.pidfd is not None:
            self._selector.register(
                peer.pidfd, selectors.EVENT_READ, lambda _: self._lose(peer.rank, "has ended")
            )

    def _serve(self, peer: _Peer, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                for frame in peer.channel.receive():
                    self._handle(peer, frame)
                    if peer.channel.fileno() < 0:
                        return
            if mask & selectors.EVENT_WRITE or peer.channel.pending:
                self._write(peer)
            if peer.channel.ended:
                self._hung_up(peer, "has ended or closed its connection")
        except BootstrapError as error:
            self._hung_up(peer, f"has lost its connection: {error}")

    def _hung_up(self, peer: _Peer, reason: str) -> None:
        if peer.rank < 0:
            self._drop(peer)
        else:
            self._lose(peer.rank, reason)

    def _write(self, peer: _Peer) -> None:
        try:
            peer.channel.flush()
        except OSError:
            self._hung_up(peer, "has ended or closed its connection")
            return
        wants = peer.channel.pending and not peer.channel.stalled
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants else 0)
        key = self._selector.get_key(peer.channel.sock)
        if key.events != events:
            self._selector.modify(peer.channel.sock, events, key.data)

    def _handle(self, peer: _Peer, frame: Frame) -> None:
        if not peer.channel.trusted:
            assert peer.doorkeeper is not None
            if (reason := peer.doorkeeper.step(peer.channel, frame)) is not None:
                self._refuse(peer, reason)
            elif peer.channel.trusted:
                self._welcome(peer, peer.doorkeeper.rank)
        elif frame.kind == Kind.HELLO:
            self._hello(peer, frame)
        else:
            self._deliver(self._desk.serve(peer.rank, frame))

    def _welcome(self, peer: _Peer, rank: int) -> None:
        if rank in self._seen:
            peer.channel.trusted = False
            self._refuse(
                peer, f"rank {rank} of this job has come already: is it another job's of equal environment?"
            )
            return
        peer.rank = rank
        try:
            peer.pidfd = open_pidfd(peer_credentials(peer.channel.sock)[0])
        except BootstrapError:
            peer.pidfd = None  # ended already: the socket's end follows
        peer.channel.queue(Kind.WELCOME)
        self._admit(peer)

    def _hello(self, peer: _Peer, frame: Frame) -> None:
        """Over an inherited socket two processes might speak: a forked child and its parent."""
        pid = number(frame, "pid")
        if peer.pid is not None and peer.pid != pid and os.path.exists(f"/proc/{peer.pid}"):
            self._lose(peer.rank, f"opened its rendezvous in two processes ({peer.pid} and {pid})")
        peer.pid = pid

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if (peer := self._peers.get(outcome.rank)) is not None:
                answer(peer.channel, outcome)
        # Rank 0 last: the broker may live in its process, which may end as soon as it has its answer.
        for rank in sorted({outcome.rank for outcome in outcomes}, reverse=True):
            if (peer := self._peers.get(rank)) is not None:
                self._write(peer)

    def _lose(self, rank: int, reason: str) -> None:
        """A rank has gone for good."""
        if rank in self._desk.epochs.dead:
            return
        self.recorders.lose(rank, reason)
        self._seen.add(rank)
        if (peer := self._peers.pop(rank, None)) is not None:
            self._drop(peer)
        self._deliver(self._desk.epochs.lose(rank, reason))

    def _drop(self, peer: _Peer) -> None:
        self._newcomers.discard(peer)
        for source in (peer.channel.sock, peer.pidfd):
            if source is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(source)
        peer.channel.close()
        if peer.pidfd is not None:
            os.close(peer.pidfd)
            peer.pidfd = None

    def _dispose(self, *, shutdown: bool = True) -> None:
        """Close everything; a forked child must not touch the shared epoll set or shut sockets down."""
        for peer in [*self._peers.values(), *self._newcomers]:
            peer.channel.close(shutdown=shutdown)
            if peer.pidfd is not None:
                close_all([peer.pidfd])
        self._peers.clear()
        self._newcomers.clear()
        self._desk.close()
        if self._inspector is not None:
            self._inspector.close()
        if self._listener is not None:
            self._listener.close()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
