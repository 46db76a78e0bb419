"""One virtual environment per library, so that no two MPIs meet."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from .catalogue import Peer

LIMIT = 600.0  # seconds for one environment


class InstallError(Exception):
    """The text says what pip said."""


def install(peer: Peer, environments: Path) -> None:
    """Make the environment of `peer`, unless it is there. Raises InstallError."""
    if not peer.environment:
        return
    folder = environments / peer.environment
    stamp = folder / "installed"
    wanted = hashlib.sha256("\n".join((sys.version, *peer.packages)).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _run([*pip, *peer.packages])
    stamp.write_text(wanted)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{command[0]} took more than {LIMIT:g} s") from error
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-2:]
        raise InstallError(" | ".join(last) or f"exit code {done.returncode}")
