"""Where a process can be reached, and TCP connections to it."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pycollectives.bootstrap.hosted import Host
from pycollectives.topology import Interface, interfaces

_EACH_SECONDS = 3.0


@dataclass(frozen=True)
class Door:
    """Where a process can be reached: host, addresses, port."""

    host: Host
    interfaces: tuple[Interface, ...]
    port: int

    @classmethod
    def of(cls, listener: socket.socket) -> Door:
        """The door that a listening socket of this process is."""
        return cls(Host.here(), tuple(interfaces()), listener.getsockname()[1])

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Door:
        """What `dataclasses.asdict` has made of a door."""
        return cls(
            Host(**found["host"]), tuple(Interface(**each) for each in found["interfaces"]), found["port"]
        )

    def addresses(self) -> list[str]:
        """How to get there from here, the most promising first."""
        if Host.here().sees(self.host):
            return ["127.0.0.1"]
        mine = [each.network for each in interfaces()]
        near = [each for each in self.interfaces if each.network in mine]
        return [each.ip for each in near] + [each.ip for each in self.interfaces if each not in near]


def listen(backlog: int, port: int = 0) -> socket.socket:
    """A TCP socket that listens at all addresses, at a port of the kernel's choice unless one is given."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    return socket.create_server(
        ("", port), family=family, backlog=backlog, dualstack_ipv6=family == socket.AF_INET6
    )


def connect(door: Door, timeout: float) -> socket.socket:
    """A TCP connection to `door`, by the first address that answers. Raises OSError."""
    deadline = time.monotonic() + timeout
    problem: OSError = TimeoutError("it has no address")
    while True:
        for address in door.addresses():
            left = deadline - time.monotonic()
            try:
                sock = socket.create_connection((address, door.port), max(0.01, min(left, _EACH_SECONDS)))
            except OSError as error:
                problem = error
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        if time.monotonic() + 0.1 > deadline:
            raise problem
        time.sleep(0.1)


def connect_all(doors: Mapping[int, Door], seconds: float) -> dict[int, socket.socket]:
    """Connections to as many of `doors` as answer in time, all at once, each tried at one address after the other."""
    made: dict[int, socket.socket] = {}
    left: dict[int, list[str]] = {key: door.addresses() for key, door in doors.items()}
    each = seconds / max(1, *(len(addresses) for addresses in left.values())) if left else 0.0
    with selectors.DefaultSelector() as selector:
        while left:
            for key, addresses in list(left.items()):
                if not addresses:
                    del left[key]
                    continue
                ip = addresses.pop(0)
                sock = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
                sock.setblocking(False)
                if sock.connect_ex((ip, doors[key].port)) in (0, 115):  # EINPROGRESS
                    selector.register(sock, selectors.EVENT_WRITE, key)
                else:
                    sock.close()
            deadline = time.monotonic() + each
            while selector.get_map() and (wait := deadline - time.monotonic()) > 0:
                for ready, _ in selector.select(wait):
                    sock = ready.fileobj  # type: ignore[assignment]
                    selector.unregister(sock)
                    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        sock.close()
                    else:
                        made[ready.data] = sock
                        left.pop(ready.data, None)
            for waiting in list(selector.get_map().values()):
                selector.unregister(waiting.fileobj)
                waiting.fileobj.close()  # type: ignore[union-attr]
    return made


def keep_watch(sock: socket.socket, seconds: float) -> None:
    """Let the kernel notice within about `seconds` that nobody is there any more."""
    third = max(1, round(seconds / 4))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, third),
        (socket.TCP_KEEPINTVL, third),
        (socket.TCP_KEEPCNT, 3),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
