"""The hosts of these tests themselves."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hosts import Library

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


def test_a_job_is_over_with_its_last_rank(hosts: Any, mpi: Library) -> None:
    """mpiexec may end before ranks that have something to say still."""
    cluster = hosts(2)
    late = """sleep 1; echo '{"rank": 0}' >> "$JOB_SAYS"; exec sleep 0.5"""
    line = ["sh", "-c", f"setsid sh -c {shlex.quote(late)} < /dev/null > /dev/null 2>&1 & exit 0"]
    running = cluster.begin(mpi, line, {})
    assert running.process.wait(timeout=10) == 0 and not running.said()
    running.wait_until(lambda told: len(told) == 1, 20)
    assert running.said() == [{"rank": 0}]
    running.wait_until(lambda told: len(told) == 2, 20)  # nobody is left: not to the end of the time
    assert not cluster.processes()
    cluster.finish(running, 1)
