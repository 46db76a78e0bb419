"""Slurm on the hosts of a cluster, from unpacked packages: a controller on host 0, a daemon on every host, no authentication."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from hosts import Cluster, Job, Library

CONFIGURATION = """ClusterName=test
SlurmctldHost=host0
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller
SlurmdPidFile={folder}/daemon-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
PluginDir={plugins}
NodeName=host[0-{last}] CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """`root`: the folder of the unpacked packages. Ends with the cluster, or with its first job: that sweeps the hosts."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster = cluster
        self.libraries = next((root / "usr" / "lib").glob("*-linux-gnu"))
        self._sbin, self._bin = root / "usr" / "sbin", root / "usr" / "bin"
        folder, plugins = cluster.folder / "slurm", self.libraries / "slurm-wlm"
        (folder / "state").mkdir(parents=True, exist_ok=True)
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, plugins=plugins, last=cluster.n - 1))
        (folder / "cgroup.conf").touch()
        self.environment = {
            "SLURM_CONF": str(configuration),
            "LD_LIBRARY_PATH": str(plugins),
        }
        # Slurm looks for PMIx in the system's folder only: the hosts see the unpacked libraries there. And a folder of their own
        # for the sockets of PMIx, whose names are the same on all hosts.
        system, shared = f"/usr/lib/{self.libraries.name}", folder / "pmix"
        shared.mkdir()
        (folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={shared}\n")
        (cluster.folder / "prepare").write_text(
            f"mount -t overlay overlay -o lowerdir={self.libraries}:{system} {system}\n"
            f"mkdir -p {shared}-$(hostname) && mount --bind {shared}-$(hostname) {shared}\n"
        )
        self._begin(0, "controller", f"{self._sbin}/slurmctld-wlm -D")
        for i in range(cluster.n):
            self._begin(
                i, f"daemon-{i}", f"{self._sbin}/slurmd-wlm -D -N host{i} -d {self._sbin}/slurmstepd-wlm"
            )
        self._wait(f"{cluster.n} idle")

    def _begin(self, host: int, name: str, command: str) -> None:
        with (self.cluster.folder / "slurm" / f"{name}.log").open("w") as log:
            subprocess.Popen(
                [str(self.cluster.agent), f"host{host}", command],
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, wanted: str) -> None:
        shown, deadline = "", time.monotonic() + 20
        while time.monotonic() < deadline:
            command = [str(self.cluster.agent), "host0", f"{self._bin}/sinfo -h -o %D\\ %T"]
            done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True)
            shown = done.stdout.strip() or done.stderr.strip()
            if shown == wanted:
                return
            time.sleep(0.1)
        logs = "\n".join(each.read_text() for each in (self.cluster.folder / "slurm").glob("*.log"))
        raise RuntimeError(f"Slurm shows {shown!r} instead of {wanted!r}\n{logs}")

    def start(
        self, library: Library, ranks: int, *command: object, mpi: str, env: Mapping[str, str] | None = None
    ) -> Job:
        """A job of `ranks` ranks on all hosts, in blocks. `mpi`: how the MPI library is told of the others."""
        srun = f"{self._bin}/srun", f"--mpi={mpi}", "--overcommit", "-N", self.cluster.n, "-n", ranks
        return self.cluster.begin(
            library, [*map(str, srun), *map(str, command)], self.environment | dict(env or {})
        )
