"""A forked child cannot use the rendezvous it inherited, and does not disturb its parent's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pycollectives.bootstrap import SingleRendezvous, hosted
from pycollectives.bootstrap.threads import ThreadGroup
from pycollectives.errors import BootstrapError

SECRET = b"s" * 32


def in_child(body: Callable[[], bool]) -> bool:
    """Whether ``body`` is true in a forked child."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if body() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def refuses(rendezvous: Any) -> bool:
    try:
        rendezvous.exchange("k", 0, 1, b"", [], 1)
    except BootstrapError as error:
        rendezvous.close()
        return "created in another process" in str(error)
    return False


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_the_child_holds_no_socket_and_the_parent_goes_on(world: Any) -> None:
    sockets = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)}
    _, ranks = world(2, keep=True)
    name = hosted.random_name()
    first = hosted.host(name, SECRET, 2, "mpi")
    second = hosted.join(name, SECRET, 1, 2, "mpi", 5)
    both = [(ranks[0], ranks[1]), (first, second)]

    def meet() -> None:
        for pair in both:
            other = threading.Thread(target=pair[1].exchange, args=("keep/k", 1, 2, b"", [0], 5))
            other.start()
            assert len(pair[0].exchange("keep/k", 0, 2, b"", [0], 5)) == 2
            other.join()

    meet()

    def holds_none() -> bool:
        now = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)}
        kinds = ("socket:", "anon_inode:[pidfd]", "anon_inode:[eventpoll]")
        return not any(link.startswith(kinds) for link in now - sockets)

    assert in_child(holds_none)
    for pair in both:
        for rendezvous in pair:
            assert in_child(lambda r=rendezvous: refuses(r))
    meet()
    second.close()
    first.abandon()


def _is_open(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


def test_other_kinds() -> None:
    for rendezvous in (SingleRendezvous(), ThreadGroup(1).rendezvous(0)):
        assert in_child(lambda r=rendezvous: refuses(r))
        assert rendezvous.exchange("k", 0, 1, b"p", [], 1) == [(b"p", [])]


def test_sys_exit_of_a_multiprocessing_child(jobs: Any, done: Any) -> None:
    script = jobs.script(
        """
        import multiprocessing, sys
        from pycollectives.bootstrap import discover
        from pycollectives.errors import BootstrapError
        r = discover()
        def child():
            for use in (lambda: r.exchange("k", r.rank, 2, b"", [], 1), discover):
                try: use()
                except BootstrapError: continue
                sys.exit(1)
            sys.exit(3)
        r.exchange("a", r.rank, 2, b"", [], 10)
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        r.exchange("b", r.rank, 2, b"", [], 10)
        print(process.exitcode)
        sys.exit(process.exitcode)
        """
    )
    code, out, _ = done(jobs.launch(2, script, options='{"keep_going": true}'))
    assert (code, out) == (3, "3\n3\n")
