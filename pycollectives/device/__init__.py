"""Collectives by CUDA kernels: on GPUs, or on a device that is emulated on the CPU."""

from .options import Options, emulated

__all__ = ["Options", "emulated"]
