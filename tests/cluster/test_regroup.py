"""`comm.shrink()` across hosts: what is left of a job goes on, whoever is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest
from conftest import JOB, job
from hosts import Job, Library

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def begin(hosts: Any, mpi: Library, ranks_of: list[int], function: str, **arguments: Any) -> Job:
    running: Job = hosts(len(ranks_of)).start(
        *(mpi, ranks_of, mpi.python, JOB, function, json.dumps(arguments)),
        survive=True,
        env={"PYCOLLECTIVES_LIFELINE_SECONDS": "4"},
    )
    return running


def end(hosts: Any, running: Job, left: list[int]) -> list[dict[str, Any]]:
    """What the ranks that are left say after each loss; all of them come to the end."""

    def ended(told: list[dict[str, Any]]) -> bool:
        return [line["rank"] for line in told if "ended" in line] == left

    running.wait_until(ended, 40)
    told = running.said()
    done = hosts.now.finish(running, 0.5)
    assert ended(told), f"{told}\n{done.out}\n{done.err}"
    return [line for line in told if "left" in line]


@pytest.mark.parametrize(
    ("ranks_of", "victims", "late"),
    [
        ([2, 2], [3], []),
        ([2, 2], [0], []),
        ([2, 2], [2, 3], []),  # all of a host: those that are left share memory
        ([2, 1, 1], [0, 1], []),  # all of the host that served the exchanges
        ([1, 1, 1, 1], [1], [0]),  # one of them while the others shrink
    ],
    ids=str,
)
def test_ranks_that_are_killed(
    hosts: Any, mpi: Library, ranks_of: list[int], victims: list[int], late: list[int]
) -> None:
    running = begin(hosts, mpi, ranks_of, "regroup", victims=[victims], late=late)
    left = [rank for rank in range(sum(ranks_of)) if rank not in (*victims, *late)]
    for line in end(hosts, running, left):
        assert line["error"] in ("PeerError", "TransportError") and line["left"] == len(left), line
        assert line["seconds"] < 8 and line["took"] < 8, line


def test_one_that_is_killed_before_they_meet_again(hosts: Any, mpi: Library) -> None:
    """They have agreed that it is there, notice by its lifeline, and try again; the first attempt leaves nothing behind."""
    running = begin(hosts, mpi, [1, 1, 1, 1], "regroup", victims=[[1]], later=[3])
    for line in end(hosts, running, [0, 2]):
        assert line["left"] == 2 and line["took"] < 8, line


def test_one_after_the_other(hosts: Any, mpi: Library) -> None:
    """Until one is left."""
    running = begin(hosts, mpi, [2, 2], "regroup", victims=[[0], [3], [1]])
    assert sorted(line["left"] for line in end(hosts, running, [2]) if line["rank"] == 2) == [1, 2, 3]


def test_a_host_whose_cable_is_cut(hosts: Any, mpi: Library) -> None:
    """Nobody can tell it from one that is dead; its own ranks go on alone, and can see that they are few."""
    running = begin(hosts, mpi, [1, 1, 2], "divided")
    try:
        running.wait_until(lambda told: len(told) == 4, 30)
        time.sleep(0.3)
        hosts.now.cut(2)
        running.wait_until(lambda told: len(told) == 8, 40)
        done = hosts.now.finish(running, 0.5)
        told = {line["rank"]: line["left"] for line in running.said() if "left" in line}
    finally:
        hosts.close()  # the next test gets hosts that know nothing of this
    assert told == {0: 2, 1: 2, 2: 2, 3: 2}, f"{running.said()}\n{done.out}\n{done.err}"


def test_all_that_runs_on_a_host_is_killed(hosts: Any, mpi: Library) -> None:
    """Also what mpiexec has there, which may make it end; its ranks go on."""
    running = begin(hosts, mpi, [2, 1, 1], "divided")
    running.wait_until(lambda told: len(told) == 4, 30)
    assert len(running.said()) == 4, running.err.read_text()
    time.sleep(0.3)
    hosts.now.kill(2)
    until = time.monotonic() + 20
    while time.monotonic() < until and len(alive := hosts.now.processes()) > 0:
        if sum("left" in line for line in running.said()) == 3:
            break
        time.sleep(0.1)
    done = hosts.now.finish(running, 0.5)
    told = {line["rank"]: line["left"] for line in running.said() if "left" in line}
    if mpi.name == "openmpi" and not told:  # it ends the job when it misses one of its daemons, mostly
        words = "lost communication", "A daemon failed"
        assert not alive and any(each in done.out + done.err for each in words), f"{alive} {done}"
        return
    assert told == {0: 3, 1: 3, 2: 3}, f"{alive} {running.said()}\n{done.out}\n{done.err}"


def test_a_rank_that_shrinks_while_others_wait(hosts: Any, mpi: Library) -> None:
    for line in job(hosts(2), mpi, [2, 1], "shrink_while_others_wait")[:2]:
        assert line["error"] == "PeerError" and line["peer"] == 2 and line["seconds"] < 3, line
        assert "rank 2 shrinks the communicator" in line["text"] or "as rank" in line["text"], line


def test_a_rank_that_comes_late_is_told_so(hosts: Any, mpi: Library) -> None:
    running = begin(hosts, mpi, [1, 2], "come_late", victim=1)
    running.wait_until(lambda told: sum("error" in line for line in told) == 2, 30)
    told = running.said()
    victim = next((line["pid"] for line in told if "pid" in line), 0)
    assert victim, told
    os.kill(victim, signal.SIGCONT)
    running.wait_until(lambda told: sum("error" in line for line in told) == 3, 10)
    done = hosts.now.finish(running, 0.5)
    told = [line for line in running.said() if "error" in line]
    assert [line["error"] for line in told] == ["", "PeerError", ""], f"{told}\n{done.out}\n{done.err}"
    assert "without this one" in told[1]["text"] and told[1]["seconds"] < 1, told
    assert told[0]["first"] == "CollectiveTimeoutError"
