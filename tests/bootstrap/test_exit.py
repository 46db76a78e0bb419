"""The end of a process in which threads are still in calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import threading, time
import numpy as np
import pycollectives as pc

def fn(comm):
    if comm.rank:
        ready.set()
        time.sleep(60)
    {call}

ready = threading.Event()
threading.Thread(target=lambda: pc.run_threads(2, fn), daemon=True).start()
ready.wait()
time.sleep({pause})
print("done", flush=True)
"""
CALLS = {
    "collective": "comm.all_reduce(np.ones(4))",
    "ends as the process does": "comm.all_reduce(np.ones(4), timeout={pause})",
    "asynchronous": "comm.all_reduce(np.ones(4), async_op=True).wait()",
    "plan": "comm.plan('all_reduce', np.ones(4))()",
    "receive": "comm.recv(np.ones(4), source=1)",
    "symmetric": "comm.empty(4)",
    "split": "comm.split(0)",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("pause", [0.05, 0.1])
def test_a_thread_in_a_call_when_the_process_ends(call: str, pause: float, tmp_path: Path) -> None:
    """CPython ends such threads by pthread_exit, which std::terminate answered (csrc/bindings/gil.hpp)."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(call=CALLS[call].format(pause=pause), pause=pause))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
