"""How much of the machine other programs use."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.peers.others import Others

SPIN = [sys.executable, "-c", "import time; end = time.monotonic() + 1.2\nwhile time.monotonic() < end: pass"]


def test_the_own_processes_do_not_count() -> None:
    with subprocess.Popen(SPIN) as own, subprocess.Popen(SPIN):
        time.sleep(0.2)
        neither, one = Others([]), Others([own.pid])
        begin = sum(os.times()[:2])
        while sum(os.times()[:2]) < begin + 0.2:  # this process does not count either
            pass
        time.sleep(0.2)
        together, without_own = neither.used(), one.used()
    assert without_own < together - 0.05
    assert together > 0.1
