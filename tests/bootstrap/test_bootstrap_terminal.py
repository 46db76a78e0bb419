"""What ranks have of the launcher's session and of its terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.bootstrap.conftest import COUNT_INTERRUPTS, LAUNCH, Jobs

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

    def read(self, seconds: float) -> bool:
        """Is there more to come, or may be?"""
        if not select.select([self.keyboard], [], [], seconds)[0]:
            return True
        try:
            self.seen += os.read(self.keyboard, 4096).decode()
        except OSError:  # all who had the terminal have ended
            return False
        return True

    def end(self) -> int:
        """The exit code."""
        deadline = time.monotonic() + SECONDS
        while self.read(0.05):
            assert time.monotonic() < deadline, self.seen
        os.close(self.keyboard)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def wait_until_stopped(self) -> None:
        deadline = time.monotonic() + SECONDS
        while not (found := os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED))[0]:
            assert time.monotonic() < deadline, self.seen
            time.sleep(0.01)
        assert os.WIFSTOPPED(found[1])


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
    terminal = Terminal(jobs, 3, jobs.script(COUNT_INTERRUPTS))
    terminal.read_until("ready", 3)
    terminal.type("\x03")
    assert terminal.end() == 0
    assert terminal.seen.count("interrupts 1") == 3, terminal.seen


WAITS = """
import os, time
print("rank", os.getpid(), "waits", flush=True)
end = time.monotonic() + 60
while not os.path.exists("go") and time.monotonic() < end: time.sleep(0.02)
print("went", flush=True)
"""


def pids(terminal: Terminal) -> list[int]:
    return [int(line.split()[1]) for line in terminal.seen.splitlines() if line.startswith("rank")]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_ctrl_z_stops_the_ranks_and_they_go_on_with_the_launcher(
    jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(jobs.folder)
    terminal = Terminal(jobs, 2, jobs.script(WAITS))
    terminal.read_until("waits", 2)
    terminal.type("\x1a")
    terminal.wait_until_stopped()
    assert [state(pid) for pid in pids(terminal)] == ["T", "T"]
    (jobs.folder / "go").touch()
    os.kill(terminal.pid, signal.SIGCONT)
    assert terminal.end() == 0
    assert terminal.seen.count("went") == 2


def test_no_rank_is_left_when_the_terminal_is_closed(jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(jobs.folder)
    terminal = Terminal(jobs, 2, jobs.script(WAITS))
    terminal.read_until("waits", 2)
    os.close(terminal.keyboard)
    assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 128 + signal.SIGHUP
    jobs.wait_until_none_is_left(2)
