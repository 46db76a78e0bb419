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
    "PYCOLLECTIVES_",
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
class Peer:
    """A library in one of its settings. `columns` are what is measured of it; `environment` "" is the current one."""

    name: str
    library: str  # bench/peers/ranks/LIBRARY.py
    start: Start
    environment: str = ""
    packages: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ("",)

    def labels(self) -> list[str]:
        """The names of the columns."""
        return [column or self.name for column in self.columns]

    def python(self, environments: Path) -> Path:
        """The interpreter."""
        if not self.environment:
            return Path(sys.executable)
        return environments / self.environment / "bin" / "python"

    def processes(
        self, environments: Path, ranks: int, arguments: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        """What to start, with the whole environment of each."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        python = self.python(environments)
        clean["PATH"] = f"{python.parent}{os.pathsep}{clean.get('PATH', '')}"
        clean["PYTHONPATH"] = str(ROOT)
        rank = ["-m", "bench.peers.ranks", self.library, *arguments]
        started = self.start(python, ranks, rank)
        return [(command, clean | dict(self.variables) | own) for command, own in started]


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
        "OMP_NUM_THREADS": "1",
    }
    return [([str(python), *rank], {**shared, "RANK": str(r)}) for r in range(ranks)]


_OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
_MPI4PY = ("numpy>=2", "ml_dtypes>=0.5", "mpi4py==4.1.*")
OURS = Peer("ours", "ours", _ours, columns=("array", "empty", "plan"))
MEMCPY = "memcpy"

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        OURS,
        Peer("mpich", "mpi", _mpiexec(), "mpich", (*_MPI4PY, "mpich")),
        Peer("openmpi", "mpi", _mpiexec(), "openmpi", (*_MPI4PY, "openmpi"), _OPENMPI),
        Peer(
            "openmpi-sm",
            "mpi",
            _mpiexec("--mca", "pml", "ob1", "--mca", "btl", "self,sm"),
            "openmpi",
            (*_MPI4PY, "openmpi"),
            _OPENMPI,
        ),
        Peer("impi", "mpi", _mpiexec(), "impi", (*_MPI4PY, "impi-rt==2021.18.1")),
        Peer("gloo", "gloo", _torchrun, "torch", ("numpy>=2", "ml_dtypes>=0.5", "torch==2.13.0")),
    )
}
