"""Operators that the caller wrote (`pc.op`), loaded on a device by all ranks at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..errors import CollectiveError, DeviceError, MismatchError
from . import linking

if TYPE_CHECKING:
    from ..calls import Kind, Recipe
    from ..user_op import UserOp
    from .device import Device

Result = TypeVar("Result")


class Operators:
    """The kernels with operators in them that a communicator has loaded. `module`: the extension."""

    def __init__(self, device: Device, module: Any) -> None:
        self._device, self._comm, self._module, self._native = device, device.comm, module, device._rank
        self._fused, self._threads = device.share.fused, device.share.threads
        self._loaded: dict[tuple[UserOp, np.dtype[Any]], Any] = {}
        self._meetings = 0

    def find(self, operator: UserOp, kind: Kind, made: Recipe) -> Any:
        """The native UserKernels. At the first use of an operator with a dtype all ranks meet, and load them.

        To load code waits for kernels that run, and these would wait for a rank that waits here. So calls that are under way
        end first, on all ranks; then all load; then all go on. Raises UnsupportedError, DeviceError, MismatchError.
        """
        kernels = self._loaded.get((operator, kind.dtype))
        if kernels is None:
            nbytes = made.user.count * kind.dtype.itemsize
            item = self._module.UserItem(nbytes, made.user.count * 4 if made.wide else nbytes)
            self._meetings += 1
            what = f"{operator!r} on {kind.dtype}"
            image = self._together("is known", what, lambda: self._image(operator, kind, made, item))
            kernels = self._together(
                "is loaded",
                what,
                lambda: self._native.load(image, item.form(kind.dtype.name), item, self._threads),
            )
            self._loaded[operator, kind.dtype] = kernels
        return kernels

    def _together(self, step: str, operator: str, act: Callable[[], Result]) -> Result:
        """What `act` returns, when it has on all ranks, and these have no call of this communicator under way; or raise on all."""
        problem: CollectiveError | None = None
        try:
            self._device.drain()
            done = act()
        except CollectiveError as error:
            problem = error
        mine = {"operator": operator, "problem": str(problem or "")}
        met = self._comm._exchange(f"operator {self._meetings} {step}", json.dumps(mine).encode())
        if problem is not None:
            raise problem
        for rank, (text, _) in enumerate(met):
            theirs = json.loads(text)
            if theirs["operator"] != operator:
                raise MismatchError(
                    f"rank {rank} combines by {theirs['operator']}, this rank by {operator}",
                    rank=self._comm.rank,
                    peer=rank,
                )
            if theirs["problem"]:
                raise DeviceError(f"rank {rank}: {theirs['problem']}", rank=self._comm.rank, peer=rank)
        return done

    def _image(self, operator: UserOp, kind: Kind, made: Recipe, item: Any) -> bytes:
        """Machine code; for the emulated device the address of the function that combines on the CPU."""
        if self._device.options.emulated:
            linking.refuse_exceptions(operator)
            return int(made.user.address).to_bytes(8, sys.byteorder)
        computed = np.dtype(np.float32) if made.wide else kind.dtype
        capability = self._module.capability(self._native.device)
        form, kernels = item.form(kind.dtype.name), self._module.user_image()
        return linking.image(operator, computed, item.group, form, capability, kernels, fused=self._fused)
