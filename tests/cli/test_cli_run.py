from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import pycollectives as pc

ECHO = """
import json, sys
import numpy as np
import pycollectives as pc
comm = pc.init()
total = int(comm.all_reduce(np.array(comm.rank + 1)))
print(json.dumps({"rank": comm.rank, "sum": total, "argv": sys.argv[1:]}))
"""


@pytest.fixture
def echo(tmp_path: Path) -> str:
    (tmp_path / "echo.py").write_text(ECHO)
    return "echo.py"


def reports(text: str) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda each: int(each["rank"]))


def test_script_gets_its_arguments_untouched(command: Any, echo: str) -> None:
    given = ["--help", "-n", "7", "-m", "--", "x y", "--prefix"]
    found = reports(command("run", "-n", "3", echo, *given).stdout)
    assert [each["rank"] for each in found] == [0, 1, 2]
    assert all(each["sum"] == 6 and each["argv"] == given for each in found)


def test_number_of_ranks_behind_the_script(command: Any, echo: str) -> None:
    done = command("run", echo, "-n", "3")
    assert f"`-n` behind {echo} is its own option" in done.stderr


def test_module_and_its_arguments(command: Any, echo: str) -> None:
    found = reports(command("run", "-n", "2", "-m", "echo", "-n", "5").stdout)
    assert [each["argv"] for each in found] == [["-n", "5"]] * 2


def test_prefix(command: Any) -> None:
    done = command("run", "-n", "2", "--prefix", sys.executable, "-c", "print('hello')")
    assert sorted(done.stdout.splitlines()) == ["[0] hello", "[1] hello"]


def test_exit_code_and_timeout(command: Any) -> None:
    command("run", "-n", "2", sys.executable, "-c", "raise SystemExit(7)", code=7)
    done = command(
        "run", "-n", "2", "--timeout", "0.5", sys.executable, "-c", "import time; time.sleep(60)", code=124
    )
    assert "did not end within 0.5 s" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["-n", "0", "x.py"], ["-n", "2"]])
def test_wrong_command_line(command: Any, arguments: list[str]) -> None:
    done = command("run", *arguments, code=2)
    assert "Traceback" not in done.stderr and "Error" in done.stderr


def test_missing_script_is_one_line(command: Any) -> None:
    done = command("run", "-n", "2", "absent.py", code=2)
    assert done.stderr == "pycollectives: there is no script 'absent.py'\n"


def test_help_and_version(command: Any) -> None:
    text = command("--help").stdout
    assert all(name in text for name in ("run", "bench", "trace", "doctor"))
    for name in ("run", "bench", "trace", "doctor"):
        shown = command(name, "--help").stdout
        assert "Example" in shown and f"pycollectives {name}" in shown
    assert command("--version").stdout == f"pycollectives {pc.__version__}\n"
