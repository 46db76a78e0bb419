"""A rank on another host that has ended, seen by one whose sends to it are not complete. The MPI library is loopback_mpi.cpp, which
makes happen what MPI libraries do now and then.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycollectives import _core, settings
from pycollectives.errors import PeerError

pytestmark = pytest.mark.timeout(60)
BYTES = 100_000  # header and payload are messages of their own
LANES = (_core.MPI_TAGS - 2) // 2
PAYLOAD = 2 * (LANES - 1) + 1  # the tag of payloads of MirrorPing's lane
MAIL = _core.MPI_TAGS - 2


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("loopback") / "libloopback.so"
    source = Path(__file__).with_name("loopback_mpi.cpp")
    compiler = os.environ.get("CXX") or (sysconfig.get_config_var("CXX") or "g++").split()[0]
    subprocess.run(
        [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True
    )
    return library


class Two:
    """Two ranks of two hosts in this process; closing `lifelines[r]` is the death of rank r."""

    def __init__(self, file: Path) -> None:
        self.mpi = ctypes.CDLL(str(file))
        self.mpi.loopback_delay.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_double
        library = _core.MpiLibrary(extension=str(file), handle_bytes=8, byte_type=0)
        patience = settings.patience(1, spans_hosts=True, cores=2)
        self.cores = [_core.Communicator(rank, 2, 1 << 20, *patience) for rank in range(2)]
        ends = [os.pipe() for _ in range(2)]
        self.lifelines = [write for _, write in ends]
        for rank, core in enumerate(self.cores):
            _core.attach_remote(core, 1 - rank, ends[1 - rank][0])
        self.together(lambda rank: _core.connect(self.cores[rank], library, rank + 1, [0, 1], 0, 1 << 20))

    def together(self, call: Any) -> list[Any]:
        """A call of each rank; what it returns or raises."""
        found: list[Any] = [None, None]

        def run(rank: int) -> None:
            try:
                found[rank] = call(rank)
            except Exception as error:
                found[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(30)
            assert not each.is_alive()
        return found

    def ping(self, rank: int) -> float:
        seconds: float = _core.MirrorPing(self.cores[rank], 1 - rank).round_trips(BYTES, 1, 10.0)
        return seconds

    def die(self, rank: int) -> None:
        os.close(self.lifelines[rank])
        self.lifelines[rank] = -1


@pytest.fixture
def two(compiled: Path, tmp_path: Path) -> Iterator[Two]:
    file = tmp_path / compiled.name  # loaded anew for each test
    file.write_bytes(compiled.read_bytes())
    made = Two(file)
    yield made
    for core in made.cores:
        core.close()
    for each in made.lifelines:
        if each >= 0:
            os.close(each)


def test_messages_there_and_back(two: Two) -> None:
    assert all(isinstance(each, float) for each in two.together(two.ping))


@pytest.mark.parametrize("last_words_take", [0.0, 0.2])
def test_one_that_has_left_in_order_is_not_taken_for_dead(two: Two, last_words_take: float) -> None:
    """It has read all and answered, has left and ended, before the send to it is seen to be complete."""
    two.mpi.loopback_hold(0, PAYLOAD)
    two.mpi.loopback_delay(1, MAIL, last_words_take)

    def call(rank: int) -> float:
        seconds = two.ping(rank)
        if rank == 1:
            two.cores[1].close()
            two.die(1)
        return seconds

    first, second = two.together(call)
    assert isinstance(second, float)
    assert isinstance(first, float) and last_words_take <= first < 5, first


def test_one_that_has_died_is_named_after_what_it_may_have_sent(two: Two) -> None:
    two.mpi.loopback_hold(0, PAYLOAD)

    def call(rank: int) -> tuple[Any, float]:
        start = time.monotonic()
        try:
            two.ping(rank)
        except PeerError as error:
            return error, time.monotonic() - start
        two.die(1)
        return None, 0.0

    (error, seconds), _ = two.together(call)
    assert isinstance(error, PeerError) and error.peer == 1 and "died" in str(error), error
    assert 0.5 <= seconds < 5
