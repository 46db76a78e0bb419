"""The network interfaces of this host."""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_GET_FLAGS, _GET_ADDRESS, _GET_MASK, _ETHTOOL = 0x8913, 0x8915, 0x891B, 0x8946
_GET_SETTINGS = 0x00000001  # of ethtool
_UP, _LOOPBACK = 0x1, 0x8


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

    def __str__(self) -> str:
        """As in "eth0 10.0.0.1/24, 10 Gbit/s"."""
        if self.rate is None:
            return f"{self.name} {self.address}"
        rate = f"{self.rate / 1000:g} Gbit/s" if self.rate >= 1000 else f"{self.rate} Mbit/s"
        return f"{self.name} {self.address}, {rate}"


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
    """What the card says of its speed; virtual ones often say nothing."""
    settings = array.array("B", struct.pack("<I40x", _GET_SETTINGS))
    address, _ = settings.buffer_info()
    try:
        fcntl.ioctl(sock, _ETHTOOL, struct.pack("16sP16x", name.encode()[:15], address))
    except OSError:
        return None
    low, high = struct.unpack_from("<H", settings, 12)[0], struct.unpack_from("<H", settings, 28)[0]
    rate = high << 16 | low
    return rate if 0 < rate < 0xFFFFFFFF else None
