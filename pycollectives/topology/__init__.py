"""Hosts and what connects them."""

from .hosts import Host, Placed, group, ranges
from .interfaces import Interface, interfaces
from .picture import draw, networks, text

__all__ = ["Host", "Interface", "Placed", "draw", "group", "interfaces", "networks", "ranges", "text"]
