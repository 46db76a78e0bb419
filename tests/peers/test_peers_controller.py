"""The interleaved run with real libraries, and with one that fails."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="optional: mpi4py is not installed")

from bench.peers import catalogue
from bench.peers.catalogue import OURS, ROOT, Peer
from bench.peers.controller import Controller, Options, dtype_of, elements
from bench.peers.job import Job
from bench.peers.results import Results

MPICH = Peer("mpich", catalogue.PEERS["mpich"].library, catalogue.PEERS["mpich"].start)  # of this environment


def broken(how: str) -> Peer:
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    variables = {"BROKEN": how, "PYTHONPATH": path}
    return Peer("broken", "broken_library", catalogue.PEERS["gloo"].start, variables=variables)


def measure(peers: list[Peer], **options: Any) -> Results:
    """Everything in short; nobody may be left afterwards."""
    pids: list[int] = []
    original = Job.ready

    def ready(job: Job, deadline: float) -> None:
        original(job, deadline)
        pids.extend(job.pids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "ready", ready)
        usual: dict[str, Any] = {
            "ranks": (2,),
            "sizes": (64,),
            "rounds": 2,
            "again": 0,
            "patience": 0.0,
            "batch": 0.0005,
            "limit": 60.0,
        }
        results = Controller(Options(peers=peers, **usual | options)).run()
    end = time.monotonic() + 10
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end, f"ranks are left: {left}"
        time.sleep(0.01)
    return results


def test_two_libraries_take_turns() -> None:
    results = measure(
        [OURS, MPICH],
        collectives=("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "barrier"),
        rounds=1,
    )
    assert not results.failures
    assert results.versions["ours"].startswith("pycollectives")
    assert "MPICH" in results.versions["mpich"]
    assert [(case.collective, case.nbytes) for case in results.cases] == [
        (verb, 64) for verb in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")
    ] + [("barrier", 0)]
    for case in results.cases:
        barrier = case.collective == "barrier"
        columns = {"array", "plan", "mpich"} | (set() if barrier else {"empty", "memcpy"})
        assert set(case.times) == ({"warm"} if barrier else {"warm", "fresh"})
        assert set(case.left_out) == ({"empty"} if barrier else set())
        for times in case.times.values():
            assert set(times) == columns
            assert all(
                len(rounds) == 1 and all(t and 0 < t < 1e6 for t in rounds) for rounds in times.values()
            )
        assert len(case.flag_ns) == 1
    assert results.cases[0].lines["mpich"] == "comm.Allreduce(x, out)"
    assert results.cases[0].lines["array"] == "comm.all_reduce(x, out=out)"


@pytest.mark.slow  # starts jobs several times
def test_in_place_and_other_dtypes() -> None:
    results = measure(
        [OURS, MPICH],
        collectives=("all_reduce", "all_gather"),
        dtypes=("bfloat16", "int32"),
        rounds=1,
        in_place=True,
    )
    assert [case.in_place for case in results.cases] == [True, True, False, False]
    assert results.cases[1].lines["mpich"] == "comm.Allreduce(IN_PLACE, out)"
    assert all("array" in case.times["fresh"] for case in results.cases)


@pytest.mark.slow  # starts jobs several times
def test_what_does_not_fit_is_made_anew_for_each_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.controller.available_memory", lambda: 1 << 10)
    [case] = measure([OURS, MPICH], sizes=(4096,)).cases
    assert {column: len(rounds) for column, rounds in case.times["warm"].items()} == dict.fromkeys(
        ("array", "empty", "plan", "memcpy", "mpich"), 2
    )


@pytest.mark.slow  # starts jobs several times
def test_disturbed_rounds_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([0.0, 5.0, 0.0, 0.0, 7.0, 0.0] + [0.0] * 9)
    monkeypatch.setattr("bench.peers.controller.Others.used", lambda self: next(used))
    [case] = measure([OURS], rounds=4, again=3, modes=("warm",)).cases
    assert case.others == [0.0] * 4
    assert all(len(rounds) == 4 for rounds in case.times["warm"].values())
    assert len(list(used)) == 9  # as many rounds as were needed


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("start", "no network here"),
        ("crash", "rank 1 has died"),
        ("hang", "no answer of rank 1 within 5 s"),
        ("raise", "the third call is too much"),
    ],
)
def test_a_failing_library_is_left_out_with_its_reason(how: str, reason: str) -> None:
    results = measure([OURS, broken(how)], modes=("warm",), sizes=(8, 64), limit=5.0)
    assert len(results.failures) == 1, results.failures
    failure = results.failures[0]
    assert (failure["peer"], failure["ranks"]) == ("broken", 2)
    assert reason in failure["reason"]
    assert [case.nbytes for case in results.cases] == [8, 64]
    for case in results.cases:
        assert all(len(case.times["warm"][column]) == 2 for column in ("array", "empty", "plan"))


@pytest.mark.parametrize(
    ("how", "reason"), [("wrong", "elements of its result are wrong"), ("cannot", "not this one")]
)
def test_a_library_that_cannot_is_left_out_of_the_case(how: str, reason: str) -> None:
    results = measure([OURS, broken(how)], modes=("warm",))
    assert not results.failures
    for case in results.cases:
        assert reason in case.left_out["broken"]
        assert set(case.times["warm"]) == {"array", "empty", "plan", "memcpy"}


def test_a_program_that_is_not_there() -> None:
    peer = Peer("absent", "x", lambda python, ranks, rank: [(["/nowhere/mpiexec"], {})])
    results = measure([OURS, peer], modes=("warm",))
    assert "No such file" in results.failures[0]["reason"]
    assert results.cases[0].median("warm", "array")


@pytest.mark.slow  # starts jobs several times
def test_time_is_over() -> None:
    results = measure([OURS], sizes=tuple(range(8, 8000, 8)), modes=("warm",), rounds=1, stop_after=1.0)
    assert 0 <= len(results.cases) < 900


@pytest.mark.parametrize(
    ("collective", "dtype", "nbytes", "ranks", "count"),
    [
        ("all_reduce", "float32", 8, 8, 2),
        ("all_gather", "float32", 8, 8, 8),
        ("all_to_all", "bfloat16", 100, 4, 52),
        ("broadcast", "float64", 9, 4, 2),
    ],
)
def test_elements(collective: str, dtype: str, nbytes: int, ranks: int, count: int) -> None:
    assert elements(collective, nbytes, dtype_of(dtype), ranks) == count
