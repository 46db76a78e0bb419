"""A process manager in small: what MPI libraries of MPICH's family ask of whoever started their ranks.

torchrun starts processes that know nothing of MPI. Here rank 0 starts a process that serves the simple PMI protocol, version 1
(MPICH's src/pmi/src/pmi_v1.c is its definition), and each rank's MPI library is told by PMI_PORT where it is. The library puts its
addresses there, waits for all, and reads those of the others; at its end it waits once more.

A process of its own, since MPI_Finalize comes when Python's threads have ended. It trusts whoever connects, as torchrun's store
does. It ends when all ranks have gone. This file is its program too, so it imports nothing of the package.

    line ->  cmd=put kvsname=kvs_0 key=P0-businesscard value=...
    line <-  cmd=put_result rc=0 msg=success
"""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

_LONGEST_LINE = 1 << 16
_NAME = "kvs_0"
_ANSWERS = {
    "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0",
    "get_appnum": "cmd=appnum appnum=0 rc=0",
    "get_my_kvsname": f"cmd=my_kvsname kvsname={_NAME} rc=0",
    "finalize": "cmd=finalize_ack rc=0",
}


def start(listener: socket.socket, size: int, timeout: float) -> None:
    """Serve a job of `size` ranks at a listening TCP socket, in a process of its own. All must come within `timeout` seconds."""
    command = [sys.executable, "-I", __file__, str(listener.fileno()), str(size), str(timeout)]
    none = subprocess.DEVNULL
    subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=none, stdout=none, stderr=none)


def variables(address: str, port: int, rank: int, size: int) -> dict[str, str]:
    """What the MPI library of a rank has to find in its environment when it is initialised."""
    return {
        "PMI_PORT": f"{address}:{port}",
        "PMI_ID": str(rank),
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
    }


class _Rank:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.number = -1
        self.read = b""
        self.finalized = False

    def say(self, line: str) -> None:
        self.sock.sendall(line.encode() + b"\n")

    def lines(self) -> Iterator[dict[str, str]]:
        """What has come. Raises ConnectionError at the end."""
        data = self.sock.recv(_LONGEST_LINE)
        if not data or len(self.read) > _LONGEST_LINE:
            raise ConnectionError
        *whole, self.read = (self.read + data).split(b"\n")
        for line in whole:
            yield dict(word.split("=", 1) for word in line.decode(errors="replace").split() if "=" in word)


class Manager:
    """The state of a job: who is there, what has been put, who waits for all."""

    def __init__(self, listener: socket.socket, size: int, timeout: float) -> None:
        self.size = size
        self._deadline = time.monotonic() + timeout
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._ranks: set[_Rank] = set()
        self._come: set[int] = set()
        self._values: dict[str, str] = {}
        self._waiting: list[_Rank] = []
        self._incomplete = False  # a rank has gone without a word: nobody must wait for all any more

    def run(self) -> None:
        """Serve until all have come and gone, or not all have come in time."""
        while self._ranks or len(self._come) < self.size:
            if len(self._come) < self.size and time.monotonic() > self._deadline:
                return
            for key, _ in self._selector.select(1.0):
                if key.data is None:
                    self._accept()
                else:
                    self._serve(key.data)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(10.0)  # an answer is short, so it can always be sent
        rank = _Rank(sock)
        self._ranks.add(rank)
        self._selector.register(sock, selectors.EVENT_READ, rank)

    def _serve(self, rank: _Rank) -> None:
        try:
            for words in rank.lines():
                self._answer(rank, words)
        except (OSError, KeyError, ValueError):
            self._leave(rank)

    def _leave(self, rank: _Rank) -> None:
        if rank not in self._ranks:
            return
        self._ranks.discard(rank)
        self._selector.unregister(rank.sock)
        rank.sock.close()
        if rank.number >= 0 and not rank.finalized:
            self._incomplete = True
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                self._leave(each)

    def _answer(self, rank: _Rank, words: dict[str, str]) -> None:
        command = words["cmd"]
        if command == "initack":
            rank.number = int(words["pmiid"])
            self._come.add(rank.number)
            if len(self._come) == self.size:  # the port is free again
                self._selector.unregister(self._listener)
                self._listener.close()
            for line in ("initack rc=0", f"set size={self.size}", f"set rank={rank.number}", "set debug=0"):
                rank.say(f"cmd={line}")
        elif command == "put":
            self._values[words["key"]] = words["value"]
            rank.say("cmd=put_result rc=0 msg=success")
        elif command == "get":
            value = self._values.get(words["key"])
            found = (
                "rc=-1 msg=key_not_found value=unknown"
                if value is None
                else f"rc=0 msg=success value={value}"
            )
            rank.say(f"cmd=get_result {found}")
        elif command == "get_universe_size":
            rank.say(f"cmd=universe_size size={self.size} rc=0")
        elif command == "barrier_in":
            self._waiting.append(rank)
            if self._incomplete:
                raise ConnectionError
            if len(self._waiting) == self.size:
                waiting, self._waiting = self._waiting, []
                for each in waiting:
                    each.say("cmd=barrier_out rc=0")
        else:
            rank.finalized = command == "finalize"
            rank.say(_ANSWERS[command])


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        Manager(inherited, int(sys.argv[2]), float(sys.argv[3])).run()
