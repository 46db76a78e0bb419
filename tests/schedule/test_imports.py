"""Who may import whom, read from the source of every file of the package."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pycollectives import schedule

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "pycollectives").rglob("*.py"))
PURE = {"schedule", "algorithms", "topology", "cost", "teach"}
ARRAYS = {"cupy", "cupyx", "torch", "jax", "jaxlib", "tensorflow", "numba", "pandas", "mlx"}


def module(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """The dotted names of all that a file imports, in functions too; `from x import y` gives x and x.y."""
    package = module(path) if path.name == "__init__.py" else module(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                base = f"{above}.{base}" if base else above
            yield base
            yield from (f"{base}.{name.name}" for name in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def area(path: Path) -> str:
    """The first folder or file below the package."""
    return path.relative_to(ROOT / "pycollectives").parts[0].removesuffix(".py")


def test_relative_imports_are_resolved() -> None:
    found = set(imports(ROOT / "pycollectives" / "algorithms" / "ring.py"))
    assert {
        "pycollectives.schedule",
        "pycollectives.schedule.Program",
        "pycollectives.schedule.algorithm",
    } <= found
    assert "pycollectives.algorithms.ring" in set(
        imports(ROOT / "pycollectives" / "algorithms" / "__init__.py")
    )


@pytest.mark.parametrize("path", [p for p in FILES if area(p) in PURE], ids=module)
def test_pure_packages(path: Path) -> None:
    for name in imports(path):
        assert name.partition(".")[0] not in ARRAYS, name
        for forbidden in ("bootstrap", "interop", "_core"):
            assert not within(name, f"pycollectives.{forbidden}"), name


@pytest.mark.parametrize("path", [p for p in FILES if area(p) == "algorithms"], ids=module)
def test_algorithms_import_only_the_language(path: Path) -> None:
    language = {"pycollectives.schedule", *(f"pycollectives.schedule.{name}" for name in schedule.__all__)}
    for name in imports(path):
        if name in language or within(name, "pycollectives.algorithms"):
            continue
        top = name.partition(".")[0]
        assert top == "numpy" or top in sys.stdlib_module_names, name


@pytest.mark.parametrize("path", [p for p in FILES if area(p) == "algorithms"], ids=module)
def test_an_algorithm_file_is_short_and_explains_itself(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 110
    if path.name != "__init__.py":
        lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
        assert any(line.startswith("source ") for line in lines)
        assert any(line.startswith("cost ") for line in lines) or "@algorithm" not in text


@pytest.mark.parametrize("path", FILES, ids=module)
def test_nothing_imports_the_command_line(path: Path) -> None:
    if area(path) in ("cli", "__main__"):
        return
    assert not [name for name in imports(path) if within(name, "pycollectives.cli")]


def test_verification_needs_no_extension() -> None:
    """A fresh interpreter, the package's own __init__ left out, in which the extension cannot be imported."""
    code = (
        "import sys, types\n"
        "package = sys.modules['pycollectives'] = types.ModuleType('pycollectives')\n"
        "package.__path__ = ['pycollectives']\n"
        "sys.modules['pycollectives._core'] = None\n"
        "import pycollectives.algorithms\n"
        "from pycollectives.schedule import ALGORITHMS\n"
        "from pycollectives.schedule.verifier import verified\n"
        "assert all(verified(a.on((0, 0, 1, 1)), 4).rank_identical for a in ALGORITHMS.values())\n"
        "assert not {'mpi4py', 'torch', 'cupy', 'jax'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
