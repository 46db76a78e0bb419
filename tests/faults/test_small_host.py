"""A host with next to no room in the file system for shared memory, or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import FOREIGN, ROOT

SCRIPT = """
import os, numpy as np, pycollectives as pc
comm = pc.init()
room = os.statvfs("/dev/shm")
x = np.arange(3_000_000) + comm.rank  # 24 MB
assert (comm.all_reduce(x) == 2 * np.arange(3_000_000) + 1).all()
y = comm.empty(3_000_000, "int64")
y[:] = x
assert (comm.all_reduce(y, out=y) == 2 * np.arange(3_000_000) + 1).all()
print("WORKS", room.f_blocks * room.f_frsize, flush=True)
"""


def in_a_mount_namespace(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, "sh", *arguments],
        env=env | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("options", ["size=1m", "size=4k,ro"])
def test_no_room_in_dev_shm(tmp_path: Path, options: str) -> None:
    """Not needed: memory is shared without a name."""
    mount = f"mount -t tmpfs -o {options} none /dev/shm"
    if in_a_mount_namespace(mount).returncode != 0:
        pytest.skip("optional: file systems cannot be mounted here")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = in_a_mount_namespace(
        f'{mount} && exec "$@"', sys.executable, "-m", "pycollectives", "run", "-n", "2", str(script)
    )
    assert done.returncode == 0, done.stderr
    size = 4096 if "4k" in options else 1 << 20
    assert done.stdout.split() == ["WORKS", str(size)] * 2, done.stdout
