"""Become a rank: ``child.py LAUNCHER_PID COMMAND...`` binds its life to the launcher's, leaves its group, then execs.

Run as a file, outside the package: it must start fast, and the request survives the exec.
"""

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import termios

_PR_SET_PDEATHSIG = 1


def _leave() -> None:
    """A process group of its own, without the terminal, but in the launcher's session: kernels share the processor out among
    sessions first (sched_autogroup_enabled), and a rank that yields in one of its own would not give way to the others."""
    os.setpgid(0, 0)
    with contextlib.suppress(OSError):  # there may be no terminal
        fcntl.ioctl(0, termios.TIOCNOTTY)
    with contextlib.suppress(OSError):  # or none where the input comes from
        fcntl.ioctl(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC), termios.TIOCNOTTY)


def main() -> None:
    """Never returns."""
    launcher, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != launcher:  # it ended before the request was made
        os._exit(128 + signal.SIGKILL)
    _leave()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"pycollectives: cannot run {command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
