"""One launch for all ranks on a device that does not hold a launch of each."""

from __future__ import annotations

import dataclasses
from typing import Any

import catalogue
import emulated
import fake_arrays as fake
import numpy as np
import pytest

import pycollectives as pc
from pycollectives import device
from pycollectives.device import guard
from pycollectives.device.device import Device
from pycollectives.device.sharing import QUEUES, Share, share_devices

# It holds four blocks of 128 threads, or sixteen of 32.
SMALL = {"processors": 4, "resident_threads": 128}
FUSED = device.emulated(fused=True)


def offers(buses: str, pids: str, queues: int, capacity: dict[str, int]) -> list[dict[str, Any]]:
    """What ranks tell each other, one for each letter."""
    return [
        {"bus": bus, "pid": pid, "queues": queues, "capacity": capacity, "multicast": False, "crowd": 0}
        for bus, pid in zip(buses, pids, strict=True)
    ]


@pytest.mark.parametrize(
    ("buses", "pids", "queues", "share"),
    [
        ("aaaa", "1234", 8, Share(3, 64, False)),  # a process each
        ("abcd", "1111", 8, Share(12, 64, False)),  # a device each
        ("aabb", "1111", 8, Share(6, 64, False)),
        ("aaaa", "1111", 12, Share(3, 64, False)),
        ("aaaa", "1111", 11, Share(3, 64, True)),  # their streams share queues
        ("aaaabbbb", "11112345", 8, Share(3, 64, True)),
        ("a" * 13, "1" * 13, 64, Share(1, 32, True)),  # fewer threads, so that each has a block
        ("a" * 24, "1" * 24, 99, Share(1, 32, True)),
        ("a" * 8, "1" * 8, 8, Share(3, 32, True)),  # and two, for algorithms that have two channels
    ],
)
def test_who_shares_a_launch(buses: str, pids: str, queues: int, share: Share) -> None:
    options = device.Options(threads=64)
    assert share_devices(offers(buses, pids, queues, {"64": 12, "32": 24}), options) == share


def test_too_many_ranks() -> None:
    with pytest.raises(
        pc.DeviceError, match="25 ranks are on one device, which holds 24 blocks of 32 threads"
    ):
        share_devices(offers("a" * 25, "1" * 25, 8, {"64": 12, "32": 24}), device.Options(threads=64))


def test_room_for_those_of_the_whole_communicator() -> None:
    """Its parts make calls at the same time, and each has to leave room for the others."""
    half = offers("aa", "11", 8, {"64": 12})
    assert share_devices(half, device.Options(threads=64)) == Share(6, 64, False)
    half[1]["crowd"] = 4
    assert share_devices(half, device.Options(threads=64)) == Share(3, 64, False)

    def fn(comm: Any) -> list[int]:
        comm.all_reduce(np.ones(3))
        pair = comm.split(comm.rank // 2)
        pair.all_reduce(np.ones(3))
        return [comm._device.share.blocks, pair._device.share.blocks]

    options = device.emulated(blocks=64)
    assert emulated.run(4, fn, options=options, processors=132, resident_threads=32) == [[33, 33]] * 4


def test_more_ranks_than_grids() -> None:
    """A device runs so many grids at once, however small."""
    many = offers("a" * 129, "1" * 129, 999, {"32": 9999})
    assert share_devices(many, device.Options(threads=32)).fused
    assert not share_devices(many[1:], device.Options(threads=32)).fused


def test_queues_that_are_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank's setting is every rank's error: nobody waits for it."""
    monkeypatch.setenv(QUEUES, "many")
    monkeypatch.setattr("pycollectives.device.device.native", lambda _: emulated.device())

    def fn(comm: Any) -> str:
        with pytest.raises(pc.DeviceError, match=f"{QUEUES} is 'many'") as found:
            Device(comm, device.Options())
        return str(found.value)

    texts = emulated.run(2, fn)
    assert all(text.startswith("rank 0 has no device") for text in texts)


@pytest.mark.parametrize("protocol", ["simple", "ll", "ll128"])
def test_every_algorithm_on_a_small_device(protocol: str) -> None:
    def fn(comm: Any) -> int:
        assert comm._device.share == Share(3, 32, True)
        return catalogue.every_algorithm(comm, [0, 1, 257], ["int64", "float32", "bfloat16"])

    before = emulated.device().statistics()[1]
    made = emulated.run(5, fn, options=device.emulated(protocol, threads=128), **SMALL)
    assert min(made) > 40
    assert emulated.device().statistics()[1] == before, "a flag was released to the own device only"


@pytest.mark.parametrize(("native", "stages_host"), [(False, True), (True, False)])
def test_native_kernels_and_staged_arrays(native: bool, stages_host: bool) -> None:
    options = device.emulated(native=native, stages_host=stages_host, fused=True)
    made = emulated.run(3, catalogue.every_algorithm, [0, 129], ["int64", "float32"], options=options)
    assert min(made) > 40


def test_soak() -> None:
    """Random calls on sub-groups, many of them handed in before the device runs."""
    assert emulated.run(4, catalogue.soak, 120, 7, options=FUSED) == [120] * 4


def test_the_same_bits() -> None:
    def fn(comm: Any) -> list[bytes]:
        x = np.random.default_rng(comm.rank).standard_normal(700).astype(np.float32)
        names = ("ring", "two_shot", "double_binary_tree")
        return [comm.all_reduce(x, algorithm=name).tobytes() for name in names]

    for native in (False, True):
        options = device.emulated(native=native)
        fused = dataclasses.replace(options, fused=True)
        assert emulated.run(4, fn, options=fused) == emulated.run(4, fn, options=options)


def shrink(comm: Any, **limits: int) -> None:
    """The device becomes smaller than its ranks believe."""
    comm._exchange("before", b"")
    if comm.rank == 0:
        emulated.device().configure(seed=1, patience=20_000, **limits)
    comm._exchange("after", b"")


def test_separate_launches_need_room_for_all() -> None:
    """What the fused launch is for: kernels that are there wait for one that is not, for ever."""

    def fn(comm: Any) -> None:
        shrink(comm, processors=1, resident_threads=64)
        with pytest.raises(pc.DeviceError, match=r"rank \d block 0: waits for room on device 0"):
            comm.all_reduce(np.ones(3), algorithm="two_shot")

    emulated.run(3, fn, options=device.emulated(blocks=1))


def test_a_grid_that_does_not_fit() -> None:
    def fn(comm: Any) -> None:
        shrink(comm, processors=1, resident_threads=64)
        with pytest.raises(pc.DeviceError, match="too many blocks"):
            comm.all_reduce(np.ones(3))

    emulated.run(3, fn, options=FUSED)


def test_an_asynchronous_call_waits_for_nobody() -> None:
    """Not for the others' part of it, nor does an earlier one's `wait` for a later one's."""

    def fn(comm: Any) -> list[float]:
        if comm.rank == 0:
            works = [comm.all_reduce(np.ones(5) * i, async_op=True) for i in range(3)]
            comm._exchange("made", b"")
            first = works[0].wait()
            comm._exchange("seen", b"")
            return [float(first[0]), *(float(work.wait()[0]) for work in works[1:])]
        comm._exchange("made", b"")
        first = comm.all_reduce(np.ones(5) * 0)
        comm._exchange("seen", b"")
        return [float(first[0]), *(float(comm.all_reduce(np.ones(5) * i)[0]) for i in (1, 2))]

    assert emulated.run(2, fn, options=FUSED) == [[0, 2, 4]] * 2


def test_ranks_on_one_stream() -> None:
    """Nobody waits for a launch behind the own one: this is no error here."""
    module = emulated.device()
    stream = module.make_stream()

    def fn(comm: Any) -> bool:
        x = np.ones(40)
        on = fake.over(x, stream)
        for _ in range(3):
            comm.all_reduce(on, out=on)
        comm.all_reduce(np.ones(1))  # in host memory: it is waited for
        return bool((x == 8).all())

    assert emulated.run(2, fn, options=FUSED) == [True] * 2


def test_two_devices_of_one_communicator() -> None:
    """Each has its own launches: they have names of their own, though the communicator is the same."""

    def fn(comm: Any) -> list[float]:
        first, second = comm._device, Device(comm, FUSED)
        found = []
        for comm._device in (second, first, second):
            found.append(float(comm.all_reduce(np.ones(3))[0]))
        second.close()
        comm._device = first
        return found

    assert emulated.run(3, fn, options=FUSED) == [[3, 3, 3]] * 3


@pytest.mark.parametrize("async_op", [False, True])
def test_a_capture_is_refused(async_op: bool) -> None:
    def fn(comm: Any) -> str:
        module = emulated.device()
        stream = module.make_stream()
        x = fake.over(np.ones(4), stream)
        module.begin_capture(stream)
        try:
            comm.all_reduce(x, out=x, async_op=async_op)
        except pc.UnsupportedError as error:
            return str(error)
        finally:
            module.end_capture(stream)
        return ""

    assert all("no graph of a single rank" in text for text in emulated.run(2, fn, options=FUSED))


@pytest.mark.parametrize("native", [False, True])
def test_a_disagreement(native: bool) -> None:
    """Found on the host, before anything runs."""

    def fn(comm: Any) -> int | None:
        dtype = np.float32 if comm.rank == 1 else np.float64
        with pytest.raises(pc.MismatchError) as found:
            comm.all_reduce(np.ones(64, dtype), algorithm="one_shot")
        with pytest.raises(pc.MismatchError):
            comm.all_reduce(np.ones(64))
        return found.value.peer

    assert emulated.run(3, fn, options=device.emulated(native=native, fused=True)) == [1, 0, 1]


def test_a_peer_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its part of the launch never comes."""
    monkeypatch.setattr(guard, "GRACE", 0.2)

    def fn(comm: Any) -> int | None:
        comm.all_reduce(np.ones(5))
        if comm.rank == 1:
            comm.close()
            return None
        with pytest.raises(pc.PeerError) as found:
            comm.all_reduce(np.ones(5))
        with pytest.raises(pc.PeerError):
            comm.all_reduce(np.ones(5))
        return found.value.peer

    assert emulated.run(3, fn, options=FUSED) == [1, None, 1]


def test_a_timeout() -> None:
    def fn(comm: Any) -> bool:
        if comm.rank == 0:
            with pytest.raises(pc.CollectiveTimeoutError):
                comm.all_reduce(np.ones(5), timeout=0.3)
        comm._exchange("over", b"")
        return True

    assert emulated.run(2, fn, options=FUSED) == [True] * 2
