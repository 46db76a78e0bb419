"""Arrays in device memory on several hosts: every verb, staged and from device to device, and all that can go wrong."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import LIBRARIES
from hosts import Library

JOB = Path(__file__).parent / "device_job.py"
BUILT = importlib.util.find_spec("pycollectives._cuda_emulated") is not None
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(150),
    pytest.mark.skipif(
        not BUILT, reason="optional: the emulated device was not built (PYCOLLECTIVES_EMULATOR=1)"
    ),
]
AWARE = "PYCOLLECTIVES_CUDA_AWARE_MPI"
STAGES = {"PYCOLLECTIVES_STAGE_BYTES": "16384", AWARE: "automatic"}
DIRECT = {"PYCOLLECTIVES_STAGE_BYTES": "16384", AWARE: "yes"}


def job(
    hosts: Any, mpi: Library, ranks_of: list[int], function: str, env: dict[str, str], **arguments: Any
) -> list[dict[str, Any]]:
    """A function of device_job.py on all ranks; what they have said."""
    cluster = hosts(len(ranks_of))
    running = cluster.start(
        *(mpi, ranks_of, mpi.python, JOB, function, json.dumps(arguments)), env={"JOB_SECONDS": "98"} | env
    )
    cluster.finish(running, 100).check()
    told: list[dict[str, Any]] = running.said()
    assert len(told) == sum(ranks_of)
    return told


def sampled(everywhere: list[Any], once: list[Any]) -> Any:
    """Cases with a library each: those of `once` with the others of them where slow tests run."""
    found = []
    for place, library in enumerate(LIBRARIES):
        for i, case in enumerate([*everywhere, *once]):
            slow = i >= len(everywhere) and i % len(LIBRARIES) != place
            words = (
                "direct" if each is DIRECT else "staged" if each is STAGES else str(each) for each in case
            )
            name = "-".join((library.name, *words))
            found.append(pytest.param(library, *case, id=name, marks=pytest.mark.slow if slow else ()))
    return found


@pytest.mark.parametrize(
    ("library", "ranks_of", "env"),
    sampled([([2, 2], STAGES), ([2, 2], DIRECT)], [([2, 1], STAGES), ([2, 1], DIRECT)]),
)
def test_everything(hosts: Any, library: Library, ranks_of: list[int], env: dict[str, str]) -> None:
    told = job(hosts, library, ranks_of, "everything", env, counts=[0, 5, 3000], dtypes=["float32", "int64"])
    for line in told:
        assert line["made"] > 200
        assert line["inside"] == (ranks_of == [2, 2])
        assert line["direct"] == (env is DIRECT), (
            "no MPI library of the tests takes device pointers by itself"
        )
        if env is DIRECT:
            assert line["why"] == f"{AWARE} is yes" and "device pointers go to MPI" in line["explained"]
        else:
            assert (
                "staged through pinned host memory" in line["explained"] and line["why"] in line["explained"]
            )


@pytest.mark.parametrize(("library", "env"), sampled([], [(STAGES,), (DIRECT,)]))
def test_symmetric_memory(hosts: Any, library: Library, env: dict[str, str]) -> None:
    for line in job(hosts, library, [2, 2], "memory", env):
        assert line["regions"] <= 4, "what all have dropped is given back"


@pytest.mark.parametrize(("library", "ranks_of"), sampled([], [([2, 1],)]))
def test_runs_of_blocks(hosts: Any, library: Library, ranks_of: list[int]) -> None:
    assert all(line["made"] > 100 for line in job(hosts, library, ranks_of, "staging", STAGES))


@pytest.mark.parametrize(
    ("library", "algorithm", "env"),
    sampled(
        [("hierarchical", STAGES)],
        [("hierarchical", DIRECT), (None, STAGES), (None, DIRECT), ("ring", STAGES), ("ring", DIRECT)],
    ),
)
def test_a_disagreement(hosts: Any, library: Library, algorithm: str | None, env: dict[str, str]) -> None:
    for line in job(hosts, library, [2, 2], "disagreements", env, algorithm=algorithm):
        assert line["error"] in ("MismatchError", "AbortedError") and line["again"], line
        assert line["untouched"] and line["seconds"] < 15, line


@pytest.mark.parametrize(
    ("library", "how", "ranks_of", "env"),
    sampled(
        [("killed", [2, 2], STAGES)],
        [
            ("killed", [2, 2], DIRECT),
            ("stopped", [1, 1], STAGES),
            ("stopped", [1, 1], DIRECT),
            ("aborts", [2, 2], STAGES),
            ("aborts", [2, 2], DIRECT),
        ],
    ),
)
def test_ends(hosts: Any, library: Library, how: str, ranks_of: list[int], env: dict[str, str]) -> None:
    """An error in bounded time on every other rank."""
    cluster, size = hosts(len(ranks_of)), sum(ranks_of)
    arguments = {"how": how, "rank": 1, "dtype": "float32", "algorithm": "hierarchical" if size > 2 else None}
    running = cluster.start(
        library, ranks_of, library.python, JOB, "fail", json.dumps(arguments), survive=True, env=env
    )
    others = [r for r in range(size) if r != 1]

    def heard() -> list[dict[str, Any]]:
        return [line for line in running.said() if "again" in line and line["rank"] != 1]

    running.wait_until(lambda _: len(heard()) == len(others), 40)
    told = heard()
    done = cluster.finish(running, 0.5)
    assert [line["rank"] for line in told] == others, f"{told}\n{done.out}\n{done.err}"
    for line in told:
        expected = {"killed": ("PeerError", "TransportError"), "stopped": ("CollectiveTimeoutError",)}
        assert line["error"] in expected.get(how, ("AbortedError", "PeerError")), line
        assert line["seconds"] < 20 and line["again"], line
