"""Hosts on one machine: network namespaces behind a switch, with delay, rate and loss; and MPI jobs across them.

    pc-PID-0 ---- eth0 --.
    pc-PID-1 ---- eth0 ---+-- pc-PID-switch      a bridge; with delay, rate or loss the program wire.cpp
    pc-PID-2 ---- eth0 --'

A host has its own network, host name and /etc/hosts, but the files and processes of this machine. That needs root.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RSH = """#!/bin/sh
# Runs a command on a host, as ssh does: rsh [options] HOST COMMAND...
while :; do case $1 in -l|-p|-o) shift 2;; -*) shift;; *) break;; esac; done
host=$1; shift
exec nsenter --net=/run/netns/{prefix}-${{host#host}} unshare --uts --mount /bin/sh -c \\
  "mount --bind {folder}/hosts /etc/hosts && hostname $host && . {folder}/prepare && cd {folder} && $*"
"""
FOREIGN = (
    "PYCOLLECTIVES_",
    "PMI",
    "SLURM_",
    "OMPI_",
    "MASTER_",
    "TORCHELASTIC_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
)


def obstacle() -> str:
    """Why there can be no hosts on this machine; empty if there can."""
    for tool in ("ip", "nsenter", "unshare", "setsid"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    name = f"pc-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return made.stderr.strip() or "ip netns add fails"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return ""


@dataclass(frozen=True)
class Finished:
    """What a job has left."""

    code: int
    out: str
    err: str
    seconds: float

    def check(self) -> str:
        """Its output, if it ended well."""
        assert self.code == 0, f"exit code {self.code} after {self.seconds:.1f} s\n{self.out}\n{self.err}"
        return self.out


class Job:
    """A job that runs; its ranks may write lines of JSON into the file that JOB_SAYS names."""

    def __init__(self, folder: Path, number: int, ranks: Callable[[], list[int]]) -> None:
        self._ranks = ranks
        self.out, self.err, self.says = (folder / f"{name}-{number}" for name in ("out", "err", "says"))
        self.says.touch()
        self.process: subprocess.Popen[bytes] | None = None

    def said(self) -> list[dict[str, Any]]:
        """What the ranks have said so far, by rank."""
        lines = (json.loads(line) for line in self.says.read_text().splitlines())
        return sorted(lines, key=lambda line: int(line["rank"]))

    def wait_until(self, holds: Callable[[list[dict[str, Any]]], bool], limit: float) -> None:
        """Until what has been said is enough, or nobody can say anything any more.

        mpiexec may end before ranks that it cannot reach, or that others have left behind.
        """
        deadline = time.monotonic() + limit
        while not holds(self.said()):
            ended = self.process is not None and self.process.poll() is not None and not self._ranks()
            if ended or time.monotonic() > deadline:
                return
            time.sleep(0.05)


class Library:
    """An MPI library in a virtual environment of its own."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self.mpiexec = python.parent / "mpiexec"
        text = subprocess.run([self.mpiexec, "--version"], capture_output=True, text=True).stdout
        self.name = (
            "impi" if "Intel" in text else "openmpi" if "OpenRTE" in text or "Open MPI" in text else "mpich"
        )

    def environment(self) -> dict[str, str]:
        """Variables for jobs whose data really take the network."""
        path = {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYCOLLECTIVES_TUNING": "off",  # the choices are those of the defaults, whoever has tuned this machine
            "OPENBLAS_NUM_THREADS": "1",  # ranks share the cores
        }
        if self.name == "openmpi":
            return path | {
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl": "self,sm,tcp",
                "OMPI_MCA_btl_tcp_if_include": "eth0",
                "OMPI_MCA_mpi_yield_when_idle": "1",
                "PRTE_MCA_prte_silence_shared_fs": "1",
            }
        if self.name == "impi":
            return path | {"FI_PROVIDER": "tcp", "I_MPI_FABRICS": "shm:ofi", "I_MPI_HYDRA_IFACE": "eth0"}
        return path | {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}

    def command(self, agent: Path, ranks_of: Sequence[int], *, survive: bool, in_turn: bool) -> list[str]:
        """mpiexec for ranks_of[h] ranks on host h, in blocks, or, `in_turn`, one host after the other (equal hosts only).

        `survive`: a dead rank does not end the others.
        """
        n = str(sum(ranks_of))
        if self.name == "openmpi":
            hosts = ",".join(f"host{i}:{k}" for i, k in enumerate(ranks_of))
            extra = ["--with-ft", "ulfm"] if survive else []
            extra += ["--map-by", "node"] if in_turn else []
            extra += ["--bind-to", "none"]
            return [
                str(self.mpiexec),
                "--prtemca",
                "plm_ssh_agent",
                str(agent),
                "--host",
                hosts,
                *extra,
                "-n",
                n,
            ]
        machines = agent.parent / "machines"
        machines.write_text("".join(f"host{i}:{1 if in_turn else k}\n" for i, k in enumerate(ranks_of)))
        extra = ["-disable-auto-cleanup"] if survive else []
        return [
            *(str(self.mpiexec), "-launcher", "ssh", "-launcher-exec", str(agent), "-iface", "eth0"),
            *(*extra, "-machinefile", str(machines), "-n", n),
        ]


class Cluster:
    """`n` hosts. Delay of one way in microseconds, rate in Mbit/s, loss in millionths; 0: none."""

    def __init__(self, n: int, *, delay_us: int = 0, mbit: float = 0, loss_ppm: int = 0) -> None:
        self.n = n
        self.prefix = f"pc-{os.getpid()}"
        self.folder = Path(tempfile.mkdtemp(prefix="pycollectives-hosts-"))
        self.folder.chmod(0o755)
        self._wire: subprocess.Popen[str] | None = None
        self._jobs: list[Job] = []
        self.agent = self.folder / "rsh"
        try:
            self._build(delay_us, mbit, loss_ppm)
        except BaseException:
            self.close()
            raise

    def _build(self, delay_us: int, mbit: float, loss_ppm: int) -> None:
        switch = f"{self.prefix}-switch"
        wired = bool(delay_us or mbit or loss_ppm)
        self._ip("netns", "add", switch)
        self._ip("-n", switch, "link", "set", "lo", "up")
        if not wired:
            self._ip("-n", switch, "link", "add", "br0", "type", "bridge")
            self._ip("-n", switch, "link", "set", "br0", "up")
        names = ["127.0.0.1 localhost"]
        for i in range(self.n):
            host = f"{self.prefix}-{i}"
            self._ip("netns", "add", host)
            self._ip("-n", host, "link", "set", "lo", "up")
            self._ip(
                *(
                    "-n",
                    host,
                    "link",
                    "add",
                    "eth0",
                    "type",
                    "veth",
                    "peer",
                    "name",
                    f"port{i}",
                    "netns",
                    switch,
                )
            )
            self._ip("-n", host, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            self._ip("-n", host, "link", "set", "eth0", "up")
            self._ip("-n", switch, "link", "set", f"port{i}", *(() if wired else ("master", "br0")), "up")
            names.append(f"10.77.0.{i + 1} host{i}")
        (self.folder / "hosts").write_text("\n".join(names) + "\n")
        (
            self.folder / "prepare"
        ).touch()  # what else a command finds on its host: lines of shell, see slurm.py
        self.agent.write_text(RSH.format(prefix=self.prefix, folder=self.folder))
        self.agent.chmod(0o755)
        if wired:
            program = self.folder / "wire"
            compiler = os.environ.get("CXX", "g++")
            source = Path(__file__).parent / "wire.cpp"
            subprocess.run([compiler, "-std=c++20", "-O2", str(source), "-o", str(program)], check=True)
            ports = [f"port{i}" for i in range(self.n)]
            numbers = [str(delay_us), str(mbit), str(loss_ppm)]
            self._wire = subprocess.Popen(
                ["ip", "netns", "exec", switch, str(program), *numbers, *ports],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._wire.stdout is not None and self._wire.stdout.readline() == "ready\n"

    @staticmethod
    def _ip(*arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

    def cut(self, host: int) -> None:
        """Pull the cable of a host."""
        self._ip("-n", f"{self.prefix}-switch", "link", "set", f"port{host}", "down")

    def kill(self, host: int) -> None:
        """All that runs on a host, what MPI has there too."""
        for pid in self._pids(host):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start(
        self,
        library: Library,
        ranks_of: Sequence[int],
        *command: object,
        env: Mapping[str, str] | None = None,
        survive: bool = False,
        in_turn: bool = False,
    ) -> Job:
        """A job of ranks_of[h] ranks on host h; mpiexec runs on host 0."""
        if survive and library.name != "openmpi":
            # Sessions of their own: when a rank dies MPICH's mpiexec sometimes fails ("unable to forward PMI response"), and
            # then it kills its other children by their process groups, whatever it was asked to do.
            command = ("setsid", "--wait", *command)
        mpiexec = library.command(self.agent, ranks_of, survive=survive, in_turn=in_turn)
        return self.begin(library, [*mpiexec, *map(str, command)], env or {})

    def begin(self, library: Library, line: Sequence[str], env: Mapping[str, str]) -> Job:
        """A job by a command line of its own, on host 0."""
        job = Job(self.folder, len(self._jobs), self.processes)
        with job.out.open("w") as out, job.err.open("w") as err:
            job.process = subprocess.Popen(
                [str(self.agent), "host0", shlex.join(line)],
                env=self._environment(library, job) | dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._jobs.append(job)
        return job

    def start_without_mpiexec(
        self,
        library: Library,
        ranks_of: Sequence[int],
        *command: object,
        env: Mapping[str, str] | None = None,
    ) -> Job:
        """The same with torchrun's variables and nothing else; the exit code is 0 if that of every rank is."""
        job, lines, rank = Job(self.folder, len(self._jobs), self.processes), ["code=0"], 0
        for host, number in enumerate(ranks_of):
            for local in range(number):
                words = [
                    f"RANK={rank}",
                    f"LOCAL_RANK={local}",
                    f"LOCAL_WORLD_SIZE={number}",
                    *map(str, command),
                ]
                lines.append(f"{self.agent} host{host} {shlex.quote(shlex.join(['env', *words]))} &")
                rank += 1
        lines += ["for each in $(jobs -p); do wait $each || code=1; done", "exit $code"]
        common = {
            "WORLD_SIZE": str(rank),
            "MASTER_ADDR": "host0",
            "MASTER_PORT": "29511",
        }
        with job.out.open("w") as out, job.err.open("w") as err:
            job.process = subprocess.Popen(
                ["bash", "-c", "\n".join(lines)],
                env=self._environment(library, job) | common | dict(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._jobs.append(job)
        return job

    def _environment(self, library: Library, job: Job) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        # Open MPI keeps files of a job under the host's name there: those of other clusters' hosts have the same names.
        return own | library.environment() | {"JOB_SAYS": str(job.says), "TMPDIR": str(self.folder)}

    def finish(self, job: Job, limit: float) -> Finished:
        """Wait for a job, which is killed after `limit` seconds."""
        start, process, note = time.monotonic(), job.process, ""
        assert process is not None
        try:
            process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            note = f"\nkilled after {limit} s"
        self._kill(job)
        took = time.monotonic() - start
        return Finished(process.wait(), job.out.read_text(), job.err.read_text() + note, took)

    def run(
        self,
        library: Library,
        ranks_of: Sequence[int],
        *command: object,
        env: Mapping[str, str] | None = None,
        limit: float = 60.0,
        survive: bool = False,
        in_turn: bool = False,
    ) -> Finished:
        """Start a job and wait for it."""
        running = self.start(library, ranks_of, *command, env=env, survive=survive, in_turn=in_turn)
        return self.finish(running, limit)

    def _kill(self, job: Job) -> None:
        """mpiexec, politely first, and whatever runs on the hosts."""
        assert job.process is not None
        for number, wait in ((signal.SIGTERM, 0.5), (signal.SIGKILL, 0.0)):
            if job.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(job.process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    job.process.wait(timeout=wait)
        self._sweep()

    def processes(self) -> list[int]:
        """Everything that runs on the hosts."""
        return [pid for i in range(self.n) for pid in self._pids(i)]

    def _pids(self, host: int) -> list[int]:
        done = subprocess.run(
            ["ip", "netns", "pids", f"{self.prefix}-{host}"], capture_output=True, text=True
        )
        return [int(pid) for pid in done.stdout.split()]

    def _sweep(self) -> None:
        for _ in range(50):
            left = self.processes()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                return
            time.sleep(0.02)

    def close(self) -> None:
        """End everything."""
        for job in self._jobs:
            self._kill(job)
        self._sweep()
        if self._wire is not None:
            self._wire.kill()
            self._wire.wait()
        for name in [*(f"{self.prefix}-{i}" for i in range(self.n)), f"{self.prefix}-switch"]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


if (
    __name__ == "__main__"
):  # hosts.py PYTHON RANKS,RANKS... COMMAND...: a job by hand; DELAY_US, MBIT, LOSS_PPM shape it
    shape = {name: float(os.environ.get(name.upper(), "0")) for name in ("delay_us", "mbit", "loss_ppm")}
    counts = [int(n) for n in sys.argv[2].split(",")]
    with Cluster(
        len(counts), delay_us=int(shape["delay_us"]), mbit=shape["mbit"], loss_ppm=int(shape["loss_ppm"])
    ) as cluster:
        done = cluster.run(
            Library(Path(sys.argv[1])), counts, *sys.argv[3:], limit=float(os.environ.get("LIMIT", "60"))
        )
    print(done.out, end="")
    print(done.err, end="", file=sys.stderr)
    print(f"exit code {done.code} after {done.seconds:.1f} s", file=sys.stderr)
    sys.exit(done.code)
