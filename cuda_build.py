"""Compiles the CUDA kernels where an nvcc is found. Used by setup.py.

PYCOLLECTIVES_CUDA        auto (default): build the extension where there is an nvcc; 1: fail if there is none; 0: do not;
                          only: as 1, and nothing else is built
PYCOLLECTIVES_WARNINGS    allowed: a compiler's warning is no error (in a source distribution it never is)
PYCOLLECTIVES_CUDA_ARCHS  compute capabilities, as in "90"; default: "80;90;100;120+PTX" in a wheel, which `pip install .` makes,
                          too; else "90"
NVCC, CUDA_HOME, CUDA_PATH, CUDAHOSTCXX  as usual; else PATH, and the wheels:
                          pip install 'cuda-toolkit[nvcc,cudart,cccl,nvvm,crt]'
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Warnings stop a developer, but not the user of a source distribution, nor a check on a machine with some newer compiler.
WARNINGS_ARE_ERRORS = not Path("PKG-INFO").exists() and os.environ.get("PYCOLLECTIVES_WARNINGS") != "allowed"
DEVELOPMENT = "90"
WHEELS = "80;90;100;120+PTX"


def find_nvcc() -> str | None:
    """The CUDA compiler to use, if any."""
    candidates = [os.environ.get("NVCC")]
    candidates += [
        os.path.join(os.environ[home], "bin", "nvcc")
        for home in ("CUDA_HOME", "CUDA_PATH")
        if os.environ.get(home)
    ]
    candidates.append(shutil.which("nvcc"))
    candidates += [
        str(found) for folder in sys.path for found in Path(folder or ".").glob("nvidia/cu1?/bin/nvcc")
    ]
    candidates.append("/usr/local/cuda/bin/nvcc")
    return next((path for path in candidates if path and os.access(path, os.X_OK)), None)


def toolkit(nvcc: str) -> Path:
    """The root of nvcc's toolkit, which nvcc itself knows best: it may be a wrapper."""
    asked = subprocess.run([nvcc, "-dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True)
    for line in (asked.stderr + asked.stdout).splitlines():
        if line.startswith("#$ TOP="):
            return Path(line[7:].strip()).resolve()
    return Path(nvcc).resolve().parent.parent


def architectures() -> str:
    """Those to build for: a wheel is for any device, also of later architectures, by PTX."""
    return os.environ.get("PYCOLLECTIVES_CUDA_ARCHS") or (
        WHEELS if "bdist_wheel" in sys.argv else DEVELOPMENT
    )


def code_for(architectures: str, *, linkable: bool = False) -> list[str]:
    """nvcc's flags for a list like "80;90+PTX". `linkable`: for LTO-IR, which is completed at run time."""
    flags = []
    for name in filter(None, architectures.replace(",", ";").split(";")):
        number = name.removesuffix("+PTX")
        kind = "lto" if linkable else "sm"
        flags.append(f"-gencode=arch=compute_{number},code={kind}_{number}")
        if name.endswith("+PTX") and not linkable:
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return flags


class Toolkit:
    """An nvcc, and what it takes to build with it."""

    def __init__(self, nvcc: str) -> None:
        self.nvcc, self.root = nvcc, toolkit(nvcc)
        self.architectures = architectures()
        folders = [self.root / name for name in ("lib64", "lib", "targets/x86_64-linux/lib")]
        self.libraries = next((f for f in folders if (f / "libcudart_static.a").exists()), None)
        if self.libraries is None:
            raise SystemExit(f"libcudart_static.a was not found under {self.root}")

    def link_flags(self) -> list[str]:
        """The runtime, linked statically: the extension can be imported where there is no driver."""
        assert self.libraries is not None
        static = [str(self.libraries / "libcudart_static.a")]
        if (self.libraries / "libculibos.a").exists():
            static.append(str(self.libraries / "libculibos.a"))
        return [*static, "-lrt", "-lpthread", "-ldl", "-Wl,--exclude-libs,ALL"]

    def command(self, source: str, target: str, *, linkable: bool = False) -> list[str]:
        """Compiles one source. The numbers must have the bits that the CPU gives: no contraction to fused multiply-add."""
        host = ["-ccbin", os.environ["CUDAHOSTCXX"]] if os.environ.get("CUDAHOSTCXX") else []
        form = ["-dc", "-fatbin"] if linkable else ["-c"]
        depfile = ["-MD", "-MF", str(Path(target).with_suffix(".d"))]
        return [
            *(self.nvcc, *form, source, "-o", target, *depfile),
            *(
                "-Icsrc",
                "-std=c++20",
                "-O3",
                "-fmad=false",
                "--expt-relaxed-constexpr",
                *(("-Werror=all-warnings",) if WARNINGS_ARE_ERRORS else ()),
            ),
            *("--compress-mode=size", "-Xcompiler", "-fPIC,-fvisibility=hidden", *host),
            *code_for(self.architectures, linkable=linkable),
        ]


def wanted() -> Toolkit | None:
    """The toolkit to build the extension with, if it is to be built."""
    mode = os.environ.get("PYCOLLECTIVES_CUDA", "auto")
    if mode not in ("auto", "0", "1", "only"):
        raise SystemExit(f"PYCOLLECTIVES_CUDA is {mode!r}; it must be auto, 0, 1 or only")
    nvcc = find_nvcc() if mode != "0" else None
    if mode in ("1", "only") and nvcc is None:
        raise SystemExit(f"PYCOLLECTIVES_CUDA={mode}, but there is no nvcc (PATH, CUDA_HOME, NVCC)")
    return None if nvcc is None else Toolkit(nvcc)
