"""`launch`: exit codes, output, signals, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pycollectives.bootstrap.launcher import launch
from pycollectives.errors import InvalidArgumentError
from tests.bootstrap.conftest import COUNT_INTERRUPTS

Done = Callable[..., tuple[int, str, str]]

MEET = """
import os, signal, sys, time
from pycollectives.bootstrap import discover
from pycollectives.errors import BootstrapError
r = discover()
def meet(key="meet", timeout=20):
    return r.exchange(key, r.rank, r.size, b"%d" % r.rank, [], timeout)
meet("start")
"""


def wait_for_line(process: subprocess.Popen[str], count: int = 1) -> None:
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline()


def test_ranks_meet_and_pass_descriptors(jobs: Any, done: Done) -> None:
    script = jobs.script(
        MEET
        + """
fd = os.memfd_create("x")
os.write(fd, b"from %d" % r.rank)
got = r.exchange("k", r.rank, r.size, b"", [fd], 20)
print(r.rank, r.size, r.kind, sys.argv[1:], [os.pread(fds[0], 99, 0).decode() for _, fds in got])
"""
    )
    code, out, err = done(jobs.launch(3, script, "a", "--b c"))
    assert (code, err) == (0, "")
    words = "['from 0', 'from 1', 'from 2']"
    assert sorted(out.splitlines()) == [f"{i} 3 launcher ['a', '--b c'] {words}" for i in range(3)]
    jobs.wait_until_none_is_left(0)


def test_no_port_no_file_no_shared_memory_name(jobs: Any, done: Done) -> None:
    script = jobs.script(
        MEET
        + """
links = []
for fd in os.listdir("/proc/self/fd"):
    try: links.append(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError: pass
files = [link for link in links if link.startswith("/") and link != "/dev/null"]
network = open("/proc/net/tcp").read() + open("/proc/net/udp").read()
sockets = [link[8:-1] for link in links if link.startswith("socket:")]
print(len(sockets), any(inode in network.split() for inode in sockets), files, os.listdir("."))
meet()
"""
    )
    code, out, _ = done(jobs.launch(2, script))
    assert code == 0 and out.splitlines() == [f"1 False [] ['{script.name}']"] * 2


def test_ranks_may_open_several_rendezvous_and_meet_again_after_close(jobs: Any, done: Done) -> None:
    """One rank opens anew while another has not yet closed, and the other way round."""
    script = jobs.script(
        MEET
        + """
for number in range(30):
    other = discover()
    assert other.exchange("start", other.rank, other.size, b"", [], 20)
    other.close()
    time.sleep(0.002 * ((r.rank + number) % 2))
    r.close()
    r = discover()
    assert len(meet()) == r.size
print(len(os.listdir("/proc/self/fd")) < 12)
"""
    )
    assert done(jobs.launch(3, script)) == (0, "True\n" * 3, "")


@pytest.mark.parametrize("how", ["module", "command", "directory"])
def test_what_can_be_run(jobs: Any, done: Done, how: str) -> None:
    body = "import os, sys; print(os.environ['PYCOLLECTIVES_RANK'], sys.argv[1])"
    if how == "module":
        jobs.script(body, "some_module.py")
        process = jobs.launch(2, "some_module", "x", options='{"module": true}')
    elif how == "directory":
        (jobs.folder / "app").mkdir()
        jobs.script(body, "app/__main__.py")
        process = jobs.launch(2, jobs.folder / "app", "x")
    else:
        process = jobs.launch(2, "sh", "-c", 'echo "$PYCOLLECTIVES_RANK x"')
    code, out, err = done(process)
    assert (code, sorted(out.splitlines()), err) == (0, ["0 x", "1 x"], "")


def test_a_rank_behind_a_wrapper(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "print(len(meet()))")
    code, out, _ = done(jobs.launch(2, "sh", "-c", f"{sys.executable} {script}; exit $?"))
    assert (code, out) == (0, "2\n2\n")


def test_nothing_to_run() -> None:
    for argv in ([], ["/no/such/script.py"], ["no-such-command-at-all"]):
        with pytest.raises(InvalidArgumentError):
            launch(2, argv)
    with pytest.raises(InvalidArgumentError):
        launch(0, ["true"])


def test_a_file_that_cannot_be_executed(jobs: Any, done: Done) -> None:
    broken = jobs.script("not an executable format", "broken")
    broken.chmod(0o755)
    code, _, err = done(jobs.launch(1, broken))
    assert code == 126 and "cannot run" in err


def test_exit_code_of_the_first_that_fails(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "if r.rank == 1: sys.exit(3)\ntime.sleep(60)")
    start = time.monotonic()
    code, _, err = done(jobs.launch(3, script), 30)
    assert code == 3 and time.monotonic() - start < 5
    assert "rank 1 exited with code 3" in err
    jobs.wait_until_none_is_left(0)


def test_exception_before_an_exchange_ends_the_job_with_its_traceback(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "if r.rank == 1: raise ValueError('the reason')\nmeet(timeout=60)")
    code, _, err = done(jobs.launch(2, script), 30)
    assert code == 1
    assert "Traceback" in err and "ValueError: the reason" in err and "rank 1 exited with code 1" in err
    jobs.wait_until_none_is_left(0)


def test_a_killed_rank(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "if r.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nmeet(timeout=60)")
    code, _, err = done(jobs.launch(4, script), 30)
    assert code == 128 + 9 and "rank 1 died of SIGKILL (signal 9)" in err
    jobs.wait_until_none_is_left(0)


def test_keep_going_lets_the_others_see_who_went(jobs: Any, done: Done) -> None:
    script = jobs.script(
        MEET
        + """
if r.rank == 1: os.kill(os.getpid(), signal.SIGKILL)
try: meet(timeout=60)
except BootstrapError as error: print(error)
index = [0, None, 1][r.rank]
print(r.exchange("survivors", index, 2, b"%d" % r.rank, [], 10))
"""
    )
    code, out, _ = done(jobs.launch(3, script, options='{"keep_going": true}'), 30)
    lines = out.splitlines()
    assert code == 137 and len(lines) == 4
    assert sum(("rank 1" in line and "has ended" in line) or "died of SIGKILL" in line for line in lines) == 2
    assert lines.count("[(b'0', []), (b'2', [])]") == 2


def test_ranks_that_ignore_sigterm_are_killed(jobs: Any, done: Done) -> None:
    script = jobs.script(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + MEET
        + "if r.rank == 0: sys.exit(7)\nwhile True: time.sleep(1)"
    )
    start = time.monotonic()
    code, _, err = done(jobs.launch(3, script), 30)
    assert code == 7 and 2.9 < time.monotonic() - start < 25
    assert "rank 1, 2 did not end" in err
    jobs.wait_until_none_is_left(0)


def test_timeout(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "meet('never' + str(r.rank), 60)")
    code, _, err = done(jobs.launch(2, script, options='{"timeout": 1.0}'), 30)
    assert code == 124 and "within 1 s" in err
    jobs.wait_until_none_is_left(0)


def test_whole_lines_with_prefix(jobs: Any, done: Done) -> None:
    script = jobs.script(
        MEET
        + """
for number in range(200):
    for piece in (f"{r.rank}", " ", f"{number}", "\\n"):
        os.write(1, piece.encode())
os.write(2, b"to stderr\\nunfinished")
"""
    )
    code, out, err = done(jobs.launch(3, script, options='{"prefix": true}'))
    assert code == 0
    for rank in range(3):
        mine = [line for line in out.splitlines() if line.startswith(f"[{rank}] ")]
        assert mine == [f"[{rank}] {rank} {number}" for number in range(200)]
    assert len(out.splitlines()) == 600
    assert sorted(err.splitlines()) == sorted(
        f"[{i}] {text}" for i in range(3) for text in ("to stderr", "unfinished")
    )


def test_standard_input_goes_to_rank_0(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "print(r.rank, repr(sys.stdin.read()))\nmeet()")
    _, out, _ = done(jobs.launch(3, script), stdin="typed\n")
    assert sorted(out.splitlines()) == ["0 'typed\\n'", "1 ''", "2 ''"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_launcher_reaches_blocked_ranks(
    jobs: Any, done: Done, number: signal.Signals
) -> None:
    script = jobs.script(MEET + "print('ready')\nmeet('never' + str(r.rank), 60)")
    process = jobs.launch(2, script)
    wait_for_line(process, 2)
    start = time.monotonic()
    process.send_signal(number)
    code, _, err = done(process, 5)
    assert code == 128 + number and time.monotonic() - start < 2
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)
    jobs.wait_until_none_is_left(0)


def test_a_rank_gets_each_signal_once(jobs: Any, done: Done) -> None:
    """Also when the terminal's whole foreground group gets it, as with Ctrl-C."""
    process = jobs.launch(3, jobs.script(COUNT_INTERRUPTS))
    wait_for_line(process, 3)
    os.killpg(process.pid, signal.SIGINT)
    assert done(process)[:2] == (0, "interrupts 1\n" * 3)


def test_the_job_dies_with_its_launcher(jobs: Any) -> None:
    script = jobs.script(MEET + "print('ready')\ntime.sleep(60)")
    process = jobs.launch(3, script)
    wait_for_line(process, 3)
    process.kill()
    jobs.wait_until_none_is_left(2)


def test_a_forked_child_does_not_keep_the_job(jobs: Any, done: Done) -> None:
    """It holds the rank's socket and its output; the rank is dead all the same."""
    script = jobs.script(
        MEET
        + """
if r.rank == 1:
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
    os._exit(5)
meet(timeout=60)
"""
    )
    start = time.monotonic()
    code, _, _ = done(jobs.launch(2, script), 30)
    assert code == 5 and time.monotonic() - start < 5
    jobs.wait_until_none_is_left(0)


def test_a_background_process_of_a_finished_rank_does_not_keep_the_launcher(jobs: Any, done: Done) -> None:
    script = jobs.script(MEET + "if os.fork() == 0: time.sleep(30); os._exit(0)\nprint('bye')")
    start = time.monotonic()
    assert done(jobs.launch(2, script), 10)[:2] == (0, "bye\nbye\n")
    assert time.monotonic() - start < 5


def test_a_subprocess_of_a_rank_is_not_the_rank(jobs: Any, done: Done) -> None:
    other = jobs.script("from pycollectives.bootstrap import discover; discover()", "other.py")
    script = jobs.script(
        MEET + f"import subprocess\nsubprocess.run([sys.executable, {str(other)!r}])\nmeet()"
    )
    code, _, err = done(jobs.launch(2, script))
    assert code == 0 and err.count("BootstrapError: the launcher's variables say rank") == 2


def test_two_processes_on_one_rank_are_found_out(jobs: Any, done: Done) -> None:
    """Forked before the rank has met anyone, both hold the socket."""
    script = jobs.script(
        """
import os, time
from pycollectives.bootstrap import discover
if os.environ["PYCOLLECTIVES_RANK"] == "1":
    here, there = os.pipe()
    if os.fork() == 0:
        discover()
        os.write(there, b"!")
        time.sleep(30)
    os.read(here, 1)
r = discover()
r.exchange("k", r.rank, 2, b"", [], 20)
"""
    )
    code, _, err = done(jobs.launch(2, script), 10)
    assert code == 1 and ("in two processes" in err or "closed the connection" in err)
    jobs.wait_until_none_is_left(0)


def test_two_jobs_in_equal_environments(jobs: Any, done: Done) -> None:
    script = jobs.script(
        MEET
        + "time.sleep(0.3)\nprint([p for p, _ in r.exchange('k', r.rank, 2, sys.argv[1].encode(), [], 10)])"
    )
    first, second = jobs.launch(2, script, "first"), jobs.launch(2, script, "second")
    assert done(first)[:2] == (0, "[b'first', b'first']\n" * 2)
    assert done(second)[:2] == (0, "[b'second', b'second']\n" * 2)


def test_a_late_rank(jobs: Any, done: Done) -> None:
    late = "import os, time\nif os.environ['PYCOLLECTIVES_RANK'] == '1': time.sleep(2)\n"
    assert done(jobs.launch(2, jobs.script(late + MEET)))[0] == 0


def test_output_that_nobody_reads(jobs: Any) -> None:
    """As in `... | head -1`: the ranks get the broken pipe, the launcher ends."""
    script = jobs.script(MEET + "for _ in range(10**6): print('y' * 1000)")
    process = jobs.launch(2, script)
    wait_for_line(process)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(10) != 0
    jobs.wait_until_none_is_left(0)
    process.stdout = None


def test_many_ranks(jobs: Any, done: Done) -> None:
    code, out, _ = done(jobs.launch(16, jobs.script(MEET + "print(len(meet()))")), 30)
    assert (code, out) == (0, "16\n" * 16)


def test_output_is_not_held_back(jobs: Any, done: Done) -> None:
    script = jobs.script("import time; print('now'); time.sleep(60)")
    process = jobs.launch(1, script)
    start = time.monotonic()
    wait_for_line(process)
    assert time.monotonic() - start < 5
    process.terminate()
    assert done(process, 5)[0] == 143


def test_ranks_keep_the_affinity_and_see_local_numbers(jobs: Any, done: Done) -> None:
    script = jobs.script(
        "import os; e = os.environ\n"
        "print(sorted(os.sched_getaffinity(0)), e['PYCOLLECTIVES_LOCAL_RANK'], e['PYCOLLECTIVES_LOCAL_SIZE'])"
    )
    _, out, _ = done(jobs.launch(2, script))
    cores = sorted(os.sched_getaffinity(0))
    assert sorted(out.splitlines()) == [f"{cores} 0 2", f"{cores} 1 2"]


def test_in_process_launch_restores_the_handlers(jobs: Any, capfd: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP)]
    fds = len(list(Path("/proc/self/fd").iterdir()))
    script = jobs.script(MEET + "print('in', r.rank)", "here.py")
    assert launch(2, [str(script)], env=jobs.environment(), prefix=True) == 0
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP)] == before
    assert len(list(Path("/proc/self/fd").iterdir())) == fds
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] in 0", "[1] in 1"]


def test_ranks_that_are_bound_count_the_cores_of_all(jobs: Any, done: Done) -> None:
    """Open MPI and Intel MPI bind each rank to a core of its own: together they do not share one."""
    allowed = sorted(os.sched_getaffinity(0))
    script = jobs.script(
        f"""
import os
import pycollectives as pc
allowed, rank = {allowed}, int(os.environ["PYCOLLECTIVES_RANK"])
os.sched_setaffinity(0, {{allowed[rank % len(allowed)]}})
with pc.init() as comm:
    part = comm.split(0)
    print(comm.settings.tuning.machine.cores, part.settings.tuning.machine.cores)
"""
    )
    code, out, err = done(jobs.launch(2, script))
    together = min(2, len(allowed))
    assert (code, err) == (0, "") and out.splitlines() == [f"{together} {together}"] * 2
