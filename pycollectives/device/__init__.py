"""Collectives by CUDA kernels: on GPUs, or on a device that is emulated on the CPU."""

from .device import Device, DeviceCall, DeviceWork
from .options import Options, emulated

__all__ = ["Device", "DeviceCall", "DeviceWork", "Options", "emulated"]
