"""Rules for every test: what a skip means in CI, and how Hypothesis searches."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

# What `pycollectives tune` has learnt of this machine must not change what tests see.
_CACHE = tempfile.TemporaryDirectory(prefix="pycollectives-tests-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name
if TYPE_CHECKING:
    from ranks import Pools, Processes

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
OPTIONAL = "optional:"

# CI tries the same examples on every run. At home they are random; a failure is tried again first and printed
# with what reproduces it. No deadline and no check of speed: ranks share cores, so times say little.
settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("long", parent=settings.get_profile("dev"), max_examples=5000)  # for an hour or so
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev")
settings.load_profile(PROFILE)


def pytest_report_header() -> str:
    skips = f'a skip fails unless its reason starts with "{OPTIONAL}"' if IN_CI else "skips are allowed"
    how = "fixed examples" if settings().derandomize else "random examples; --hypothesis-seed=N repeats"
    return f"cores: {len(os.sched_getaffinity(0))}, {skips}\nhypothesis profile: {PROFILE} ({how})"


def _fail_if_needed(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure where CI has to run the test."""
    if not IN_CI or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not reason.removeprefix("Skipped: ").startswith(OPTIONAL):
        report.outcome = "failed"
        report.longrepr = (
            f'CI must run this test, but it was skipped: {reason} (see "{OPTIONAL}" in conftest.py)'
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, pytest.TestReport]:
    report: pytest.TestReport = yield
    _fail_if_needed(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, pytest.CollectReport]:
    report: pytest.CollectReport = yield
    _fail_if_needed(report)
    return report


@pytest.fixture(scope="session")
def pools() -> Iterator[Pools]:
    """`pools(n)`: n ranks as processes, shared by all tests."""
    from ranks import Pools

    made = Pools()
    yield made
    made.close()


@pytest.fixture
def fresh() -> Iterator[type[Processes]]:
    """`fresh(n)`: n ranks as processes for one test, which may harm them."""
    from ranks import Processes

    made: list[Processes] = []

    def make(n: int, env: dict[str, str] | None = None) -> Processes:
        made.append(Processes(n, env))
        return made[-1]

    yield make  # type: ignore[misc]
    for ranks in made:
        ranks.close()
