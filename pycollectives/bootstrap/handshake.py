"""Proof of identity over an abstract socket: equal user, then the job's secret in both directions."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import select
import socket
import struct
import time

from pycollectives.bootstrap.wire import Channel, Frame, Kind
from pycollectives.errors import BootstrapError

NONCE_BYTES = 32


def peer_credentials(sock: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process that made the other end of a Unix socket; the pid is 0 when it is in a foreign namespace."""
    if sock.family != socket.AF_UNIX:
        return 0, -1  # on another host
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid & 0xFFFFFFFF


def refusal_of_user(sock: socket.socket) -> str | None:
    """Why the peer's user is not trusted, or None."""
    if sock.family != socket.AF_UNIX:  # only the secret counts there
        return None
    uid = peer_credentials(sock)[1]
    if uid == os.geteuid():
        return None
    return f"the peer runs as user {uid}, this process as user {os.geteuid()}"


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None when it cannot be watched.

    Raises BootstrapError when there is no such process any more.
    """
    if pid <= 0 or pid == os.getpid():
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise BootstrapError(f"process {pid} has ended") from None
    except OSError:
        return None


def proof(secret: bytes, role: str, rank: int, size: int, challenge: bytes, answer: bytes) -> str:
    """What only a holder of the secret can say to this pair of nonces."""
    text = f"pycollectives {role} {rank} {size} ".encode() + challenge + answer
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


class Doorkeeper:
    """The broker's half of the handshake with one newcomer."""

    def __init__(self, secret: bytes, size: int) -> None:
        self._secret = secret
        self._size = size
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._theirs = b""
        self.rank = -1

    def step(self, channel: Channel, frame: Frame) -> str | None:
        """Answer one frame, at last by trusting the channel; return why the newcomer is refused, or None."""
        if frame.kind == Kind.HELLO and self.rank < 0:
            rank, size, nonce = (frame.meta.get(name) for name in ("rank", "size", "nonce"))
            if not (isinstance(rank, int) and isinstance(size, int) and isinstance(nonce, str)):
                return "the greeting is incomplete"
            if size != self._size or not 0 <= rank < size:
                return f"this job has {self._size} ranks; the newcomer says it is rank {rank} of {size}"
            self.rank, self._theirs = rank, nonce.encode()
            mac = proof(self._secret, "broker", rank, size, self._theirs, self._nonce)
            channel.queue(Kind.CHALLENGE, meta={"nonce": self._nonce.hex(), "proof": mac})
            return None
        if frame.kind == Kind.PROOF and self.rank >= 0:
            mac = proof(self._secret, "rank", self.rank, self._size, self._nonce, self._theirs)
            if not hmac.compare_digest(mac, str(frame.meta.get("proof"))):
                return "the secret is wrong"
            channel.trusted = True
            return None
        return "the handshake is out of order"


def introduce(sock: socket.socket, secret: bytes, rank: int, size: int, deadline: float) -> Channel:
    """A rank's half: prove each other over a fresh connection. Raises BootstrapError."""
    if (reason := refusal_of_user(sock)) is not None:
        raise BootstrapError(f"the socket of this job's name is somebody else's: {reason}", rank=rank)
    channel = Channel(sock, trusted=False)
    nonce = secrets.token_hex(NONCE_BYTES)
    channel.queue(Kind.HELLO, meta={"rank": rank, "size": size, "nonce": nonce, "pid": os.getpid()})
    challenge = _reply(channel, Kind.CHALLENGE, rank, deadline)
    try:
        theirs = bytes.fromhex(str(challenge.meta.get("nonce")))
    except ValueError:
        theirs = b""
    mac = proof(secret, "broker", rank, size, nonce.encode(), theirs)
    if not hmac.compare_digest(mac, str(challenge.meta.get("proof"))):
        raise BootstrapError("rank 0 does not hold the secret of this job", rank=rank, peer=0)
    channel.queue(Kind.PROOF, meta={"proof": proof(secret, "rank", rank, size, theirs, nonce.encode())})
    _reply(channel, Kind.WELCOME, rank, deadline)
    channel.trusted = True
    return channel


def _reply(channel: Channel, kind: Kind, rank: int, deadline: float) -> Frame:
    poll = select.poll()
    while True:
        with contextlib.suppress(OSError):  # a refusal may still be there to be read
            channel.flush()
        for frame in channel.receive():
            if frame.kind == Kind.REFUSED:
                raise BootstrapError(
                    f"rank 0 refused this rank: {frame.meta.get('reason')}", rank=rank, peer=0
                )
            if frame.kind == kind:
                return frame
            raise BootstrapError("rank 0's handshake is out of order", rank=rank, peer=0)
        if channel.ended:
            raise BootstrapError("rank 0 ended the connection during the handshake", rank=rank, peer=0)
        left = deadline - time.monotonic()
        if left <= 0:
            raise BootstrapError("rank 0 did not answer the handshake in time", rank=rank, peer=0)
        poll.register(channel.fileno(), select.POLLIN | (select.POLLOUT if channel.pending else 0))
        poll.poll(left * 1000)
