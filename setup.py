"""Builds the native extensions. All else about the package is in pyproject.toml.

Compilation is parallel and incremental: an object is rebuilt when its command line, its source or any header
that the compiler read for it has changed.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import pybind11
import setuptools
from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

os.chdir(Path(__file__).resolve().parent)
sys.path.insert(0, os.getcwd())

import cuda_build  # noqa: E402 - beside this file, which need not be where the build runs

SANITIZERS = {"address", "thread", "undefined"}
SANITIZE = [name for name in os.environ.get("PYCOLLECTIVES_SANITIZE", "").split(",") if name]
if unknown := set(SANITIZE) - SANITIZERS:
    raise SystemExit(f"PYCOLLECTIVES_SANITIZE: unknown {sorted(unknown)}, known are {sorted(SANITIZERS)}")

# Results must have the same bits at every SIMD level and on every rank: no contraction to fused multiply-add,
# no -ffast-math. Signed integers wrap, as NumPy's do.
COMPILE_FLAGS = ["-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fwrapv"]
COMPILE_FLAGS += ["-pthread", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wall", "-Wextra"]
LINK_FLAGS = ["-pthread"]
if SANITIZE:
    # -fno-sanitize=vptr: type information of hidden classes differs between modules. No -Werror: GCC's flow
    # analysis warns falsely about instrumented code.
    sanitizer = [f"-fsanitize={name}" for name in SANITIZE]
    COMPILE_FLAGS += [*sanitizer, "-fno-sanitize=vptr", "-fno-sanitize-recover=all"]
    COMPILE_FLAGS += ["-g", "-O1", "-fno-omit-frame-pointer"]
    LINK_FLAGS += sanitizer
elif cuda_build.WARNINGS_ARE_ERRORS:
    COMPILE_FLAGS.append("-Werror")


def cpp_extension(name: str, *folders: str) -> Extension:
    """An extension of all C++ files in folders of csrc/, each with csrc/ as its include directory."""
    system = [sysconfig.get_path("include"), pybind11.get_include(), numpy.get_include()]
    return Extension(
        name,
        sources=sorted(str(path) for folder in folders for path in Path("csrc", folder).glob("*.cpp")),
        depends=sorted(str(path) for path in Path("csrc").rglob("*.h*")),
        include_dirs=["csrc"],
        extra_compile_args=[*COMPILE_FLAGS, *(flag for path in system for flag in ("-isystem", path))],
        extra_link_args=LINK_FLAGS,
        language="c++",
    )


# The emulated device tells ThreadSanitizer itself of its threads; what the sanitizer sees of it would be noise.
UNINSTRUMENTED = {
    str(path) for path in Path("csrc/cuda/emulation").glob("*.cpp") if not path.name.endswith("kernels.cpp")
}
EMULATED_BINDINGS = (
    "csrc/cuda/host/module.cpp"  # pybind11 takes long to instrument, and touches no memory of ours
)


def emulated_extension() -> Extension:
    """The CUDA kernels on a device that is emulated on the CPU, for tests without a GPU (docs/gpu.md)."""
    ext = cpp_extension("pycollectives._cuda_emulated", "cuda/host", "cuda/kernels", "cuda/emulation")
    ext.sources += ["csrc/bindings/errors.cpp"]
    ext.depends += sorted(str(path) for path in Path("csrc/cuda").rglob("*.cu*"))
    few = (
        ["-DPC_FEW_KERNELS"] if SANITIZE else []
    )  # the others take minutes to instrument and differ in no access
    ext.extra_compile_args += ["-DPC_EMULATED", "-O1", *few]
    return ext


USER_KERNELS = "csrc/cuda/kernels/user.cu"  # LTO-IR in the extension: operators are linked to it at run time


class CudaExtension(Extension):
    """An extension with kernels that nvcc compiles."""

    toolkit: cuda_build.Toolkit
    kernels: list[str]


def cuda_extension(toolkit: cuda_build.Toolkit) -> Extension:
    """The CUDA kernels, and the host side that launches them (docs/gpu.md)."""
    base = cpp_extension("pycollectives._cuda", "cuda/host", "cuda/kernels")
    ext = CudaExtension(
        base.name,
        sources=[*base.sources, "csrc/bindings/errors.cpp"],
        include_dirs=base.include_dirs,
        extra_compile_args=[*base.extra_compile_args, "-isystem", str(toolkit.root / "include")],
        extra_link_args=[*base.extra_link_args, *toolkit.link_flags()],
        language="c++",
    )
    kernels = {str(path) for path in Path("csrc/cuda/kernels").glob("*.cu")} - {USER_KERNELS}
    ext.toolkit, ext.kernels = toolkit, sorted(kernels)
    return ext


def is_current(obj: Path, command: str) -> bool:
    """Whether an object was built by this command from files that have not changed since."""
    try:
        if obj.with_suffix(".cmd").read_text() != command:
            return False
        built = obj.stat().st_mtime_ns
        rule = obj.with_suffix(".d").read_text().replace("\\\n", " ").partition(": ")[2]
        files = (re.sub(r"\\(.)", r"\1", file) for file in re.findall(r"(?:\\.|\S)+", rule))
        return all(os.stat(file).st_mtime_ns <= built for file in files)
    except OSError:
        return False


class IncrementalBuild(build_ext):
    """build_ext with parallel compilation that follows header dependencies."""

    def run(self) -> None:
        if self.editable_mode:  # not in pip's temporary folder: the objects serve `build_ext --inplace` too
            self.build_temp = f"build/temp.{self.plat_name}-{sys.implementation.cache_tag}"
        Path(self.build_temp).mkdir(parents=True, exist_ok=True)
        with Path(self.build_temp, "lock").open("w") as lock:  # two builds at once would mix their objects
            fcntl.flock(lock, fcntl.LOCK_EX)
            super().run()

    def build_extension(self, ext: Extension) -> None:
        folder = Path(self.build_temp, "-".join([ext.name, *SANITIZE]))
        objects = self.compile_changed(ext, folder)
        if isinstance(ext, CudaExtension):
            objects += self.compile_kernels(ext, folder)
        output = Path(self.get_ext_fullpath(ext.name))
        linked = folder.with_suffix(".link")
        record = "\n".join([str(output), *objects, *ext.extra_link_args])
        if not linked.exists() or linked.read_text() != record:
            output.unlink(missing_ok=True)
        self.compiler.link_shared_object(
            objects,
            str(output),
            libraries=self.get_libraries(ext),
            library_dirs=ext.library_dirs,
            runtime_library_dirs=ext.runtime_library_dirs,
            extra_postargs=ext.extra_link_args,
            build_temp=self.build_temp,
            target_lang="c++",
        )
        linked.write_text(record)

    def compile_changed(self, ext: Extension, folder: Path) -> list[str]:
        """Compiles those sources whose objects are not current; returns all objects."""
        compiler = self.compiler
        macros = [*ext.define_macros, *((name,) for name in ext.undef_macros)]
        _, objects, flags, options, sources = compiler._setup_compile(
            str(folder), macros, ext.include_dirs, ext.sources, ext.depends, ext.extra_compile_args
        )
        arguments = compiler._get_cc_args(options, self.debug, None)
        base = [*compiler.compiler_so, *getattr(compiler, "compiler_so_cxx", ()), *arguments, *flags]
        command = "\n".join(base)
        stale = [obj for obj in objects if self.force or not is_current(Path(obj), command)]

        def compile_one(numbered: tuple[int, str]) -> None:
            number, name = numbered
            obj, (source, suffix) = Path(name), sources[name]
            print(f"[{number:3}/{len(stale)}] {source}\n", end="", flush=True)
            begin = time.time_ns()
            obj.with_suffix(".cmd").unlink(missing_ok=True)
            depfile = ["-MD", "-MF", str(obj.with_suffix(".d"))]
            own = []
            if "thread" in SANITIZE and source in UNINSTRUMENTED:
                own = ["-fno-sanitize=thread", "-DPC_EMULATION_TSAN"]
            elif SANITIZE and source == EMULATED_BINDINGS:
                own = ["-fno-sanitize=all", "-g0"]
            compiler._compile(name, source, suffix, arguments, [*flags, *own, *depfile], options)
            os.utime(name, ns=(begin, begin))  # a file edited while it is compiled is newer than its object
            obj.with_suffix(".cmd").write_text(command)

        with ThreadPoolExecutor(self.parallel or len(os.sched_getaffinity(0))) as pool:
            list(pool.map(compile_one, enumerate(stale, 1)))
        return objects

    def compile_kernels(self, ext: CudaExtension, folder: Path) -> list[str]:
        """The same for sources that nvcc compiles."""
        objects = [str(folder / f"{source}.o") for source in ext.kernels]
        commands = [ext.toolkit.command(*pair) for pair in zip(ext.kernels, objects, strict=True)]
        image = folder / "user.fatbin"
        commands.append(ext.toolkit.command(USER_KERNELS, str(image), linkable=True))

        def compile_one(command: list[str]) -> None:
            obj = Path(command[command.index("-o") + 1])
            text = "\n".join(command)
            if not self.force and is_current(obj, text):
                return
            source = next(word for word in command if word.endswith(".cu"))
            print(f"[nvcc] {source}\n", end="", flush=True)
            obj.parent.mkdir(parents=True, exist_ok=True)
            obj.with_suffix(".cmd").unlink(missing_ok=True)
            begin = time.time_ns()
            self.spawn(command)
            os.utime(obj, ns=(begin, begin))
            obj.with_suffix(".cmd").write_text(text)

        with ThreadPoolExecutor(self.parallel or len(os.sched_getaffinity(0))) as pool:
            list(pool.map(compile_one, commands))
        return [*objects, self.embed(image, "pc_user_image")]

    def embed(self, file: Path, symbol: str) -> str:
        """An object with the bytes of a file, from `symbol` to `symbol`_end."""
        source, obj = file.with_suffix(".s"), str(file.with_suffix(".embedded.o"))
        names = "\n".join(f".globl {name}\n.hidden {name}" for name in (symbol, f"{symbol}_end"))
        source.write_text(
            f'{names}\n.section .rodata\n.balign 16\n{symbol}:\n.incbin "{file.resolve()}"\n{symbol}_end:\n'
            '.section .note.GNU-stack,"",%progbits\n'
        )
        self.spawn([self.compiler.compiler_so[0], "-c", str(source), "-o", obj])
        return obj


EMULATOR = os.environ.get("PYCOLLECTIVES_EMULATOR", "0")  # 1: the emulated device, too; only: nothing else
extensions = (
    []
    if "only" in (EMULATOR, os.environ.get("PYCOLLECTIVES_CUDA"))
    else [cpp_extension("pycollectives._core", "core", "shm", "mpi", "bindings")]
)
if EMULATOR != "0":
    extensions.append(emulated_extension())
if EMULATOR != "only" and not SANITIZE and (toolkit := cuda_build.wanted()) is not None:
    extensions.append(cuda_extension(toolkit))


class OnlyExtensions(Distribution):
    """Does not read pyproject.toml, which an older setuptools than it asks for takes for wrong: `build_ext` needs nothing of it."""

    def parse_config_files(self, *_: object, **__: object) -> None:
        pass


older = int(setuptools.__version__.partition(".")[0]) < 77 and "build_ext" in sys.argv
setup(
    ext_modules=extensions,
    cmdclass={"build_ext": IncrementalBuild},
    **({"distclass": OnlyExtensions} if older else {}),
)
