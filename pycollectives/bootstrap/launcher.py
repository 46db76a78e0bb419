"""Start the ranks of a job on this host, pass on their output and signals, end them together."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from pycollectives.bootstrap import launched
from pycollectives.bootstrap.broker import Broker
from pycollectives.bootstrap.output import Relay, Sink
from pycollectives.errors import InvalidArgumentError

GRACE_SECONDS = 3.0
_PROMPT_SECONDS = 0.1
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGINT, *_ENDING, signal.SIGUSR1, signal.SIGUSR2)
_TIMED_OUT = 124


def launch(
    n: int,
    argv: Sequence[str],
    *,
    prefix: bool = False,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    module: bool = False,
    keep_going: bool = False,
) -> int:
    """Run ``argv`` as ``n`` ranks of one job and return the job's exit code.

    ``argv`` is a Python script with its arguments, a module with ``module``, or any executable command. Each
    rank is a session of its own and dies with the launcher; rank 0 has the launcher's standard input, the
    others none. ``prefix`` puts "[rank] " before each line of output. ``env`` replaces the environment that
    the ranks start from.

    The first rank that fails ends the job: the others get SIGTERM and, three seconds later, SIGKILL, and its
    exit code is returned (128 + the signal's number if it died of one). With ``keep_going`` the others run
    on, and the code is still that of the first to fail. After ``timeout`` seconds the job is ended with code
    124. From the main thread, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to every rank once.

    Raises InvalidArgumentError when there is nothing to run.
    """
    if n < 1:
        raise InvalidArgumentError(f"a job needs at least one rank, not {n}")
    command = _command(argv, module)
    job = _Job(n, prefix=prefix, timeout=timeout, keep_going=keep_going)
    try:
        return job.run(command, dict(os.environ if env is None else env))
    finally:
        job.close()


def _command(argv: Sequence[str], module: bool) -> list[str]:
    if not argv:
        raise InvalidArgumentError("there is no script to run")
    target = Path(argv[0])
    if module:
        return [sys.executable, "-m", *argv]
    if target.suffix in (".py", ".pyz", ".pyc") or (target / "__main__.py").is_file():
        if not target.exists():
            raise InvalidArgumentError(f"there is no script {argv[0]!r}")
        return [sys.executable, *argv]
    found = shutil.which(argv[0])
    if found is None and target.is_file():
        return [sys.executable, *argv]
    if found is None:
        raise InvalidArgumentError(f"{argv[0]!r} is neither a Python script nor a command")
    return [found, *argv[1:]]


class _Rank:
    def __init__(self, rank: int, process: subprocess.Popen[bytes], relays: list[Relay]) -> None:
        self.rank = rank
        self.process = process
        self.pidfd = os.pidfd_open(process.pid)
        self.relays = relays
        self.ended = False

    def signal(self, number: int) -> None:
        """Signal the rank and its own children. It is not yet reaped: its group cannot be another's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class _Job:
    def __init__(self, n: int, *, prefix: bool, timeout: float | None, keep_going: bool) -> None:
        self.n = n
        self.prefix = prefix
        self.keep_going = keep_going
        self.code: int | None = None
        self.ranks: list[_Rank] = []
        self.broker = Broker(n, keep=True)
        self.limit = None if timeout is None else time.monotonic() + timeout
        self.timeout = timeout
        self.kill_at: float | None = None
        self.interrupts = 0
        self.starting = True
        self.waiting: list[int] = []  # signals that came while ranks were being started
        self.selector = selectors.DefaultSelector()
        self.wake_out, self.wake_in = socket.socketpair()
        self.wake_in.setblocking(False)
        self.wake_out.setblocking(False)
        self.selector.register(self.wake_in, selectors.EVENT_READ, lambda: self.wake_in.recv(4096))
        self.sinks = Sink(sys.stdout), Sink(sys.stderr)
        self.handlers: dict[int, Any] = {}

    def run(self, command: list[str], env: dict[str, str]) -> int:
        """Start, supervise, return the exit code."""
        self._catch_signals()
        self.broker.start()
        for rank in range(self.n):
            self._start(rank, command, env)
        self.starting = False
        for number in self.waiting:
            self._forward(number)
        while not all(rank.ended for rank in self.ranks):
            timed = [each for each in (self.limit, self.kill_at) if each is not None]
            patience = max(0.0, min(timed) - time.monotonic()) if timed else None
            prompt = [
                relay for rank in self.ranks for relay in rank.relays if relay.eager and relay.unfinished
            ]
            if prompt:
                patience = min(_PROMPT_SECONDS, patience or _PROMPT_SECONDS)
            events = self.selector.select(patience)
            for key, _ in events:
                key.data()
            if not events:
                for relay in prompt:
                    relay.flush()
            self._check_clock()
        return self.code or 0

    def close(self) -> None:
        """Leave nothing behind, also after an exception."""
        failed = self.code is not None or not all(rank.ended for rank in self.ranks)
        for rank in self.ranks:
            if failed:
                rank.signal(signal.SIGKILL)  # what a failed job's ranks have left behind, too
            rank.process.wait()
            os.close(rank.pidfd)
            for relay in rank.relays:
                relay.drain()
                relay.close()
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.selector.close()
        self.wake_in.close()
        self.wake_out.close()
        self.broker.close()

    def _start(self, rank: int, command: list[str], env: dict[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            env = env | {
                launched.RANK: str(rank),
                launched.SIZE: str(self.n),
                launched.FD: str(theirs.fileno()),
                launched.INODE: str(os.fstat(theirs.fileno()).st_ino),
                "PYCOLLECTIVES_LOCAL_RANK": str(rank),
                "PYCOLLECTIVES_LOCAL_SIZE": str(self.n),
            }
            env.setdefault("PYTHONUNBUFFERED", "1")
            isolated = ["-S", "-s"] if "PYTHONHOME" in env else ["-I", "-S"]
            become = [sys.executable, *isolated, str(Path(__file__).with_name("child.py")), str(os.getpid())]
            process = subprocess.Popen(
                [*become, *command],
                stdin=None if rank == 0 and _stdin_is_ours() else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                bufsize=0,
            )
        assert process.stdout is not None and process.stderr is not None
        tag = b"[%d] " % rank if self.prefix else b""
        eager = rank == 0 and _interactive()
        relays = []
        for stream, sink in zip((process.stdout, process.stderr), self.sinks, strict=True):
            relay = Relay(os.dup(stream.fileno()), sink, tag, eager=eager)
            stream.close()
            relays.append(relay)
            self.selector.register(relay.fd, selectors.EVENT_READ, self._pump(relay))
        started = _Rank(rank, process, relays)
        self.ranks.append(started)
        self.selector.register(started.pidfd, selectors.EVENT_READ, lambda: self._ended(started))
        self.broker.attach(rank, ours, process.pid)

    def _pump(self, relay: Relay) -> Callable[[], None]:
        def pump() -> None:
            if not relay.pump():
                self.selector.unregister(relay.fd)
                os.close(relay.fd)
                # The closed pipe tells the rank that nobody reads; the relay keeps something to close.
                relay.fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

        return pump

    def _ended(self, rank: _Rank) -> None:
        self.selector.unregister(rank.pidfd)
        rank.ended = True
        for relay in rank.relays:
            relay.drain()
        status = os.waitid(os.P_PID, rank.process.pid, os.WEXITED | os.WNOWAIT)
        assert status is not None
        if status.si_code == os.CLD_EXITED:
            code, how = status.si_status, f"exited with code {status.si_status}"
        else:
            code, how = 128 + status.si_status, f"died of {_signal_name(status.si_status)}"
        self.broker.leave(rank.rank, how)
        if code == 0 or self.code is not None:
            return
        self.code = code
        others = [each for each in self.ranks if not each.ended]
        self._say(f"rank {rank.rank} {how}" + ("; ending the job" if others and not self.keep_going else ""))
        if not self.keep_going:
            self._end(others)

    def _end(self, ranks: Iterable[_Rank]) -> None:
        """Ask ranks to end, and see to it."""
        if self.kill_at is None:
            self.kill_at = time.monotonic() + GRACE_SECONDS
        for rank in ranks:
            rank.signal(signal.SIGTERM)
            rank.signal(signal.SIGCONT)

    def _check_clock(self) -> None:
        now = time.monotonic()
        alive = [rank for rank in self.ranks if not rank.ended]
        if self.limit is not None and now >= self.limit and alive:
            self.limit = None
            self.code = self.code or _TIMED_OUT
            self._say(f"the job did not end within {self.timeout:g} s; ending it")
            self._end(alive)
        if self.kill_at is not None and now >= self.kill_at and alive:
            self.kill_at = None
            names = ", ".join(str(rank.rank) for rank in alive)
            self._say(f"rank {names} did not end within {GRACE_SECONDS:g} s; killed")
            for rank in alive:
                rank.signal(signal.SIGKILL)

    def _say(self, text: str) -> None:
        self.sinks[1].write(f"pycollectives: {text}\n".encode(), self)

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup
                self.handlers[number] = signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGTSTP) != signal.SIG_IGN:
            self.handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._on_stop)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.starting:
            self.waiting.append(number)
        else:
            self._forward(number)
        with contextlib.suppress(OSError):
            self.wake_out.send(b"!")

    def _forward(self, number: int) -> None:
        """Ranks are in sessions of their own: a terminal's Ctrl-C reaches them only through this."""
        self.interrupts += number == signal.SIGINT
        for rank in self.ranks:
            if not rank.ended:
                rank.signal(number)
                rank.signal(signal.SIGCONT)
        if (number in _ENDING or self.interrupts > 1) and self.kill_at is None:
            self.kill_at = time.monotonic() + GRACE_SECONDS

    def _on_stop(self, _: int, __: FrameType | None) -> None:
        """Ctrl-Z: the whole job stops, and goes on with the launcher."""
        for rank in self.ranks:
            rank.signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for rank in self.ranks:
            rank.signal(signal.SIGCONT)


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _stdin_is_ours() -> bool:
    """A launcher in the background must not let a rank take what is typed for the shell."""
    try:
        return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _interactive() -> bool:
    return all(os.isatty(fd) for fd in (0, 1))
