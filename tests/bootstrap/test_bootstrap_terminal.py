"""What ranks have of the launcher's session and of its terminal."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from pathlib import Path
from typing import Any

from tests.bootstrap.conftest import LAUNCH, Jobs

SECONDS = 20.0


def test_ranks_share_the_session_of_the_launcher_and_have_groups_of_their_own(jobs: Any, done: Any) -> None:
    """Kernels share the processor out among sessions first: a rank alone in one would never give way to another."""
    script = jobs.script("import os; print(os.getsid(0), os.getpgrp() == os.getpid(), flush=True)")
    process = jobs.launch(3, script)
    session = os.getsid(process.pid)
    code, out, err = done(process)
    assert (code, out.splitlines()) == (0, [f"{session} True"] * 3), err


class Terminal:
    """A launcher in the foreground of a terminal of its own."""

    def __init__(self, jobs: Jobs, n: int, script: Path) -> None:
        self.pid, self.keyboard = pty.fork()
        if self.pid == 0:
            os.execve(
                sys.executable, [sys.executable, "-c", LAUNCH, str(n), "{}", str(script)], jobs.environment()
            )
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def read_until(self, what: str, times: int = 1) -> None:
        deadline = time.monotonic() + SECONDS
        while self.seen.count(what) < times:
            assert select.select([self.keyboard], [], [], max(0.0, deadline - time.monotonic()))[0], self.seen
            self.seen += os.read(self.keyboard, 4096).decode()

    def end(self) -> int:
        """The exit code."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.keyboard)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.keyboard], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.keyboard, 4096).decode()
                except OSError:
                    time.sleep(0.05)
        raise AssertionError(self.seen)


def test_rank_0_reads_what_is_typed_though_it_is_not_in_the_foreground(jobs: Any) -> None:
    script = jobs.script(
        """
        import os, time
        rank = os.environ["PYCOLLECTIVES_RANK"]
        try:
            os.close(os.open("/dev/tty", os.O_RDWR))
            print(rank, "has a terminal", flush=True)
        except OSError:
            print(rank, "has none", flush=True)
        if rank == "0":
            print("got", repr(input("name: ")), flush=True)
        """
    )
    terminal = Terminal(jobs, 2, script)
    terminal.read_until("name: ")
    terminal.type("rank\n")
    terminal.read_until("got 'rank'")
    assert terminal.end() == 0
    assert "0 has none" in terminal.seen and "1 has none" in terminal.seen


def test_ctrl_c_reaches_each_rank_once(jobs: Any) -> None:
    script = jobs.script(
        """
        import signal, time
        count = 0
        def on(*_):
            global count
            count += 1
        signal.signal(signal.SIGINT, on)
        print("ready", flush=True)
        end = time.monotonic() + 1
        while time.monotonic() < end: time.sleep(0.05)
        print("count", count, flush=True)
        """
    )
    terminal = Terminal(jobs, 3, script)
    terminal.read_until("ready", 3)
    terminal.type("\x03")
    assert terminal.end() == 0
    assert terminal.seen.count("count 1") == 3, terminal.seen
