"""One rank's device: prepares calls for the kernels, launches them, and waits.

Kind -> calls.Calls.recipe -> native Call (plan and tables in device memory) -> launch on a stream -> wait
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from ..arguments import Arguments
from ..arrays import address
from ..errors import AbortedError, DeviceError, InvalidArgumentError, UnsupportedError
from ..schedule import Algorithm
from ..schedule.lowering import lower
from .arrays import DeviceView, stream_of
from .extension import native
from .guard import PERIOD, Guard
from .operators import Operators
from .options import PROTOCOLS, Options
from .partials import widened
from .sharing import STREAMS, Share, crowds, queues, share_devices, sizes
from .switch import bound_to_switch
from .symmetric import Symmetric

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

_numbers = itertools.count()  # of devices that were opened by this process

# Libraries whose memory is used again in the order of the stream that is current; that of others may go as soon as nobody has it.
ORDERED = ("cupy", "torch")

LL_BYTES, LL128_BYTES = 16 * 1024, 512 * 1024  # the longest calls of these protocols


class Device:
    """The device side of a communicator; its ranks have met when it exists.

    `number`: of the device, -1 for the current one. `share`: how the ranks share devices (sharing.py). `ll128`: is that protocol
    right on all links between them?

    Raises DeviceError on every rank if one of them has no device, or too small a one.
    """

    def __init__(self, comm: Communicator, options: Options, number: int = -1) -> None:
        self.comm, self.options = comm, options
        self.number, self.share, group = self._meet(number)
        module = native(options.emulated)

        def make() -> bytes:
            self._rank = module.Rank(
                name=group,
                rank=comm.rank,
                size=comm.size,
                device=self.number,
                blocks=self.share.blocks,
                depth=options.depth,
                slot_bytes=options.slot_bytes,
                number_bits=options.number_bits,
                staging_bytes=options.staging_bytes,
                fused=self.share.fused,
                stages_host=options.stages_host,
            )
            return bytes(self._rank.handle())

        def reach() -> bytes:
            for peer, handle in enumerate(handles):
                if peer != comm.rank:
                    self._rank.attach(peer, handle)
            self._rank.open()
            return bytes([self._rank.keeps_lines_whole])

        handles = self._all("device memory", make)
        self.ll128 = b"\0" not in self._all("device open", reach)
        self.multicast = self.share.multicast and self._bind_multicast()
        self._kept: dict[tuple[Kind, bool], Any] = {}
        self._operators = Operators(self, module)
        self._under_way: deque[DeviceWork | _Held] = deque()
        self._guard = Guard(comm, self._rank)
        self._symmetric = Symmetric(self)

    def _all(self, what: str, act: Callable[[], bytes]) -> list[bytes]:
        """What `act` gives on each rank; DeviceError on all of them if one cannot."""
        try:
            told = b"+" + act()
        except (DeviceError, UnsupportedError) as error:
            told = b"-" + str(error).encode()
        offers = [text for text, _ in self.comm._exchange(what, told)]
        for rank, text in enumerate(offers):
            if text.startswith(b"-"):
                raise DeviceError(f"rank {rank}: {text[1:].decode()}", peer=rank)
        return [text[1:] for text in offers]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Collective: an array in symmetric memory. Raises DeviceError on every rank if one has not the memory."""
        return self._symmetric.empty(shape, dtype)

    def _meet(self, number: int) -> tuple[int, Share, str]:
        """The own device, how devices are shared, and a name that no other communicator has."""
        comm, options = self.comm, self.options
        offer: dict[str, Any] = {
            "group": f"{comm.name} {os.getpid()} {next(_numbers)}",
            "pid": os.getpid(),
        }
        try:
            module = native(options.emulated)
            offer["queues"] = comm.size * STREAMS if options.emulated else queues() - module.streams()
            number = module.current_device() if number < 0 else number
            offer["bus"] = module.bus_id(number)
            offer["crowd"] = comm._family.ranks_on.get(offer["bus"], 0)
            offer["multicast"] = module.has_multicast(number)
            room = {t: module.capacity(number, t, comm.size, options.fused) for t in sizes(options.threads)}
            offer["capacity"] = room
        except DeviceError as error:
            offer["error"] = str(error)
        offers = [json.loads(text) for text, _ in comm._exchange("device", json.dumps(offer).encode())]
        for rank, one in enumerate(offers):
            if "error" in one:
                raise DeviceError(f"rank {rank} has no device: {one['error']}", peer=rank)
        self._one_process = len({one["pid"] for one in offers}) == 1
        comm._family.ranks_on[offer["bus"]] = crowds(offers)[offer["bus"]]
        return number, share_devices(offers, options), offers[0]["group"]

    def _bind_multicast(self) -> bool:
        """Bind memory of all ranks for native kernels, if all can: the switch may be down, or its memory used up."""
        memory = bound_to_switch(self.comm, self._rank, "multicast", self._rank.multicast_bytes)
        self._rank.use_multicast(memory)
        return memory is not None

    def find(self, kind: Kind, *, wide: bool = False) -> Any:
        """The native call of this kind. Raises InvalidArgumentError, UnsupportedError, ScheduleError, DeviceError.

        `wide`: its output is of the accumulation type.
        """
        call = self._kept.get((kind, wide))
        if call is None:
            call = self._kept[kind, wide] = self._make(kind, wide)
        return call

    def _make(self, kind: Kind, wide: bool) -> Any:
        calls, options = self.comm._calls, self.options
        one = calls.choose(kind)
        made = calls.recipe(one, kind)
        user = None
        if kind.operator is not None and kind.operator.user is not None:
            user = self._operators.find(kind.operator.user, kind, made)
        fingerprint = kind.fingerprint(one.name)
        plain = options.native and kind.counts is None and not wide
        number = NATIVE.get((kind.verb, one.name)) if plain else None
        if number is not None and (user is None or user.item.in_one_vector):
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
                threads=self.share.threads,
                blocks=self.share.blocks,
                least_slice=options.least_slice,
                always_stage=options.always_stage,
                any_order=not kind.deterministic,
                user=user,
            )
        hand = options.hand_ring and (kind.verb, one.name, kind.dtype.name) == (
            "all_reduce",
            "ring",
            "float32",
        )
        return self._rank.prepare(
            plan=self._wide_plan(one, kind) if wide else made.plan,
            blocks=made.blocks,
            sent=made.sent,
            taken=made.taken,
            held_in=made.held_in,
            held_out=made.held_out,
            protocol=PROTOCOLS.index("simple" if hand else self._protocol(kind, fingerprint)),
            dtype=made.dtype,
            op=made.op,
            moves=kind.operator is None,
            wide=made.wide,
            any=options.any_kernel,
            hand=hand,
            epilogue=made.epilogue,
            factor=made.factor,
            fingerprint=fingerprint,
            threads=self.share.threads,
            lanes=self.share.blocks,
            least_slice=options.least_slice,
            user=user,
        )

    def _wide_plan(self, one: Algorithm, kind: Kind) -> Any:
        comm = self.comm
        lowered = lower(one, comm.size, comm.rank, max(kind.root, 0), staged=True, wide=True)
        return _core.Plan(**widened(lowered).arrays())

    def _protocol(self, kind: Kind, fingerprint: int) -> str:
        if self.options.protocol:
            return self.options.protocol
        if self.options.emulated:  # all of them, but the same on all ranks
            known = PROTOCOLS if self._one_process else ("ll", "simple")  # no line is whole between processes
            return known[fingerprint % len(known)]
        nbytes = kind.vector_bytes(self.comm.size)
        if nbytes <= LL_BYTES:
            return "ll"
        return "ll128" if self.ll128 and nbytes <= LL128_BYTES else "simple"

    def call(self, arguments: Arguments, *, async_op: bool, timeout: float) -> Any:
        """Make a call; `async_op`: return a DeviceWork at once.

        Arrays in device memory: on the stream that is current in their library, without waiting; an asynchronous call on a
        stream of its own that begins where that one stands.
        """
        call = self.find(arguments.kind)
        stream = self._stream(arguments)
        if not async_op:
            self._launch(call, arguments, stream, timeout)
            self.settle()
            if not stream:
                self.synchronize()
            else:
                self._hold(stream, arguments)
            return arguments.buffers.finish()
        if stream:
            self._rank.follow(stream)
        self._launch(call, arguments, 0, timeout)
        work = DeviceWork(self, arguments, self._rank.mark(), self._rank.handed_in)
        self._keep(work)
        return work

    def _hold(self, stream: int, arguments: Arguments) -> None:
        """Keep the arrays of a call on the caller's stream, where their library does not."""
        if getattr(arguments.x, "library", "") in ORDERED:
            return
        # In a capture, which is refused here, arrays live as long as the graph, or longer.
        with contextlib.suppress(UnsupportedError):
            self._keep(_Held(native(self.options.emulated).record(self.number, stream), arguments))

    def _keep(self, work: DeviceWork | _Held) -> None:
        """Its arrays live as long as it runs, also if nobody keeps it."""
        self._let_go()
        self._under_way.append(work)

    def _let_go(self) -> None:
        """Of the arrays of calls that have ended."""
        while self._under_way and self._under_way[0].done():
            self._under_way.popleft()

    def launch(
        self, kind: Kind, source: int, target: int, ready: list[Any], timeout: float, *, wide: bool = False
    ) -> Any:
        """A call on the own stream, from and to device memory, when the events `ready` have come; the event of its end.

        The event also comes when a launch that ranks share is given up: `settle` raises that.
        `wide`: its output is of the accumulation type.
        """
        call = self.find(kind, wide=wide)
        self._guard.check()
        for event in ready:
            event.hold(self._rank.stream)
        self._rank.launch(call, source, target, 0)
        self._guard.expect(timeout)
        return self._rank.mark()

    def copy(self, copies: list[tuple[int, int, int]], ready: list[Any]) -> Any:
        """The same for copies inside device memory: (target, source, bytes) each."""
        for event in ready:
            event.hold(self._rank.stream)
        native(self.options.emulated).copy_on(self._rank.stream, copies)
        return self._rank.mark()

    def plan(self, arguments: Arguments, timeout: float) -> DeviceCall:
        """The persistent form of a call. Raises UnsupportedError for strided arrays in device memory, and results for JAX."""
        if isinstance(arguments.x, DeviceView) and arguments.buffers.x is not arguments.x:
            raise UnsupportedError("a plan takes no strided array in device memory: pass a contiguous one")
        if hasattr(getattr(arguments.buffers, "made", None), "finished"):
            raise UnsupportedError(
                "a plan would write an array of JAX again, which is never written: pass out="
            )
        return DeviceCall(self, self.find(arguments.kind), arguments, timeout)

    def _stream(self, arguments: Arguments) -> int:
        """The caller's stream, 0 for arrays in host memory. Raises InvalidArgumentError for arrays of another device."""
        for x in (arguments.buffers.x, arguments.buffers.out):
            if isinstance(x, DeviceView) and x.number not in (-1, self.number):
                raise InvalidArgumentError(
                    f"an array is on device {x.number}, but this rank's calls are made on device {self.number}"
                )
        return stream_of(arguments.x) if isinstance(arguments.x, DeviceView) else 0

    def _launch(self, call: Any, arguments: Arguments, stream: int, timeout: float) -> None:
        self._guard.check()
        buffers = arguments.buffers
        target = 0 if buffers.out is None else address(buffers.out)
        if stream or not self.options.stages_host:
            self._rank.launch(call, address(buffers.x), target, stream)
        else:
            self._rank.launch_staged(call, address(buffers.x), target)
        self._guard.expect(timeout)

    def settle(self, call: int | None = None) -> None:
        """Wait on the host until all ranks that share a launch have made their part of this call, or of the last one.

        Raises what ended it.
        """
        if not self.share.fused:
            return
        number = self._rank.handed_in if call is None else call
        try:
            try:
                while not self._rank.settle(number, PERIOD):
                    self._guard.check()
            except AbortedError:
                self._guard.check()
                raise
        except BaseException as error:  # also an interrupt: the caller may free what the call works on
            self._guard.end(error)
            raise

    def drain(self) -> None:
        """Wait on the host for all calls that were made so far. Raises what they found."""
        self.settle()
        if self.share.fused:
            last = self._rank.mark()
            while not last.wait_for(PERIOD):
                self._guard.check()
        else:
            self._rank.drain()
        self._let_go()
        self.check()

    def synchronize(self) -> None:
        """Wait for the calls on the own stream. Raises what they found."""
        try:
            self._rank.synchronize()
        except AbortedError:
            self._guard.check()
            raise

    def check(self) -> None:
        """Raise what calls have found so far."""
        self._guard.check()
        self._rank.check()

    def abort(self) -> None:
        """End the kernels that wait, of all ranks."""
        self._rank.abort()

    def close(self) -> None:
        """Leave."""
        self._guard.close()
        self._rank.abort(lost=self.comm.rank)


class _Held(NamedTuple):
    """A call on the caller's stream that may still be on its way."""

    event: Any
    arguments: Arguments

    def done(self) -> bool:
        return bool(self.event.done)


class DeviceWork:
    """An asynchronous device call. `wait()` returns its result, or raises what it found."""

    def __init__(self, device: Device, arguments: Arguments, event: Any, call: int) -> None:
        self._device, self._arguments, self._event, self._call = device, arguments, event, call
        self._result: Any = None
        self._finished = False

    def done(self) -> bool:
        """Has the call ended? Never blocks."""
        return self._finished or bool(self._event.done)

    def wait(self, timeout: float | None = None) -> Any:
        """Return the result: when it is there, or, in device memory, for use on the caller's stream, which waits for it."""
        if not self._finished:
            self._device.settle(self._call)
            if stream := self._device._stream(self._arguments):
                self._event.hold(stream)
                self._device.check()
            else:
                self._device.synchronize()
            self._result = self._arguments.buffers.finish()
            self._finished = True
        return self._result


class DeviceCall:
    """A device call that was decided and checked once."""

    def __init__(self, device: Device, call: Any, arguments: Arguments, timeout: float) -> None:
        self._device, self._call, self._arguments, self._timeout = device, call, arguments, timeout

    def __call__(self) -> Any:
        device, arguments = self._device, self._arguments
        buffers, x = arguments.buffers, arguments.x
        stream = device._stream(arguments)
        if not stream and buffers.x is not x:
            buffers.x[...] = x.reshape(buffers.x.shape)
        device._launch(self._call, arguments, stream, self._timeout)
        device.settle()
        if stream:
            device._hold(stream, arguments)
        else:
            device.synchronize()
        return buffers.finish()
