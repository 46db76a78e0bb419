"""One rank's device: prepares calls for the kernels, launches them, and waits.

Kind -> calls.Calls.recipe -> native Call (plan and tables in device memory) -> launch on a stream -> wait
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..arguments import Arguments
from ..arrays import Array, address
from ..errors import DeviceError
from .options import PROTOCOLS, Options

if TYPE_CHECKING:
    from ..calls import Kind
    from ..communicator import Communicator

# The algorithms that have a native kernel, by number (csrc/cuda/host/direct_call.hpp).
NATIVE = {
    ("all_reduce", "one_shot"): 0,
    ("all_reduce", "two_shot"): 1,
    ("reduce_scatter", "direct"): 2,
    ("all_gather", "direct"): 3,
    ("broadcast", "flat"): 4,
}

LL_BYTES, LL128_BYTES = 16 * 1024, 512 * 1024  # the longest calls of these protocols


def native(emulated: bool) -> Any:
    """The extension. Raises DeviceError where it was not built."""
    name = "_cuda_emulated" if emulated else "_cuda"
    try:
        return importlib.import_module(f"pycollectives.{name}")
    except ImportError as error:
        how = "PYCOLLECTIVES_EMULATOR=1" if emulated else "nvcc"
        raise DeviceError(
            f"the extension {name} was not built (it needs {how} at build time): {error}"
        ) from error


class Device:
    """The device side of a communicator; its ranks have met when it exists."""

    def __init__(self, comm: Communicator, options: Options) -> None:
        self.comm, self.options = comm, options
        module = native(options.emulated)
        group = f"{comm.name} {id(comm._rendezvous) if comm.rank == 0 else ''}"
        group = comm._exchange("device", group.encode())[0][0].decode()
        self._rank = module.Rank(
            name=group,
            rank=comm.rank,
            size=comm.size,
            device=0,
            blocks=options.blocks,
            depth=options.depth,
            slot_bytes=options.slot_bytes,
            number_bits=options.number_bits,
            staging_bytes=options.staging_bytes,
        )
        for peer, (handle, _) in enumerate(comm._exchange("device memory", self._rank.handle())):
            if peer != comm.rank:
                self._rank.attach(peer, handle)
        self._rank.open()
        comm._exchange("device open", b"")
        self._kept: dict[Kind, Any] = {}

    def find(self, kind: Kind) -> Any:
        """The native call of this kind. Raises InvalidArgumentError, UnsupportedError, ScheduleError, DeviceError."""
        call = self._kept.get(kind)
        if call is None:
            call = self._kept[kind] = self._make(kind)
        return call

    def _make(self, kind: Kind) -> Any:
        calls, options = self.comm._calls, self.options
        one = calls.choose(kind)
        made = calls.recipe(one, kind)
        fingerprint = kind.fingerprint(one.name)
        number = NATIVE.get((kind.verb, one.name)) if options.native and kind.counts is None else None
        if number is not None and made.user is None:
            return self._rank.prepare_direct(
                algorithm=number,
                count=sum(made.blocks),
                root=max(kind.root, 0),
                dtype=made.dtype,
                op=made.op,
                moves=kind.operator is None,
                any=options.any_kernel,
                epilogue=made.epilogue,
                factor=made.factor,
                fingerprint=fingerprint,
                threads=options.threads,
                blocks=options.blocks,
                least_slice=options.least_slice,
                always_stage=options.always_stage,
            )
        return self._rank.prepare(
            plan=made.plan,
            blocks=made.blocks,
            sent=made.sent,
            taken=made.taken,
            held_in=made.held_in,
            held_out=made.held_out,
            protocol=PROTOCOLS.index(self._protocol(kind, fingerprint)),
            dtype=made.dtype,
            op=made.op,
            moves=kind.operator is None,
            wide=made.wide,
            any=options.any_kernel,
            epilogue=made.epilogue,
            factor=made.factor,
            fingerprint=fingerprint,
            threads=options.threads,
            lanes=options.blocks,
            least_slice=options.least_slice,
        )

    def _protocol(self, kind: Kind, fingerprint: int) -> str:
        if self.options.protocol:
            return self.options.protocol
        if self.options.emulated:  # all of them, but the same on all ranks
            return PROTOCOLS[fingerprint % len(PROTOCOLS)]
        nbytes = kind.vector_bytes(self.comm.size)
        return "ll" if nbytes <= LL_BYTES else "simple"

    def call(self, arguments: Arguments, *, async_op: bool) -> Any:
        """Make a call; `async_op`: return a DeviceWork at once."""
        self._launch(self.find(arguments.kind), arguments)
        if async_op:
            return DeviceWork(self, arguments)
        self._rank.synchronize()
        return arguments.buffers.finish()

    def plan(self, arguments: Arguments) -> DeviceCall:
        """The persistent form of a call."""
        return DeviceCall(self, self.find(arguments.kind), arguments)

    def _launch(self, call: Any, arguments: Arguments) -> None:
        buffers = arguments.buffers
        self._rank.launch(call, address(buffers.x), 0 if buffers.out is None else address(buffers.out))

    def abort(self) -> None:
        """End the kernels that wait, of all ranks."""
        self._rank.abort()

    def close(self) -> None:
        """Leave."""
        self._rank.abort()


class DeviceWork:
    """An asynchronous device call. `wait()` returns its result, or raises what it found."""

    def __init__(self, device: Device, arguments: Arguments) -> None:
        self._device, self._arguments = device, arguments
        self._finished = False

    def done(self) -> bool:
        """Has the call ended? Never blocks."""
        return self._finished or bool(self._device._rank.done)

    def wait(self, timeout: float | None = None) -> Array | None:
        """Wait for the end and return the result."""
        if not self._finished:
            self._device._rank.synchronize()
            self._finished = True
            self._arguments.buffers.finish()
        return self._arguments.buffers.result


class DeviceCall:
    """A device call that was decided and checked once."""

    def __init__(self, device: Device, call: Any, arguments: Arguments) -> None:
        self._device, self._call, self._arguments = device, call, arguments

    def __call__(self) -> Array | None:
        buffers, x = self._arguments.buffers, self._arguments.x
        if buffers.x is not x:
            buffers.x[...] = x.reshape(buffers.x.shape)
        self._device._launch(self._call, self._arguments)
        self._device._rank.synchronize()
        return buffers.finish()
