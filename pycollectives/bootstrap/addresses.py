"""The network addresses of this host, and TCP connections to those of another."""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pycollectives.bootstrap.hosted import Host

_GET_FLAGS, _GET_ADDRESS, _GET_MASK, _ETHTOOL = 0x8913, 0x8915, 0x891B, 0x8946
_GET_SETTINGS = 0x00000001  # of ethtool
_UP, _LOOPBACK = 0x1, 0x8
_EACH_SECONDS = 3.0


@dataclass(frozen=True)
class Interface:
    """A network interface that is up: its address as "10.0.0.1/24", and its rate in Mbit/s if it says so."""

    name: str
    address: str
    rate: int | None = None

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """The network that the address is in."""
        return ipaddress.ip_interface(self.address).network

    @property
    def ip(self) -> str:
        """The address alone."""
        return self.address.partition("/")[0]


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

    def addresses(self) -> list[str]:
        """How to get there from here, the most promising first."""
        if Host.here().sees(self.host):
            return ["127.0.0.1"]
        mine = [each.network for each in interfaces()]
        near = [each for each in self.interfaces if each.network in mine]
        return [each.ip for each in near] + [each.ip for each in self.interfaces if each not in near]


def interfaces() -> list[Interface]:
    """The interfaces of this network namespace that are up, but for the loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                flags = struct.unpack_from("H", _ask(sock, _GET_FLAGS, name), 16)[0]
                if flags & _LOOPBACK or not flags & _UP:
                    continue
                ip = socket.inet_ntoa(_ask(sock, _GET_ADDRESS, name)[20:24])
                mask = socket.inet_ntoa(_ask(sock, _GET_MASK, name)[20:24])
            except OSError:  # it has no IPv4 address
                continue
            prefix = ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen
            found.append(Interface(name, f"{ip}/{prefix}", _rate(sock, name)))
    return found + list(_version6({each.name for each in found}))


def _version6(known: set[str]) -> Iterator[Interface]:
    """Interfaces that have a global IPv6 address only."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, prefix, scope, _, name = line.split()
            if scope == "00" and name not in known and name != "lo":
                ip = ipaddress.IPv6Address(int(digits, 16))
                yield Interface(name, f"{ip}/{int(prefix, 16)}")


def _ask(sock: socket.socket, request: int, name: str) -> bytes:
    return fcntl.ioctl(sock, request, struct.pack("256s", name.encode()[:15]))


def _rate(sock: socket.socket, name: str) -> int | None:
    settings = array.array("B", struct.pack("<I40x", _GET_SETTINGS))
    address, _ = settings.buffer_info()
    try:
        fcntl.ioctl(sock, _ETHTOOL, struct.pack("16sP16x", name.encode()[:15], address))
    except OSError:
        return None
    low, high = struct.unpack_from("<H", settings, 12)[0], struct.unpack_from("<H", settings, 28)[0]
    rate = high << 16 | low
    return rate if 0 < rate < 0xFFFFFFFF else None


def listen(backlog: int) -> socket.socket:
    """A TCP socket that listens at all addresses, at a port of the kernel's choice."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    return socket.create_server(
        ("", 0), family=family, backlog=backlog, dualstack_ipv6=family == socket.AF_INET6
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
