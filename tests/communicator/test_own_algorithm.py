"""Algorithms that a user registers, while communicators are in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ranks
import reference

import pycollectives as pc
from pycollectives.schedule.registry import ALGORITHMS

NAME = "of_this_test"


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    yield
    ALGORITHMS.pop(("all_reduce", NAME), None)
    pc.communicator._decide_anew()


def define(channels: int, *, right: bool = True) -> None:
    @pc.algorithm("all_reduce", name=NAME)
    def author(p: pc.Program) -> None:
        p.chunks(1)
        for channel in range(channels):
            with p.channel(channel):
                p.send(p.chunk(0), to=p.others())
                if right:
                    p.reduce(p.chunk(0), source=p.others())
                else:
                    p.recv(p.chunk(0), source=p.others())


def test_as_many_channels_as_there_may_be() -> None:
    def fn(comm: Any) -> None:
        x = np.arange(1000.0)
        for channels in (1, 3, 16):
            if comm.rank == 0:
                define(channels)
            comm.barrier()
            assert (comm.all_reduce(x, algorithm=NAME) == x * comm.size).all()
            comm.barrier()
        if comm.rank == 0:
            define(17)
        comm.barrier()
        with pytest.raises(pc.UnsupportedError, match="16 channels"):
            comm.all_reduce(x, algorithm=NAME)

    ranks.threads(3, fn)


@pytest.mark.parametrize("size", range(2, 9))
def test_deterministic_on_any_number_of_channels(size: int) -> None:
    """Channels cut the data at other places; a prefix of the data gives the prefix of the result, bit for bit."""
    rows = [
        reference.values("bfloat16", (2048, 64), np.random.default_rng(rank), exact=False)
        for rank in range(size)
    ]
    want = reference.fold("sum", rows)

    def fn(comm: Any) -> None:
        for channels in (1, 2, 7, 16):
            if comm.rank == 0:
                define(channels)
            comm.barrier()
            for count in (1664, 2048):
                got = comm.all_reduce(rows[comm.rank][:count], algorithm=NAME, deterministic=True)
                assert got.tobytes() == want[:count].tobytes(), (channels, count)
            comm.barrier()

    ranks.threads(size, fn)


def test_a_name_registered_again_is_the_new_one() -> None:
    """A wrong schedule is refused, the corrected one runs, on the same communicator."""

    def fn(comm: Any) -> None:
        x = np.arange(10.0)
        if comm.rank == 0:
            define(1)
        comm.barrier()
        assert (comm.all_reduce(x, algorithm=NAME) == x * comm.size).all()
        comm.barrier()
        if comm.rank == 0:
            define(1, right=False)
        comm.barrier()
        with pytest.raises(pc.ScheduleError):
            comm.all_reduce(x, algorithm=NAME)
        comm.barrier()
        if comm.rank == 0:
            define(2)
        comm.barrier()
        assert (comm.all_reduce(x, algorithm=NAME) == x * comm.size).all()

    ranks.threads(3, fn)


def test_ranks_that_know_different_algorithms_disagree() -> None:
    """The choice is part of what the ranks compare."""

    def fn(comm: Any) -> None:
        x = np.arange(10.0)
        sub = comm.split(0)
        call = sub.plan("all_reduce", x, algorithm="ring" if comm.rank == 0 else None)
        with pytest.raises(
            pc.MismatchError, match=r"rank 0 called .* by ring at .* rank 1 called .* by \w+ at"
        ):
            call()

    ranks.threads(2, fn)


@pytest.mark.parametrize("size", [9, 24])
def test_messages_of_many_chunks_in_little_memory(monkeypatch: Any, size: int) -> None:
    monkeypatch.setenv("PYCOLLECTIVES_POOL_BYTES", "65536")

    def fn(comm: Any) -> None:
        x = np.full(600, comm.rank, np.complex128)
        for name in pc.schedule.names("all_gather"):
            if not pc.schedule.find("all_gather", name).obstacle(size):
                got = comm.all_gather(x, algorithm=name)
                assert (got == np.arange(size)[:, None]).all(), name

    ranks.threads(size, fn)
