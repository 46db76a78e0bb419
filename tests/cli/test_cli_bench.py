from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from pycollectives.bench.measure import busbw_factor
from pycollectives.schedule import COLLECTIVES

QUICK = ("--iterations", "20", "--warmup", "2")


def test_table_json_csv(command: Any, tmp_path: Path) -> None:
    files = "--json", "b.json", "--csv", "b.csv"
    done = command("bench", "-n", "2", "-c", "all", "--sizes", "8,64K", "--dtype", "int32", *QUICK, *files)
    for title in (
        "size (B)",
        "count",
        "p50 (us)",
        "p95 (us)",
        "p99 (us)",
        "algbw",
        "busbw",
        "skew",
        "cores",
        "wrong",
    ):
        assert title in done.stdout
    document = json.loads((tmp_path / "b.json").read_text())
    assert {"versions", "machine", "ranks", "options", "rows"} <= set(document) and document["ranks"] == 2
    rows = document["rows"]
    assert [(r["collective"], r["size_bytes"]) for r in rows if r["collective"] != "barrier"] == [
        (verb, size) for verb in COLLECTIVES if verb != "barrier" for size in (8, 65536)
    ]
    assert rows[-1]["collective"] == "barrier" and rows[-1]["errors"] == 0
    for row in rows:
        assert row["errors"] == 0 and row["iterations"] == 20 and row["chosen_by"] == "selector"
        assert 0 < row["min_us"] <= row["p50_us"] <= row["p95_us"] <= row["p99_us"]
        assert row["busbw_factor"] == busbw_factor(row["collective"], 2)
        assert row["algbw_gb_s"] == pytest.approx(row["size_bytes"] / row["p50_us"] / 1000)
        assert row["busbw_gb_s"] == pytest.approx(row["algbw_gb_s"] * row["busbw_factor"])
        assert (
            row["buffers"] == "warm"
            and row["in_place"] is False
            and row["cores"] in ("near", "far", "shared")
        )
    with (tmp_path / "b.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows) and table[1]["size_bytes"] == "65536" and table[1]["ranks"] == "2"


@pytest.mark.parametrize(
    "extra", [("float32", "--symmetric"), ("bfloat16", "--fresh")], ids=lambda each: each[1]
)
@pytest.mark.parametrize("place", ["--in-place", "--out-of-place"])
def test_every_algorithm_is_right(command: Any, place: str, extra: tuple[str, str], tmp_path: Path) -> None:
    which = "-c", "all", "-a", "all", "--sizes", "5000", "--dtype", *extra, place
    command("bench", "-n", "3", *which, "--iterations", "1", "--warmup", "1", "--json", "b.json")
    rows = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert {"ring", "one_shot", "two_shot", "double_binary_tree", "binomial"} <= {
        r["algorithm"] for r in rows
    }
    assert all(row["errors"] == 0 and row["chosen_by"] == "user" for row in rows)


def test_inside_jobs(command: Any) -> None:
    same = "bench", "--sizes", "1K", *QUICK
    assert "2 ranks on" in command("run", "-n", "2", "-m", "pycollectives", *same).stdout
    done = command("run", "-n", "2", "-m", "pycollectives", *same, "-n", "4", code=2)
    assert "inside a job of 2 ranks" in done.stderr


def test_inside_mpiexec(command: Any) -> None:
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    pytest.importorskip("mpi4py", reason="optional: mpi4py is not installed")
    if mpiexec is None:
        pytest.skip("optional: there is no mpiexec")
    done = command("bench", "--sizes", "1K", *QUICK, launcher=(mpiexec, "-n", "2"))
    assert "2 ranks on" in done.stdout and done.stdout.count("all_reduce") == 1


@pytest.mark.parametrize(("name", "start"), [("b.png", b"\x89PNG"), ("b.html", b"<!doctype html>")])
def test_plots(command: Any, tmp_path: Path, name: str, start: bytes) -> None:
    pytest.importorskip(
        "matplotlib" if name.endswith("png") else "plotly", reason="optional: no plot library"
    )
    command("bench", "-n", "2", "--sizes", "8,1K", "-a", "all", *QUICK, "--plot", name)
    assert (tmp_path / name).read_bytes().lower().startswith(start.lower())


def test_missing_plot_library_is_named(command: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'matplotlib' else find(name, *a)\n"
    )
    done = command("bench", "-n", "1", "--plot", "x.png", code=2, PYTHONPATH=f"{tmp_path}:{Path.cwd()}")
    assert "pip install 'pycollectives[plot]'" in done.stderr and len(done.stderr.splitlines()) == 1


def test_wrong_results_end_with_an_error(command: Any, tmp_path: Path) -> None:
    """The ranks expect something else than what a collective gives."""
    (tmp_path / "wrong.py").write_text(
        "import sys\nfrom pycollectives.bench import data\nfrom pycollectives.cli import main\n"
        "expected = data._expected\n"
        "def swapped(*args):\n"
        "    table = expected(*args).copy()\n"
        "    table[[3, 200]] = table[[200, 3]]\n"
        "    return table\n"
        "data._expected = swapped\nsys.exit(main())\n"
    )
    arguments = "bench", "--sizes", "1000", "--dtype", "int32", *QUICK, "--json", "b.json"
    done = command("run", "-n", "2", "wrong.py", *arguments, code=1)
    assert json.loads((tmp_path / "b.json").read_text())["rows"][0]["errors"] == 8  # 2 places, ranks, checks
    assert "8 elements are wrong" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-c", "all_reduc"], "did you mean 'all_reduce'?"),
        (["-a", "rng"], "did you mean 'ring'?"),
        (["-c", "all", "-a", "rng"], "no chosen collective has an algorithm 'rng'; did you mean 'ring'?"),
        (["--dtype", "float"], "unknown dtype 'float'; did you mean 'float64'?"),
        (["--op", "bor"], "bor is not defined for float32"),
        (["--sizes", "8:64M:4"], "expected start:end:x4 or start:end:+1M"),
        (["--sizes", "8:64:x1"], "never ends"),
        (["--sizes", "64:8:x2"], "begins above its end"),
        (["--sizes", "8Q"], "'8Q' is not a size"),
        (["--plot", "x.pdf"], "must end in .png or .html"),
        (["--json", "absent/x.json"], "there is no folder"),
    ],
)
def test_wrong_arguments_are_one_line(command: Any, arguments: list[str], text: str) -> None:
    done = command("bench", "-n", "2", *arguments, code=2)
    assert done.stdout == "" and text in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
