"""What the compiler made of the kernels: registers, memory accesses, barriers.

    python bench/gpu/sass.py [FILE]      a Markdown table of the extension _cuda, or of an object file

Needs cuobjdump and nvdisasm: of the toolkit, or pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

TYPES = {
    "Native<float>": "float32",
    "Native<double>": "float64",
    "Native<int>": "int32",
    "Native<long>": "int64",
}
TYPES |= {"SmallFloat<4, 3, false>": "float8_e4m3fn", "SmallFloat<5, 2, true>": "float8_e5m2"}
# csrc/cuda/kernels/multimem.hpp
FORMS = [
    "none",
    "add_f32",
    "add_f64",
    "add_f16",
    "add_bf16",
    "add_u32",
    "add_u64",
    "min_s32",
    "max_s32",
    "min_u32",
    "max_u32",
]
FORMS += ["min_s64", "max_s64", "min_u64", "max_u64", "and_b32", "or_b32", "xor_b32"]
OPS = ("sum", "prod", "min", "max")


@dataclass
class Kernel:
    """One kernel for one architecture. `instructions` counts by opcode, with its modifiers."""

    architecture: str
    name: str
    registers: int = 0
    stack: int = 0
    shared: int = 0
    instructions: Counter[str] = field(default_factory=Counter)

    def count(self, pattern: str) -> int:
        """The instructions whose opcode matches."""
        return sum(n for opcode, n in self.instructions.items() if re.fullmatch(pattern, opcode))


def tool(name: str) -> str | None:
    """A program of the CUDA toolkit."""
    folders = [folder for folder in sys.path if folder]
    wheels = [found for folder in folders for found in Path(folder).glob(f"nvidia/cu1?/bin/{name}")]
    return shutil.which(name) or next((str(path) for path in wheels), None)


def extension() -> Path:
    """The extension that was built here."""
    spec = importlib.util.find_spec("pycollectives._cuda")
    if spec is None or spec.origin is None:
        raise SystemExit("the extension _cuda was not built")
    return Path(spec.origin)


def short(name: str) -> str:
    """`interpret<Reducer<Native<float>, (ReduceOp)0>, Simple>(Call)` as `Simple float32 sum`."""
    name = (
        name.replace("pc::cuda::", "")
        .replace("pc::", "")
        .removeprefix("void ")
        .partition("(Call")[0]
        .removesuffix("(DirectCall)")
        .removesuffix("(FusedCall)")
        .removesuffix("(Parcel)")
    )
    name = re.sub(r"\(ReduceOp\)(\d+)", lambda op: OPS[int(op[1])], name)
    for long, known in TYPES.items():
        name = name.replace(long, known)
    if found := re.fullmatch(r"direct<(?:Reducer<(.+), (\w+)> ?|(\w+))>", name):
        return " ".join(filter(None, ("native", found[1] or found[3], found[2])))
    if found := re.fullmatch(r"multicast<\(Multimem\)(\d+)>", name):
        return f"multicast {FORMS[int(found[1])]}"
    if found := re.fullmatch(r"direct_fused<(\w+)>", name):
        return f"native fused {found[1]}"
    if found := re.fullmatch(r"interpret_fused<(\w+), (\w+)>", name):
        return f"{found[2]} fused {found[1]}"
    if name.startswith("ring<"):
        return "hand-written ring"
    if found := re.fullmatch(r"interpret<(?:Reducer<(.+), (\w+)>|(\w+)), (\w+)>", name):
        return " ".join(filter(None, (found[4], found[1] or found[3], found[2])))
    return name


def _output(program: str, *arguments: str) -> str:
    path = tool(program)
    if path is None:
        raise FileNotFoundError(program)
    env = os.environ | {"PATH": f"{Path(path).parent}:{os.environ.get('PATH', '')}"}
    text = subprocess.run([path, *arguments], text=True, capture_output=True, check=True, env=env).stdout
    return subprocess.run(["c++filt"], input=text, text=True, capture_output=True, check=True).stdout


def kernels(binary: Path) -> list[Kernel]:
    """Every kernel in a binary. Raises FileNotFoundError where cuobjdump is missing."""
    found: dict[tuple[str, str], Kernel] = {}
    architecture, current = "", None
    for line in _output("cuobjdump", "-sass", str(binary)).splitlines():
        if line.startswith("arch = "):
            architecture = line.split()[2]
        elif match := re.match(r"\s*Function : (.+)", line):
            current = found.setdefault((architecture, match[1]), Kernel(architecture, short(match[1])))
        elif current is not None and (
            match := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", line)
        ):
            current.instructions[match[1]] += 1
    name = ""
    for line in _output("cuobjdump", "-res-usage", str(binary)).splitlines():
        if line.startswith("arch = "):
            architecture = line.split()[2]
        elif match := re.match(r"\s*Function (.+):$", line):
            name = match[1]
        elif (match := re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)", line)) and (
            kernel := found.get((architecture, name))
        ):
            kernel.registers, kernel.stack, kernel.shared = (int(match[i]) for i in (1, 2, 3))
    return sorted(found.values(), key=lambda k: (k.architecture, k.name))


def table(found: list[Kernel]) -> str:
    """The kernels as Markdown."""
    lines = [
        "| architecture | kernel | registers | stack | shared | local loads, stores | 128-bit loads | stores | system fences |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for k in found:
        local = k.count(r"(LDL|STL).*")
        wide = k.count(r"LDG?\.E.*128.*"), k.count(r"STG?\.E.*128.*")
        cells = (
            k.architecture,
            k.name,
            k.registers,
            k.stack,
            k.shared,
            local,
            *wide,
            k.count(r"MEMBAR.*SYS.*"),
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(kernels(Path(sys.argv[1]) if len(sys.argv) > 1 else extension())))
