"""Arrays in device memory on ranks of several hosts.

    what the call is                      the way of its data
    any verb                              staged: pinned host memory, the host communicator's algorithm (staging.py)
    an algorithm `hierarchical` of that   kernels inside the host, shards between the hosts (inside.py)
    MPI takes device pointers             the same, but shards and blocks go from device to device (direct.py)

The host moves the data, so it waits: a blocking call returns when the ranks have moved everything and the last copies are queued
on the caller's stream. An asynchronous one takes its place in the queue of the communicator and waits there.
"""

from __future__ import annotations

import functools
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import Arguments
from ..arrays import address
from ..calls import Kind
from ..errors import (
    AbortedError,
    CollectiveError,
    DeviceError,
    InvalidArgumentError,
    PeerError,
    ScheduleError,
    UnsupportedError,
)
from ..work import TaskWork, in_task
from .arrays import DeviceView, stream_of
from .aware import Answer, agree, ask, describe
from .combining import Combiner
from .direct import Direct
from .extension import native
from .inside import Inside, even_hosts, fits
from .options import Options
from .staging import Staging, check_number, wait_for
from .symmetric import alone

if TYPE_CHECKING:
    from ..communicator import Communicator


class SpanningDevice:
    """The device side of a communicator whose ranks are on several hosts; they have met when it exists.

    `number`: of the device, -1 for the current one. `answer`: may MPI take device pointers, and why.

    Raises DeviceError on every rank if one of them has no device, or cannot open what calls between hosts need.
    """

    def __init__(self, comm: Communicator, options: Options, number: int = -1) -> None:
        self.comm, self.options = comm, options
        self.number, self._arrays = number, 0
        self._under_way: deque[tuple[Any, Arguments]] = deque()
        self._lost: list[Arguments] = []  # of failed calls: MPI, or a copy, may still work on their arrays
        mine, problem = Answer(False, "no device"), ""
        try:
            self._module = native(options.emulated)
            self.number = self._module.current_device() if number < 0 else number
            self._staging = Staging(self._module, self.number, comm.settings.stage_bytes)
            self._combiner = Combiner(comm, options, self.number)
            network = comm._network
            assert network is not None
            mine = ask(network.library, network.comm, comm.settings.cuda_aware_mpi)
        except CollectiveError as error:
            problem = str(error)
        offer = json.dumps({"error": problem, "direct": mine.direct, "why": mine.why})
        offers = [json.loads(text) for text, _ in comm._exchange("device between hosts", offer.encode())]
        for rank, one in enumerate(offers):
            if one["error"]:
                raise DeviceError(f"rank {rank} has no device: {one['error']}", peer=rank)
        self.answer = agree([Answer(one["direct"], one["why"]) for one in offers])
        self._direct: Direct | None = None
        self._inside: Inside | None = None
        try:
            with together(comm, "device opened between hosts"):
                if self.answer.direct:
                    self._direct = Direct(comm, self._staging.copies, self._combiner)
                if (members := even_hosts(comm)) is not None:
                    parts = self._staging, self._combiner, self.answer.direct
                    self._inside = Inside(comm, options, self.number, *parts, members)
        except BaseException:
            self.close()
            raise

    def call(self, arguments: Arguments, *, async_op: bool, timeout: float) -> Any:
        """Make a call; `async_op`: return a `Work` at once. Raises UnsupportedError in a captured stream."""
        check_number([arguments.buffers.x, arguments.buffers.out], self.number)
        ready = []
        if isinstance(arguments.x, DeviceView):
            ready.append(self._module.record(self.number, stream_of(arguments.x)))
        if in_task(self.comm._native()):
            return self.finish(arguments, self.make(arguments, ready, time.monotonic() + timeout), timeout)
        work = SpanningWork(self, arguments, ready, timeout)
        return work if async_op else work.wait(timeout)

    def finish(self, arguments: Arguments, end: Any, timeout: float) -> Any:
        """The result, for use on the caller's stream, which waits for `end`; in host memory, when it is there."""
        if isinstance(arguments.x, DeviceView):
            end.hold(stream_of(arguments.x))
        else:
            wait_for(end, self.comm, time.monotonic() + timeout)
        return arguments.buffers.finish()

    def plan(self, arguments: Arguments, timeout: float) -> Callable[[], Any]:
        """The persistent form of a call. Raises UnsupportedError for strided arrays in device memory."""
        if isinstance(arguments.x, DeviceView) and arguments.buffers.x is not arguments.x:
            raise UnsupportedError("a plan takes no strided array in device memory: pass a contiguous one")
        self.comm._calls.choose(arguments.kind)  # raises now what it would in the call
        return functools.partial(self._again, arguments, timeout)

    def _again(self, arguments: Arguments, timeout: float) -> Any:
        buffers, x = arguments.buffers, arguments.x
        if buffers.x is not x:
            buffers.x[...] = x.reshape(buffers.x.shape)
        return self.call(arguments, async_op=False, timeout=timeout)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Collective: an array in memory that is symmetric inside each host. Raises DeviceError on every rank.

        It has its place in the queue of calls: those that were made before use the kernels and the ranks of the host, too.
        """
        make = functools.partial(self._empty, shape, dtype)
        return TaskWork(self.comm, make, self.comm.timeout, "empty").wait()

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        self._arrays += 1
        with together(self.comm, f"device array {self._arrays}"):
            if self._inside is not None:
                return self._inside.device.empty(shape, dtype)
            return alone(self._module, self.number, shape, dtype)

    def make(self, arguments: Arguments, ready: list[Any], deadline: float) -> Any:
        """A call in its turn; returns the event of its end. A rank that cannot go on tells the others."""
        comm, buffers = self.comm, arguments.buffers
        source = address(buffers.x)
        target = 0 if buffers.out is None else address(buffers.out)
        try:
            if self._inside is not None and self._inside.takes(arguments.kind):
                end = self._inside.call(arguments.kind, source, target, ready, deadline)
            elif self._direct is not None and self._direct.takes(arguments.kind):
                end = self._direct.call(arguments.kind, source, target, ready, deadline)
            else:
                end = self._staging.call(comm, arguments.kind, source, target, ready, deadline)
        except (InvalidArgumentError, UnsupportedError, ScheduleError):
            raise  # on all ranks, before anything has moved
        except BaseException as error:
            self._lost.append(arguments)
            raise self._ended_by(error) from None
        while self._under_way and self._under_way[0][0].done:
            self._under_way.popleft()
        self._under_way.append(
            (end, arguments)
        )  # its arrays live as long as it runs, also if nobody keeps its Work
        return end

    def _ended_by(self, error: BaseException) -> BaseException:
        """What ends the call, on all ranks. The communicators inside know only that their ranks raised."""
        comm = self.comm
        reason = error
        if isinstance(error, AbortedError) and comm._core is not None:
            gone = ((peer, comm._core.gone(peer)) for peer in range(comm.size) if peer != comm.rank)
            # Who has left has raised, too: only the dead are at fault.
            if (lost := next((each for each in gone if " died" in each[1]), None)) is not None:
                reason = PeerError(f"{lost[1]}; needed between hosts", rank=comm.rank, peer=lost[0])
            else:
                try:
                    comm._core.check()
                except CollectiveError as known:
                    reason = known
        if comm._core is not None:
            comm._core.say(str(reason))
            comm._core.abort()
        if self._inside is not None:
            self._inside.abort()
        return reason

    def synchronize(self) -> None:
        """Nothing is on its way when a call has returned, but copies on the caller's stream."""

    def check(self) -> None:
        """Raise what has ended the communicator."""
        self.comm._native().check()

    def abort(self) -> None:
        """End the calls of all ranks."""
        if self._inside is not None:
            self._inside.abort()

    def close(self) -> None:
        """Leave."""
        if self._inside is not None:
            self._inside.close()
        self._combiner.close()


@contextmanager
def together(comm: Communicator, what: str) -> Iterator[None]:
    """Collective: a step that may fail on some ranks, or on one host. Then all of them raise, and none waits for the others.

    DeviceError names the first rank that has failed; what that one has found is the cause there.
    """
    problem, cause = "", None
    try:
        yield
    except CollectiveError as error:
        problem, cause = str(error) or type(error).__name__, error
    for rank, (text, _) in enumerate(comm._exchange(what, problem.encode())):
        if text:
            raise DeviceError(f"rank {rank}: {text.decode()}", rank=comm.rank, peer=rank) from cause


def explain_way(comm: Communicator, kind: Kind) -> str:
    """A line about the way of a call's data between the devices of several hosts. Needs no other rank, and no device."""
    opened = comm._device
    if isinstance(opened, SpanningDevice):
        answer = opened.answer
    else:  # this rank's; all have to say the same
        network = comm._network
        assert network is not None
        answer = ask(network.library, network.comm, comm.settings.cuda_aware_mpi)
    if fits(comm, kind):
        way = "kernels inside the host, and between hosts shards"
    elif answer.direct and Direct.takes(kind):
        way = "blocks from device to device, combined there"
    else:
        why = "no other way for this call" if answer.direct else answer.why
        return f"arrays in device memory: by the algorithm above; {describe(Answer(False, why))}"
    return f"arrays in device memory: {way}; {describe(answer)}"


class SpanningWork(TaskWork):
    """A call between hosts. `wait()` waits for the ranks; in device memory the caller's stream then waits for the last copies."""

    def __init__(
        self, device: SpanningDevice, arguments: Arguments, ready: list[Any], timeout: float
    ) -> None:
        self._device, self._arguments = device, arguments
        make = functools.partial(self._make, device, arguments, ready, timeout)
        kind = arguments.kind
        super().__init__(device.comm, make, timeout, f"{kind.verb}({kind.dtype}[{kind.count}])")

    @staticmethod
    def _make(device: SpanningDevice, arguments: Arguments, ready: list[Any], timeout: float) -> Any:
        return device.make(arguments, ready, time.monotonic() + timeout)

    def done(self) -> bool:
        """Has the call ended, and is its result there? Never blocks."""
        return super().done() and (self._error is not None or bool(self._result.done))

    def wait(self, timeout: float | None = None) -> Any:
        """The result. Raises what the call raised, CollectiveTimeoutError after `timeout` seconds (the call goes on)."""
        end = super().wait(timeout)
        return self._device.finish(self._arguments, end, self._device.comm._limit(timeout))
