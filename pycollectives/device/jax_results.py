"""Results for JAX, whose arrays are never written: memory of ours is filled first, and given to JAX by DLPack then."""

from __future__ import annotations

import importlib
import math
from typing import Any

from .arrays import DeviceView, stream_of
from .extension import native
from .symmetric import LEAST_BYTES, SymmetricArray

EMULATED = False  # a test's


class JaxResult(SymmetricArray):
    """Device memory of one rank, which becomes an array of JAX. Raises DeviceError where there is not so much."""

    def __init__(self, x: DeviceView, shape: tuple[int, ...]) -> None:
        module = native(EMULATED)
        number = x.number if x.number >= 0 else module.current_device()
        nbytes = max(LEAST_BYTES, math.prod(shape) * x.dtype.itemsize)
        super().__init__(module.SymmetricMemory(number, nbytes), shape, x.dtype, number)
        self._module, self._stream = module, stream_of(x)  # on which it is filled

    def finished(self) -> Any:
        """The array of JAX, when all that fills it is queued."""
        return importlib.import_module("jax").dlpack.from_dlpack(self)

    def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
        """The stream that JAX names waits for what fills the array; where it names none, the host does."""
        event = self._module.record(self.device.id, self._stream)
        if stream is None:
            while not event.wait_for(1.0):
                pass
        elif stream != -1:  # the consumer needs no order
            event.hold(stream)
        return super().__dlpack__(stream=stream, **more)
