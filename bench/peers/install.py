"""One virtual environment per library, so that no two MPIs meet."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .catalogue import Peer

LIMIT = 600.0  # seconds for one command


class InstallError(Exception):
    """The text says what pip said."""


def install(peer: Peer, environments: Path) -> None:
    """Make the environment of `peer`, unless it is there. Raises InstallError."""
    if peer.environment is None:
        return
    folder = environments / peer.environment.name
    stamp = folder / "installed"
    wanted = hashlib.sha256(repr((sys.version, peer.environment)).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    variables, python = peer.environ(environments), str(peer.python(environments))
    _run([sys.executable, "-m", "venv", str(folder)], variables)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    for packages in peer.environment.packages:
        _run([*pip, *packages], variables)
    if peer.environment.build:
        _run([python, "-m", f"bench.peers.ranks.{peer.environment.build}"], variables)
    stamp.write_text(wanted)


def _run(command: Sequence[str], variables: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{' '.join(command)} took more than {LIMIT:g} s") from error
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-2:]
        raise InstallError(" | ".join(last) or f"exit code {done.returncode}")
