"""`with comm.group():` makes one call of several small ones.

    all_reduce(a)    all_reduce(b)    broadcast(c)    all_reduce(d)
         |                |                |               |
         +--------+-------+----------------|---------------+
                  |                        |
            [ a | b | d ]                [ c ]         at the end of the block: one call per bucket,
                                                       in the order in which the buckets were opened

Calls share a bucket if one native call can serve them all: the same verb, operator, root and algorithm, and
for reductions the same dtype; what is only moved is moved as bytes. The list of a bucket is part of its
call's fingerprint, so ranks that issue different lists get MismatchError.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import _core
from .arguments import Arguments
from .arrays import Array
from .calls import Kind
from .device.arrays import DeviceView
from .errors import InvalidArgumentError
from .fusion import SPLITS, Bucket, Item, Pending, Use, clash
from .work import Work

if TYPE_CHECKING:
    from .communicator import Communicator

Method = TypeVar("Method", bound=Callable[..., Any])

BUFFER = 16  # a fusion buffer holds at most so many times the largest array that goes into one
RESOLVED = ("op", "root", "counts", "out", "algorithm", "deterministic")  # what Caller._resolve takes

_here = threading.local()  # .groups: the open group of each communicator in this thread


@dataclass
class _Later:
    """A call that goes alone."""

    pending: Pending
    call: Callable[[], Any]

    def run(self, comm: Communicator) -> None:
        """Make the call."""
        result = self.call()
        self.pending.finish(result.wait() if isinstance(result, Work) else result)


class Group:
    """The calls that one thread has issued inside `comm.group()`."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.largest = comm.settings.fusion_bytes
        self._steps: list[Bucket | _Later] = []
        self._open: dict[tuple[Any, ...], Bucket] = {}
        self._pending: list[Pending] = []
        self._uses: list[Use] = []

    def __len__(self) -> int:
        return len(self._pending)

    def call(self, verb: str, x: Any, *, timeout: float | None, uneven: bool, **options: Any) -> Pending:
        """Takes a call of an array verb. Raises what the call itself would raise for wrong arguments."""
        options = dict.fromkeys(RESOLVED) | {"deterministic": False} | options
        comm, out = self.comm, options["out"]
        algorithm, _ = comm._named(comm._even(verb), options["algorithm"])
        options["algorithm"] = algorithm  # that of this line: `pc.use` may be over at the end of the block
        if not uneven:  # those may have to exchange counts first
            arguments = comm._resolve(verb, x, *(options[name] for name in RESOLVED))
            if algorithm is not None:
                comm._calls.choose(arguments.kind)  # a name that is unknown, or cannot run this call
            nbytes = arguments.kind.vector_bytes(comm.size)
            on_device = isinstance(arguments.x, DeviceView)  # whose memory is not packed here
            if nbytes <= self.largest and _fusable(arguments.kind) and not on_device:
                self._use([arguments.x], [] if out is None else [out])
                return self._fuse(arguments, nbytes, comm._limit(timeout))
        arrays = [[a] if isinstance(a, np.ndarray) else [] for a in (x, out)]
        return self.later(functools.partial(comm._call, verb, x, timeout=timeout, **options), verb, *arrays)

    def later(
        self,
        call: Callable[[], Any],
        text: str = "call",
        reads: Sequence[Array] = (),
        writes: Sequence[Array] = (),
    ) -> Pending:
        """Takes a call that goes alone; it reads and writes these arrays."""
        self._use(reads, writes)
        pending = self._new(text)
        self._steps.append(_Later(pending, call))
        return pending

    def _new(self, call: str | Kind) -> Pending:
        self._pending.append(Pending(call))
        return self._pending[-1]

    def _use(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        call = len(self._pending)
        self._uses += [Use(a, call, False) for a in reads] + [Use(a, call, True) for a in writes]

    def _fuse(self, arguments: Arguments, nbytes: int, timeout: float) -> Pending:
        kind, size = arguments.kind, self.comm.size
        moved = () if kind.operator is None else (kind.dtype, kind.operator, kind.deterministic)
        key = (kind.verb, kind.root, kind.named, *moved)
        bucket = self._open.get(key)
        if bucket is None or not bucket.has_room(nbytes):
            bucket = self._open[key] = Bucket(BUFFER * self.largest, timeout)
            self._steps.append(bucket)
        position, width = len(self._pending), kind.count // (size if kind.verb in SPLITS else 1)
        pending = self._new(kind)
        bucket.add(Item(pending, position, arguments, width), nbytes, timeout)
        return pending

    def run(self) -> None:
        """Make all calls."""
        try:
            if any(use.writes for use in self._uses) and (found := clash(self._uses)) is not None:
                names = " and ".join(f"{i} ({self._pending[i].text})" for i in found)
                raise InvalidArgumentError(
                    f"calls {names} of a group use the same memory, and one writes it; "
                    "the calls of a group must be independent of each other"
                )
            for step in self._steps:
                step.run(self.comm)
        except BaseException as error:
            self.cancel(error)
            raise

    def cancel(self, error: BaseException) -> None:
        """The calls that have not been made will not be."""
        for pending in self._pending:
            pending.fail(error)


def _fusable(kind: Kind) -> bool:
    """Can one call do it along with others? The same answer on every rank."""
    if kind.operator is None:
        return kind.verb != "barrier"
    return kind.operator.kernel in _core.OPS


def current(comm: Any) -> Group | None:
    """The group of `comm` that is open in this thread."""
    groups: dict[Any, Group] | None = getattr(_here, "groups", None)
    return groups.get(comm) if groups else None


def deferrable(method: Method) -> Method:
    """A verb that goes alone, at the end of the group that it is called in."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        group = current(self)
        if group is None:
            return method(self, *args, **options)
        return group.later(functools.partial(method, self, *args, **options), method.__name__)

    return call  # type: ignore[return-value]


def outside(comm: Any, what: str) -> None:
    """InvalidArgumentError inside a group."""
    if current(comm) is not None:
        raise InvalidArgumentError(f"{what} needs its result at once; call it outside of group()")


class Grouping:
    """`group()`; `Communicator` inherits it."""

    @contextlib.contextmanager
    def group(self) -> Iterator[Group]:
        """Collect the calls of a `with` block and make them at its end, small ones packed into one.

            with comm.group():
                a = comm.all_reduce(x)           # a `Work`, for use after the block
                comm.all_reduce(y, out=y)
                comm.broadcast(z, root=1, out=z)
            total = a.wait()                     # y and z are filled as well

        Calls of one verb, operator, root and algorithm (for reductions: of one dtype too) are packed into one
        fusion buffer; arrays above PYCOLLECTIVES_FUSION_BYTES (64 KiB, decided by rank 0), barriers, user
        operators, uneven and object forms go alone, in the order of their issue.

        All ranks issue the same list: MismatchError otherwise. The calls must not depend on each other:
        InvalidArgumentError at the end if one touches an array that another one writes. `wait()` inside the
        block raises InvalidArgumentError, and AbortedError if the call was never made. The arrays belong
        to the group until its end, where the other errors of a call are raised too; the calls after it are
        not made. If the block raises, nothing is sent. An inner group joins the outer one. `async_op=True`
        changes nothing inside. The block is of one communicator and one thread. `split`, `empty` and `plan`
        raise InvalidArgumentError inside; persistent calls, sends and receives run at once.
        """
        comm: Any = self
        comm._native()
        groups: dict[Any, Group] = _here.__dict__.setdefault("groups", {})
        if comm in groups:
            yield groups[comm]
            return
        made = groups[comm] = Group(comm)
        _core.override(1)  # calls must not take the native fast way past the group
        try:
            yield made
        except BaseException as error:
            made.cancel(error)
            raise
        finally:
            _core.override(-1)
            del groups[comm]
        made.run()
