"""A pytest plugin for minutes with a GPU: each result is written as it comes, and a test that hangs costs its own time only.

GPU_CHECK_RESULTS   the file: JSON lines, {"begin": test}, {"end": test, "result": ..., "seconds": ..., "text": ...}
GPU_CHECK_LIMIT     seconds of one test

Tests that are in the file already are not run again: what is left after a hang, or after a failure, has a process of its own, where
no kernel spins and no context is broken.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

UNENDED = "it did not end, or ended the process"
STACKS = os.dup(2)  # before pytest captures it: where the stacks go of what has to be ended


def lines(file: Path) -> list[dict[str, Any]]:
    """Of a file of JSON lines; a last line that was cut off is none."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def append(file: Path, **line: Any) -> None:
    """It is there when this returns, whatever comes then."""
    with file.open("a") as open_file:
        open_file.write(json.dumps(line) + "\n")


class Limits:
    """Of the tests of one process."""

    def __init__(self, file: Path, seconds: float) -> None:
        self.file, self.seconds = file, seconds
        self.result, self.text = "passed", ""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        known = {line.get("begin") or line.get("end") for line in lines(self.file)}
        gone = [item for item in items if item.nodeid in known]
        items[:] = sorted((item for item in items if item.nodeid not in known), key=ranks)
        if gone:
            config.hook.pytest_deselected(items=gone)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        append(self.file, begin=item.nodeid)
        self.result, self.text = "passed", ""
        begin = time.monotonic()
        faulthandler.dump_traceback_later(self.seconds, exit=True, file=STACKS)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
            seconds = round(time.monotonic() - begin, 2)
            append(self.file, end=item.nodeid, result=self.result, seconds=seconds, text=self.text)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "passed" or self.result == "failed":
            return
        self.result, self.text = report.outcome, reason(report)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if self.result == "failed":  # its threads may wait for kernels for ever
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


def ranks(item: pytest.Item) -> int:
    """Tests on few ranks first: they say most in the least time."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    size = parameters.get("size", 0)
    return size if isinstance(size, int) else 0


def reason(report: pytest.TestReport) -> str:
    """What went wrong, in a line, or why a test was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    errors = [line[1:].strip() for line in str(report.longrepr).splitlines() if line.startswith("E ")]
    return " ".join(errors)[:600] if errors else " ".join(str(report.longrepr).split())[-600:]


def pytest_configure(config: pytest.Config) -> None:
    if file := os.environ.get("GPU_CHECK_RESULTS"):
        config.pluginmanager.register(Limits(Path(file), float(os.environ.get("GPU_CHECK_LIMIT", "40"))))


def results(file: Path) -> Iterator[dict[str, Any]]:
    """Each test that was begun: `test`, `result`, `seconds`, `text`."""
    begun: list[str] = []
    ended: dict[str, dict[str, Any]] = {}
    for line in lines(file):
        if "begin" in line:
            begun.append(line["begin"])
        else:
            ended[line["end"]] = line
    for test in begun:
        line = ended.get(test, {"result": "failed", "seconds": 0.0, "text": UNENDED})
        yield {"test": test, **{name: line[name] for name in ("result", "seconds", "text")}}
