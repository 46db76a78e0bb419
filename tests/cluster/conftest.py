"""Hosts and MPI libraries for the tests.

PYCOLLECTIVES_TEST_MPI names the Python interpreters of virtual environments, one for each MPI library, separated by colons;
without it the environment of the tests is the only one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hosts import Cluster, Library, obstacle

JOB = Path(__file__).parent / "job.py"


def pythons() -> list[Path]:
    named = os.environ.get("PYCOLLECTIVES_TEST_MPI")
    if named:
        return [Path(each) for each in named.split(":")]
    own = Path(sys.executable)
    if (own.parent / "mpiexec").exists() and importlib.util.find_spec("mpi4py"):
        return [own]
    return []


LIBRARIES = [Library(python) for python in pythons()]


class Hosts:
    """One cluster at a time; made anew when another shape is asked for."""

    def __init__(self) -> None:
        self._made: tuple[Any, Cluster] | None = None

    def __call__(self, n: int, **shape: Any) -> Cluster:
        wanted = (n, tuple(sorted(shape.items())))
        if self._made is None or self._made[0] != wanted:
            self.close()
            self._made = wanted, Cluster(n, **shape)
        return self._made[1]

    @property
    def now(self) -> Cluster:
        """The cluster that there is."""
        assert self._made is not None
        return self._made[1]

    def close(self) -> None:
        if self._made is not None:
            self._made[1].close()
        self._made = None


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """`hosts(n, delay_us=, mbit=, loss_ppm=)`: a cluster of n hosts."""
    if why := obstacle():
        pytest.skip(f"optional: this machine has no network namespaces for tests: {why}")
    made = Hosts()
    yield made
    made.close()


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def mpi(request: pytest.FixtureRequest) -> Library:
    """Each MPI library in turn."""
    library: Library = request.param
    return library


def job(
    cluster: Cluster,
    library: Library,
    ranks_of: list[int],
    function: str,
    limit: float = 60.0,
    **arguments: Any,
) -> list[dict[str, Any]]:
    """A function of job.py on all ranks, which must end well; what they have said, by rank."""
    env, in_turn = arguments.pop("env", {}), arguments.pop("in_turn", False)
    running = cluster.start(
        *(library, ranks_of, library.python, JOB, function, json.dumps(arguments)),
        in_turn=in_turn,
        env={"JOB_SECONDS": str(limit - 2)} | env,
    )
    cluster.finish(running, limit).check()
    return running.said()
