"""Ranks that die, leave, stop or cannot be reached: an error in bounded time on every other rank, on every host."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from conftest import JOB, job
from hosts import Library

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def survivors(hosts: Any, mpi: Library, how: str, rank: int, ranks_of: list[int]) -> list[dict[str, Any]]:
    """What the others have said when a rank has ended."""
    cluster = hosts(len(ranks_of))
    running = cluster.start(
        mpi, ranks_of, mpi.python, JOB, "fail", json.dumps({"how": how, "rank": rank}), survive=True
    )
    others = [r for r in range(sum(ranks_of)) if r != rank]

    def heard() -> list[dict[str, Any]]:  # a stopped rank goes on, and speaks, when its job is ended
        return [line for line in running.said() if "again" in line and line["rank"] != rank]

    running.wait_until(lambda _: len(heard()) == len(others), 40)
    told = heard()
    done = cluster.finish(running, 0.5)
    assert [line["rank"] for line in told] == others, f"{told}\n{done.out}\n{done.err}"
    return told


ELSEWHERE = pytest.mark.slow  # the same way through the library is taken by another case


@pytest.mark.parametrize(
    ("how", "rank"),
    [("killed", 0), ("killed", 3), ("exits", 3), pytest.param("exits", 0, marks=ELSEWHERE)],
)
def test_a_dead_rank_is_named(hosts: Any, mpi: Library, how: str, rank: int) -> None:
    for line in survivors(hosts, mpi, how, rank, [2, 2]):
        assert line["error"] in ("PeerError", "TransportError"), line
        assert line["seconds"] < 8 and line["again"] == line["error"], line
        assert f"rank {rank}" in line["text"], line


def test_the_survivors_come_to_an_end(hosts: Any, mpi: Library) -> None:
    """MPI_Finalize would wait for the dead rank. They end with their own exit codes."""
    cluster = hosts(2)
    told = "sh", "-c", '"$@"; echo "{\\"rank\\": 9, \\"code\\": $?}" >> "$JOB_SAYS"', "sh"
    running = cluster.start(
        *(mpi, [2, 1], *told, mpi.python, JOB, "outlive", json.dumps({"rank": 1})), survive=True
    )
    done = cluster.finish(running, 30)
    assert done.seconds < 15 and "killed after" not in done.err, done
    assert sorted(line["code"] for line in running.said() if "code" in line) == [0, 0, 137], done


@pytest.mark.parametrize("how", ["leaves", "aborts"])
def test_a_rank_that_leaves_or_aborts(hosts: Any, mpi: Library, how: str) -> None:
    for line in survivors(hosts, mpi, how, 1, [2, 2]):
        assert line["error"] == {"leaves": "PeerError", "aborts": "AbortedError"}[how], line
        assert line["seconds"] < 3 and "rank 1" in line["text"], line


def test_a_stopped_rank_is_a_timeout(hosts: Any, mpi: Library) -> None:
    told = survivors(hosts, mpi, "stopped", 2, [2, 1])
    assert any(line["error"] == "CollectiveTimeoutError" and "rank 2" in line["text"] for line in told), told
    assert all(line["seconds"] < 6 for line in told)


def test_a_disagreement_is_an_error_before_any_output_changes(hosts: Any, mpi: Library) -> None:
    told = job(hosts(2), mpi, [2, 1], "disagreements")
    assert Counter(line["what"] for line in told) == {"verb": 3, "count": 3, "algorithm": 3, "op": 3}
    for line in told:
        assert line["error"] == line["again"] == "MismatchError", line
        assert line["untouched"] and line["seconds"] < 5, line
    both = (line for line in told if "rank" in line["text"].partition("while")[2])
    assert {line["what"] for line in both if "rank 1" in line["text"]} == {
        "verb",
        "count",
        "algorithm",
        "op",
    }, told


def test_a_cut_link(hosts: Any, mpi: Library) -> None:
    """Nobody can tell a dead host from a cut cable; every rank raises in bounded time on both sides."""
    cluster = hosts(3)
    running = cluster.start(
        mpi, [1, 1, 1], mpi.python, JOB, "endless", survive=True, env={"PYCOLLECTIVES_LIFELINE_SECONDS": "4"}
    )
    try:
        running.wait_until(lambda told: len(told) == 3, 30)
        time.sleep(0.3)
        cluster.cut(2)
        running.wait_until(lambda told: len(told) == 6, 30)
        done = cluster.finish(running, 0.5)
        told = [line for line in running.said() if "error" in line]
    finally:
        hosts.close()  # the next test gets hosts that know nothing of this
    assert [line["rank"] for line in told] == [0, 1, 2], f"{told}\n{done.out}\n{done.err}"
    for line in told:
        assert line["error"] in ("PeerError", "TransportError") and line["seconds"] < 20, line
