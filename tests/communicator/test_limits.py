"""Sizes, numbers and memory at the edge: 2^31 elements, 64 ranks, 1,000 communicators, no memory left."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
import reference
from ranks import ROOT, Pools

import pycollectives as pc
from pycollectives import _core

MIB = 1 << 20


# -- large counts ----------------------------------------------------------------------------------------------


def beyond_two_gibi_elements(comm: Any) -> None:
    n, period = 2**31 + 7, 8191  # prime, so that no cut of the data looks like another one
    pattern = (np.arange(period) % 53).astype(np.int8)
    x = np.resize(pattern, n)
    x += np.int8(comm.rank)
    comm.all_reduce(x, out=x)
    want = (comm.size * pattern + sum(range(comm.size))).astype(np.int8)
    whole = n // period * period
    assert (x[:whole].reshape(-1, period) == want).all() and (x[whole:] == want[: n - whole]).all()
    x[-1] = comm.rank + 1
    comm.broadcast(x, root=1, out=x)
    assert x[-1] == 2 and (x[:whole].reshape(-1, period)[::1009] == want).all()
    del x
    part = np.resize(pattern, 2**30 + 5)  # the result has more than 2^31
    part[-1] = 100 + comm.rank
    gathered = comm.all_gather(part)
    assert gathered.shape == (2, 2**30 + 5) and gathered[:, -1].tolist() == [100, 101]
    assert (gathered[:, :1000] == pattern[:1000]).all()


@pytest.mark.slow
@pytest.mark.timeout(390)
def test_beyond_two_gibi_elements(fresh: Any) -> None:
    if _core.available_memory() < 14 << 30:
        pytest.skip("optional: less than 14 GiB of memory are free")
    fresh(2).run(beyond_two_gibi_elements, timeout=350)


# -- many ranks, many communicators ------------------------------------------------------------------------------


def everything_once(comm: Any, algorithms: list[str | None]) -> None:
    x = np.arange(129) + comm.rank
    for name in algorithms:
        got = comm.all_reduce(x, algorithm=name)
        assert (got == comm.size * np.arange(129) + sum(range(comm.size))).all(), name
    assert (comm.all_gather(np.array(comm.rank)) == np.arange(comm.size)).all()
    assert (comm.all_to_all(np.arange(comm.size)) == comm.rank).all()
    half = comm.split(comm.rank % 2)
    assert half.size == comm.size // 2 and half.all_reduce(np.array(1)) == half.size
    comm.barrier()


def test_64_ranks_that_are_threads() -> None:
    ranks.threads(64, everything_once, [None, "two_tree"])


@pytest.mark.slow
def test_64_ranks_that_are_processes(fresh: Any) -> None:
    fresh(64).run(everything_once, [None, *reference.algorithms("all_reduce", 64)], timeout=110)


def many_communicators(comm: Any, number: int) -> int:
    made = [comm.split(0, -comm.rank if i % 2 else comm.rank) for i in range(number)]
    for i, sub in enumerate(made):
        assert sub.all_reduce(np.array(i)) == i * comm.size
    for sub in made[::7]:
        assert sub.all_gather(np.array([sub.rank])).ravel().tolist() == list(range(comm.size))
    files = len(os.listdir("/proc/self/fd"))
    for sub in made:
        sub.close()
    return files


def test_1000_communicators_at_once(fresh: Any) -> None:
    """Each has segments of its own, but at most one descriptor for each peer."""
    small = {"PYCOLLECTIVES_POOL_BYTES": "65536"}
    for files in fresh(2, small).run(many_communicators, 1000, timeout=110):
        assert files < 1050, files


# -- no memory -------------------------------------------------------------------------------------------------


def tried(make: Any) -> str:
    try:
        make()
    except pc.TransportError as error:
        return str(error)
    return "nothing was raised"


def with_little_address_space(comm: Any) -> list[str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + 64 * MIB, hard))
    try:
        room = _core.available_memory()
        texts = [tried(lambda: comm.empty(256 * MIB, np.uint8)), str(room)]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert (comm.all_reduce(np.ones(1000)) == comm.size).all()
    assert comm.empty(1000).shape == (1000,)
    return texts


def test_address_space(pools: Pools) -> None:
    """`ulimit -v`: an error with both figures, on every rank, and the communicator goes on."""
    for text, room in pools(2).run(with_little_address_space):
        assert f"needs {256 * MIB} bytes" in text and "are available" in text, text
        assert int(room) <= 64 * MIB


CAPPED = """
import sys, numpy as np, pycollectives as pc
comm = pc.init()
for megabytes in (600, 250):  # too much for one, too much for two
    try:
        comm.empty(megabytes << 20, np.uint8)
    except pc.TransportError as error:
        print("REFUSED", error)
assert (comm.all_reduce(np.ones(100_000)) == comm.size).all()
small = comm.empty(1 << 20, np.uint8)
small[:] = 1
print("WENT ON", pc._core.available_memory() >> 20)
"""


@pytest.fixture
def capped_group() -> Iterator[Path]:
    """The folder of a memory control group of at most 400 MiB, below that of this process."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for root, limit in (
            (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
            (Path("/sys/fs/cgroup"), "memory.max"),
        ):
            wanted = "memory" in controllers.split(",") if limit.endswith("bytes") else not controllers
            folder = root / path.lstrip("/") / f"pycollectives-test-{os.getpid()}"
            if not wanted or not folder.parent.is_dir():
                continue
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                (folder / limit).write_text(str(400 * MIB))
            except OSError:
                folder.rmdir()
                continue
            yield folder
            for _ in range(50):
                try:
                    folder.rmdir()
                    return
                except OSError:  # its processes are still ending
                    time.sleep(0.1)
            return
    pytest.skip("optional: no memory control group can be made here")


def test_control_group(capped_group: Path, tmp_path: Path) -> None:
    """The limit of the own control group counts, wherever it is in the tree: no SIGBUS, no killed process."""
    script = tmp_path / "capped.py"
    script.write_text(CAPPED)
    enter = (
        f"echo $$ > {capped_group}/cgroup.procs && exec {sys.executable} -m pycollectives run -n 2 {script}"
    )
    done = subprocess.run(
        ["sh", "-c", enter],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("REFUSED") == 4, done.stdout
    assert f"needs {600 * MIB} bytes" in done.stdout and f"needs {500 * MIB} bytes in all" in done.stdout
    room = [int(line.rsplit(" ", 1)[1]) for line in done.stdout.splitlines() if "WENT ON" in line]
    assert len(room) == 2 and max(room) < 400


def test_a_segment_that_does_not_fit() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYCOLLECTIVES_POOL_BYTES": str(1 << 45)}
    command = [sys.executable, "-m", "pycollectives", "run", "-n", "2", sys.executable, "-c"]
    done = subprocess.run(
        [*command, "import pycollectives as pc; pc.init()"],
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
    )
    assert done.returncode == 1
    assert re.search(
        r"no memory for pycollectives: needs \d+ bytes, \d+ are available", done.stderr + done.stdout
    )


def test_shared_memory_is_sealed() -> None:
    """Who has the descriptor of a segment cannot cut it: no SIGBUS in those who have mapped it."""
    mine = _core.Mapping.create(1 << 16, "test")
    for size in (0, 1 << 17):
        with pytest.raises(PermissionError):
            os.ftruncate(mine.fd, size)
    unsealed = os.memfd_create("unsealed")
    try:
        os.ftruncate(unsealed, 1 << 16)
        with pytest.raises(pc.TransportError, match="not sealed"):
            _core.Mapping.attach(unsealed, 1 << 16)
        with pytest.raises(pc.TransportError, match="smaller than agreed"):
            _core.Mapping.attach(mine.fd, 1 << 17)
    finally:
        os.close(unsealed)
