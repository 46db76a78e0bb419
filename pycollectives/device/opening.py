"""The device side that a communicator needs: of one host, or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from .device import Device
from .options import Options
from .spanning import SpanningDevice

if TYPE_CHECKING:
    from ..communicator import Communicator

AnyDevice: TypeAlias = "Device | SpanningDevice"


def open_device(comm: Communicator, options: Options, number: int = -1) -> AnyDevice:
    """Collective. `number`: of the device, -1 for the current one. Raises DeviceError on every rank if one has none."""
    if comm._network is not None:
        return SpanningDevice(comm, options, number)
    return Device(comm, options, number)
