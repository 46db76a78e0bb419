"""Arrays in device memory by the public interface, on streams, by the kernels on the emulated device."""

from __future__ import annotations

import gc
import sys
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

import emulated
import fake_arrays as fake
import numpy as np
import pytest

import pycollectives as pc
from pycollectives import device
from pycollectives.device import arrays as device_arrays
from pycollectives.device import guard, jax_results


def run(n: int, fn: Callable[[Any, int], Any], **options: Any) -> list[Any]:
    """`fn(comm, stream)` on ranks with a stream each, which is waited for at the end."""
    module = emulated.device()

    def whole(comm: Any) -> Any:
        stream = module.make_stream()
        current.stream = stream
        try:
            check = fn(comm, stream)
            module.synchronize(stream)
            return check() if callable(check) else check
        finally:
            comm.close()
            module.destroy_stream(stream)

    with fake.libraries() as current:
        return emulated.run(n, whole, options=device.emulated(**options))


def copy(stream: int, to: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    """As the caller's own kernels: when the stream comes there."""
    fake.kept += [to, source]
    emulated.device().copy(stream, to.ctypes.data, source.ctypes.data, to.nbytes)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("kind", [fake.CupyArray, fake.TorchTensor])
def test_in_the_order_of_the_stream(kind: Any, native: bool, fused: bool) -> None:
    """The input is written on the caller's stream before the call, and the output read there after it."""

    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        later = np.arange(300, dtype=np.float32) * (comm.rank + 1)
        x, seen = np.full(300, np.nan, np.float32), np.zeros(300, np.float32)
        copy(stream, x, later)
        made = comm.all_reduce(kind(x))
        copy(stream, seen, made.memory)
        copy(stream, x, np.zeros_like(x))  # used again at once
        assert isinstance(made, kind) and not seen.any(), "nothing waits"
        return lambda: np.array_equal(seen, np.arange(300) * sum(range(1, comm.size + 1)))

    assert run(3, fn, native=native, fused=fused) == [True] * 3


@pytest.mark.parametrize("fused", [False, True])
def test_every_verb(fused: bool) -> None:
    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        n, r = comm.size, comm.rank
        block = np.arange(5, dtype=np.int64) + 10 * r
        vector = np.arange(5 * n, dtype=np.int64).reshape(n, 5) * (r + 1)
        everyone = np.stack([np.arange(5) + 10 * k for k in range(n)])
        total = np.arange(5 * n).reshape(n, 5) * sum(range(1, n + 1))
        on = fake.CupyArray
        made = [
            (comm.all_gather(on(block)), everyone),
            (comm.reduce_scatter(on(vector)), total[r : r + 1]),
            (comm.broadcast(on(block), root=1), everyone[1]),
            (comm.all_to_all(on(vector)), np.stack([vector[r] // (r + 1) * (k + 1) for k in range(n)])),
            (comm.scan(on(block)), everyone[: r + 1].sum(0)),
            (comm.all_gatherv(on(block[: r + 1])), np.concatenate([everyone[k, : k + 1] for k in range(n)])),
        ]
        if (gathered := comm.gather(on(block), root=2)) is not None:
            made.append((gathered, everyone))
        mine = on(np.zeros(5, np.int64))
        comm.scatter(on(total) if r == 0 else None, root=0, out=mine)
        made.append((mine, total[r]))
        return lambda: all(np.array_equal(one.memory, want) for one, want in made)

    assert run(3, fn, fused=fused) == [True] * 3


@pytest.mark.parametrize("fused", [False, True])
def test_async_runs_beside_the_stream(fused: bool) -> None:
    """On a stream of its own that begins where the caller's stands; `wait` orders what the caller does afterwards."""

    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        later = np.arange(70, dtype=np.float64) + comm.rank
        x, seen = np.full(70, np.nan), np.zeros(70)
        copy(stream, x, later)
        work = comm.all_reduce(fake.TorchTensor(x), async_op=True)
        assert not work.done()
        made = work.wait()
        copy(stream, seen, made.memory)
        return lambda: work.done() and np.array_equal(seen, 2 * np.arange(70) + 1)

    assert run(2, fn, fused=fused) == [True] * 2


@pytest.mark.parametrize("kind", [fake.CupyArray, fake.TorchTensor])
def test_async_calls_that_exchange_counts_first(kind: Any) -> None:
    """Another thread makes them, which has another current stream, or none; they work on that of their issue."""

    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        n, r = comm.size, comm.rank
        later = np.arange(2 * r + 2, dtype=np.float32) + 10 * r
        x, strided = np.full(2 * r + 2, np.nan, np.float32), np.zeros((3, 2), np.int32) + r
        copy(stream, x, later)
        blocks, mine = np.repeat(np.arange(n), 2) + 5.0, np.zeros(2)
        out = kind(mine)
        works = [
            comm.all_gatherv(kind(x), async_op=True),
            comm.all_to_allv(kind(strided[:, 0]), [1] * n, async_op=True),
            comm.scatterv(kind(blocks) if r == 0 else None, [2] * n, root=0, out=out, async_op=True),
        ]
        until = time.monotonic() + 30
        while not all(work.done() for work in works) and time.monotonic() < until:
            time.sleep(0.001)  # not this thread makes them
        gathered, exchanged, scattered = (work.wait() for work in works)
        assert isinstance(gathered, kind) and isinstance(exchanged, kind) and scattered is out
        everyone = np.concatenate([np.arange(2 * k + 2) + 10 * k for k in range(n)])
        return lambda: (
            np.array_equal(gathered.memory, everyone)
            and np.array_equal(exchanged.memory, np.arange(n))
            and np.array_equal(mine, [r + 5.0] * 2)
        )

    assert run(3, fn) == [True] * 3


@pytest.mark.parametrize("fused", [False, True])
def test_calls_run_in_order_whatever_their_streams(fused: bool) -> None:
    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        module = emulated.device()
        other = module.make_stream()
        memory = np.arange(40, dtype=np.int32) + comm.rank
        one = fake.over(memory, stream), fake.over(memory, other)
        for i in range(4):
            comm.all_reduce(one[i % 2], out=one[i % 2], algorithm="ring" if i < 2 else "two_shot")
        module.synchronize(other)
        return lambda: np.array_equal(memory, (2 * np.arange(40) + 1) * 8)

    assert run(2, fn, fused=fused) == [True] * 2


@pytest.mark.parametrize("native", [False, True])
def test_a_captured_call_can_be_replayed(native: bool) -> None:
    """A graph has the arguments of one launch; the numbers of its messages go on in device memory."""

    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        module = emulated.device()
        x = np.ones(200, np.float32)
        on = fake.CupyArray(x)
        comm.all_reduce(on, out=on)  # 2
        module.begin_capture(stream)
        comm.all_reduce(on, out=on, algorithm="two_shot")
        comm.all_reduce(on, out=on, algorithm="ring")
        replay = module.end_capture(stream)
        for _ in range(3):
            replay(stream)  # 8, 32, 128
        comm.all_reduce(on, out=on)  # 256
        return lambda: bool((x == 256).all())

    assert run(2, fn, native=native) == [True] * 2


@pytest.mark.parametrize("planned", [False, True])
def test_arrays_live_as_long_as_their_call(planned: bool) -> None:
    """JAX and others give memory back when nobody has the array, whatever the stream still does with it."""

    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        x, out = fake.over(np.arange(50.0), stream), fake.over(np.zeros(50), stream)
        kept = weakref.ref(x)
        if planned:
            comm.plan("all_reduce", x, out=out)()
        else:
            comm.all_reduce(x, out=out)
        del x
        gc.collect()
        assert kept() is not None, "the call is on its way"
        emulated.device().synchronize(stream)
        comm.all_reduce(out, out=out)
        gc.collect()
        return lambda: kept() is None

    assert run(2, fn) == [True] * 2


def test_events_while_another_stream_is_captured() -> None:
    """CUDA refuses to tell a thread that has not said that it cares for no capture: that is not the event's end."""
    module, x, y = emulated.device(), np.ones(4), np.zeros(4)
    module.use_device(0)
    stream, captured = module.make_stream(), module.make_stream()
    copy(stream, y, x)
    event = module.record(0, stream)
    module.begin_capture(captured)
    before = event.done
    module.synchronize(stream)
    after = event.done, event.wait_for(0.0)
    module.end_capture(captured)
    assert not before and after == (True, True) and y.all()
    for one in (stream, captured):
        module.destroy_stream(one)


class JaxArray(fake.Dlpack):
    """One of JAX, over host memory; it is never written."""

    __module__ = "jaxlib._jax"

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        super().__init__(memory.ctypes.data, memory.shape)
        fake.kept.append(memory)


class Consumer:
    """Asks for an array with a stream of its own, as JAX does."""

    def __init__(self, result: Any, stream: int) -> None:
        self.result, self.stream = result, stream

    def __dlpack__(self, **_: Any) -> Any:
        return self.result.__dlpack__(stream=self.stream)


@pytest.mark.parametrize("async_op", [False, True])
def test_results_for_jax(async_op: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come by DLPack, and the stream that JAX names waits for what fills them."""
    module, jax = emulated.device(), types.ModuleType("jax")
    monkeypatch.setattr(jax_results, "EMULATED", True)
    monkeypatch.setitem(sys.modules, "jax", jax)

    def from_dlpack(result: Any) -> Any:
        assert result.__dlpack_device__() == (2, 0)
        stream = module.make_stream()
        view = device_arrays._from_dlpack(Consumer(result, stream), 0)
        view.stream = stream
        return view

    jax.dlpack = types.SimpleNamespace(from_dlpack=from_dlpack)  # type: ignore[attr-defined]

    def fn(comm: Any) -> bool:
        x = JaxArray(np.arange(30, dtype=np.float32) * (comm.rank + 1))
        with pytest.raises(pc.UnsupportedError, match="a plan would write an array of JAX"):
            comm.plan("all_reduce", x)
        view = comm.all_reduce(x, async_op=async_op)
        view = view.wait() if async_op else view
        seen = np.zeros(30, np.float32)
        copy(view.stream, seen, view)
        comm.all_reduce(np.ones(1))  # in host memory: it is waited for, and with it what was queued before
        return bool((seen == 3 * np.arange(30)).all()) and view.shape == (30,)

    assert emulated.run(2, fn, options=device.emulated(fused=True)) == [True] * 2


def test_an_asynchronous_call_is_not_captured() -> None:
    """Its stream is not the captured one. The capture goes on, and so do calls after it."""

    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        module = emulated.device()
        x = np.ones(20, np.float32)
        on = fake.CupyArray(x)
        comm.all_reduce(on, out=on)  # 2
        module.begin_capture(stream)
        with pytest.raises(pc.UnsupportedError, match="without async_op"):
            comm.all_reduce(on, out=on, async_op=True)
        comm.all_reduce(on, out=on)
        replay = module.end_capture(stream)
        replay(stream)  # 4
        comm.all_reduce(on, out=on, async_op=True).wait()  # 8
        return lambda: bool((x == 8).all())

    assert run(2, fn) == [True] * 2


def test_an_operator_of_the_callers_on_a_stream() -> None:
    """It is loaded when the calls before it have ended, and can be captured once it is."""
    pytest.importorskip("numba")
    op = pc.op(lambda a, b: a + 2 * b)

    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        module = emulated.device()
        first = comm.all_reduce(fake.CupyArray(np.ones(300)))
        x = np.full(40, 1 + comm.rank, np.int32)
        on = fake.CupyArray(x)
        comm.all_reduce(on, op, out=on, algorithm="two_shot")  # 5
        assert (first.memory == 2).all() and x[0] == 1 + comm.rank, "one has ended, the other is queued"
        module.begin_capture(stream)
        comm.all_reduce(on, op, out=on, algorithm="two_shot")
        replay = module.end_capture(stream)
        replay(stream)
        replay(stream)  # 45
        return lambda: bool((x == 45).all())

    for native in (False, True):
        assert run(2, fn, native=native) == [True] * 2


@pytest.mark.parametrize("fused", [False, True])
def test_a_plan_follows_the_current_stream(fused: bool) -> None:
    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        x = np.full(9, comm.rank + 1.0)
        again = comm.plan("all_reduce", fake.CupyArray(x), out=fake.CupyArray(x))
        for _ in range(3):
            again()
        return lambda: bool((x == 12).all())

    assert run(2, fn, fused=fused) == [True] * 2


def test_two_ranks_on_one_stream() -> None:
    """Threads that share a stream would wait for each other for ever."""
    module = emulated.device()
    stream = module.make_stream()

    def fn(comm: Any) -> str:
        x = fake.over(np.ones(4), stream)
        if comm.rank == 1:
            comm._exchange("turn", b"")
        try:
            comm.all_reduce(x, out=x)
        except pc.InvalidArgumentError as error:
            return str(error)
        finally:
            if comm.rank == 0:
                comm._exchange("turn", b"")
            comm._exchange("done", b"")
        return ""

    found = emulated.run(2, fn)
    assert found[0] == "" and "give every rank a stream" in found[1]


def test_a_disagreement_is_raised_by_the_next_call() -> None:
    def fn(comm: Any, stream: int) -> bool:
        x = np.ones(8 + 8 * comm.rank)
        on = fake.CupyArray(x)
        comm.all_reduce(on, out=on, algorithm="one_shot")
        emulated.device().synchronize(stream)
        with pytest.raises((pc.MismatchError, pc.AbortedError)):
            for _ in range(2):
                comm.all_reduce(on, out=on)
                emulated.device().synchronize(stream)
        return True

    assert run(2, fn) == [True] * 2


def test_a_peer_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that wait for it are ended, and the next call says why; here nobody waits on the host."""
    monkeypatch.setattr(guard, "GRACE", 0.2)

    def fn(comm: Any, stream: int) -> tuple[str, int | None]:
        if comm.rank == 1:
            comm.all_reduce(fake.CupyArray(np.ones(5)))
            comm.close()
            return "", None
        x = fake.CupyArray(np.ones(5))
        comm.all_reduce(x)
        comm.all_reduce(x)
        deadline = time.monotonic() + 30
        with pytest.raises(pc.PeerError) as found:
            while time.monotonic() < deadline:
                time.sleep(0.05)
                comm._device.check()
        with pytest.raises(pc.PeerError):
            comm.all_reduce(x)
        return str(found.value), found.value.peer

    message, peer = run(2, fn)[0]
    assert peer == 1 and "needed by a call on the device" in message


def test_a_peer_that_does_not_come() -> None:
    """The timeout of a call on a device."""

    def fn(comm: Any, stream: int) -> bool:
        x = fake.CupyArray(np.ones(5))
        comm.all_reduce(x)
        emulated.device().synchronize(stream)
        if comm.rank == 0:
            work = comm.all_reduce(x, async_op=True, timeout=0.3)
            deadline = time.monotonic() + 30
            with pytest.raises(pc.CollectiveTimeoutError):
                while time.monotonic() < deadline:
                    time.sleep(0.05)
                    comm._device.check()
            with pytest.raises(pc.CollectiveTimeoutError):
                work.wait()
        comm._exchange("over", b"")
        return True

    assert run(2, fn) == [True] * 2


def test_a_group_packs_no_device_arrays() -> None:
    """Their memory is not the host's to read; they go alone."""

    def fn(comm: Any, stream: int) -> Callable[[], bool]:
        x, y = np.full(9, comm.rank + 1.0), np.full(5, 2.0)
        with comm.group():
            comm.all_reduce(fake.CupyArray(x), out=fake.CupyArray(x))
            other = comm.all_reduce(fake.CupyArray(y))
        return lambda: bool((x == 3).all() and (other.wait().memory == 4).all())

    assert run(2, fn) == [True] * 2


def test_messages_take_no_device_arrays() -> None:
    def fn(comm: Any, stream: int) -> bool:
        with pytest.raises(pc.UnsupportedError, match="host memory"):
            comm.send(fake.CupyArray(np.ones(4)), 1 - comm.rank)
        return True

    assert run(2, fn) == [True] * 2


def test_what_cannot_be_done_is_refused() -> None:
    def fn(comm: Any, stream: int) -> bool:
        strided = fake.CupyArray(np.ones((4, 4))[:, ::2])
        with pytest.raises(pc.UnsupportedError, match="contiguous"):
            comm.plan("all_reduce", strided)
        with pytest.raises(pc.InvalidArgumentError, match="is on device 3"):
            comm.all_reduce(fake.CupyArray(np.ones(4), device=3))
        return True

    assert run(2, fn) == [True] * 2


def test_blocks_of_all_ranks_fit_on_their_device() -> None:
    """They wait for each other, so they have to be there together."""

    def fn(comm: Any) -> int:
        return int(comm._device.share.blocks)

    full = {"processors": 132, "resident_threads": 32}
    assert emulated.run(4, fn, options=device.emulated(blocks=64), **full) == [33] * 4  # of 132
    assert emulated.run(2, fn, options=device.emulated(blocks=8)) == [8] * 2
