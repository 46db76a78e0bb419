from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.errors import InvalidArgumentError, UnsupportedError
from pycollectives.schedule import ALGORITHMS, COLLECTIVES
from pycollectives.teach import Trace, example, example_length, trace

TEXTBOOK = json.loads((Path(__file__).parents[1] / "data" / "ring_trace_4.json").read_text())


def result(verb: str, inputs: np.ndarray, root: int, rank: int) -> np.ndarray | None:
    """What `rank` must have in the end; None: nothing."""
    n, flat = len(inputs), inputs.reshape(-1)
    total, block = inputs.sum(axis=0), slice(rank * inputs.shape[1] // n, (rank + 1) * inputs.shape[1] // n)
    found = {
        "all_reduce": total,
        "reduce": total if rank == root else None,
        "reduce_scatter": total[block],
        "scan": inputs[: rank + 1].sum(axis=0),
        "exscan": inputs[:rank].sum(axis=0) if rank else None,
        "all_gather": flat,
        "gather": flat if rank == root else None,
        "broadcast": inputs[root],
        "scatter": inputs[root][block],
    }
    return found[verb]


MOVING = [
    (verb, name, n)
    for (verb, name), one in ALGORITHMS.items()
    if COLLECTIVES[verb].output != "none" and not COLLECTIVES[verb].apart
    for n in (1, 2, 3, 4, 5)
    if not one.obstacle(n)
] + [(verb, "torus(3x2)", 6) for verb in ("all_reduce", "reduce_scatter", "all_gather")]


def traced(n: int, verb: str, algorithm: str, elements: int = 0, **options: Any) -> list[Trace]:
    def body(comm: pc.Communicator) -> Trace:
        count = elements or example_length(verb, algorithm, n)
        dtype = options.get("dtype", np.int64)
        x = example(verb, comm.rank, n, count, dtype)
        return trace(comm, verb, algorithm, x, options.get("op", "sum"), root=options.get("root", 0))

    return pc.run_threads(n, body)


def test_ring_is_the_textbooks() -> None:
    """By threads here; tests/cli/test_cli_trace.py has the same by processes."""
    for found in traced(4, "all_reduce", "ring"):
        assert found.start.values.tolist() == TEXTBOOK["start"]
        assert found.phase("reduce-scatter") == TEXTBOOK["reduce_scatter"]
        assert found.phase("all-gather") == TEXTBOOK["all_gather"]
    average = traced(4, "all_reduce", "ring", op="avg", dtype=np.float64)[2]
    assert average.steps[-1].values.tolist() == [TEXTBOOK["average"]] * 4


@pytest.mark.parametrize(("verb", "algorithm", "n"), MOVING)
def test_last_state_is_the_result(verb: str, algorithm: str, n: int) -> None:
    root = n // 2
    found, *others = traced(n, verb, algorithm, root=root, elements=16 * n)
    assert all(
        np.array_equal(other.steps[-1].values, found.steps[-1].values) for other in others if other.steps
    )
    last = (found.steps or [found.start])[-1]
    inputs = np.stack([example(verb, rank, n, 16 * n) for rank in range(n)])
    for rank in range(n):
        expected = result(verb, inputs, root, rank)
        if expected is not None:
            where = COLLECTIVES[verb].output_chunks(rank, n, root, n)  # here 16 elements are one chunk
            held = slice(16 * where.start, 16 * where.stop)
            assert np.array_equal(last.values[rank, held], expected)
            assert last.known[rank, held].all()


def test_what_is_not_there_yet() -> None:
    found = traced(4, "all_gather", "ring")[0]
    assert [found.start.cells(rank) for rank in (0, 3)] == [["1", ".", ".", "."], [".", ".", ".", "4"]]
    assert found.steps[0].cells(0) == ["1", ".", ".", "4"]
    assert found.as_dict()["start"][1] == [None, 2, None, None]
    assert not found.steps[0].known[0, 1] and found.steps[-1].known.all()


def test_channels_share_the_vector() -> None:
    found = traced(4, "all_reduce", "double_binary_tree")[0]
    half = found.start.values.shape[1] // 2
    changed = found.steps[0].changed
    assert {rank for rank in range(4) if changed[rank, :half].any()} == {0, 2}  # the inner ranks of tree 1
    assert {rank for rank in range(4) if changed[rank, half:].any()} == {1, 3}  # and of its mirror image
    assert "(channel 1)" in found.text(operations=True)


def test_text() -> None:
    text = str(traced(2, "all_reduce", "ring")[0])
    assert text.splitlines() == [
        "all_reduce by ring on 2 ranks, sum of int64[2]",
        "",
        "start",
        "  rank 0    1   2",
        "  rank 1    3   4",
        "",
        "step 0: reduce-scatter",
        "  rank 0    1   6*",
        "  rank 1    4*  4",
        "",
        "step 1: all-gather",
        "  rank 0    4*  6",
        "  rank 1    4   6*",
    ]


@pytest.mark.parametrize("algorithm", ["direct", "pairwise", "bruck"])
def test_all_to_all_shows_the_input_then_the_output(algorithm: str) -> None:
    def run(comm: Any) -> Any:
        return trace(comm, "all_to_all", algorithm, example("all_to_all", comm.rank, 3, 3))

    for seen in pc.run_threads(3, run):
        assert seen.start.values.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]] and seen.start.known.all()
        assert (
            seen.steps[-1].values.tolist() == [[1, 4, 7], [2, 5, 8], [3, 6, 9]] and seen.steps[-1].known.all()
        )


def test_scratch_memory_is_shown() -> None:
    """Bruck's all-to-all: data on their way lie in scratch memory, by their distance."""

    def run(comm: Any) -> Trace:
        return trace(comm, "all_to_all", "bruck", example("all_to_all", comm.rank, 4, 4))

    pc.run_threads(4, run)
    for seen in pc.run_threads(4, run):  # in memory that the first trace has used, too
        assert seen.scratch == 4 and not seen.start.scratch.known.any()
        assert seen.steps[0].scratch.values[0].tolist() == [1, 13, 3, 15]
        assert seen.steps[1].scratch.changed[0].tolist() == [False, False, True, True]
        assert seen.as_dict()["start"] == seen.start.values.tolist()
        assert seen.as_dict()["steps"][1]["scratch"][0] == [1, 13, 9, 5]
        assert seen.as_dict()["steps"][1]["scratch_changed"][0] == [2, 3]
        assert "step 1\n  rank 0     .    .    .    .   |   1   13    9*   5*\n" in seen.text()


def test_parts_of_elements_in_scratch_memory_are_refused() -> None:
    """What only moves is cut by bytes."""

    def halves(p: pc.Program) -> None:
        p.chunks(2 * p.size)
        for half in range(2):
            p.copy(p.input(2 * p.rank + half), into=p.output(2 * p.rank + half))
            other = 1 - p.rank
            p.copy(p.input(2 * other + half), into=p.scratch(half, like=2 * other + half))
            p.send(p.scratch(half, like=2 * other + half), to=other)
            p.recv(p.output(2 * other + half), source=other)

    def run(comm: Any, elements: int) -> Trace:
        return trace(comm, "all_to_all", "halves", example("all_to_all", comm.rank, 2, elements))

    pc.algorithm("all_to_all", name="halves")(halves)
    try:
        seen = pc.run_threads(2, run, 4)[0]
        assert seen.steps[-1].values.tolist() == [[1, 2, 5, 6], [3, 4, 7, 8]] and seen.scratch == 2
        with pytest.raises(UnsupportedError, match="a multiple of 4 elements, not 6"):
            pc.run_threads(2, run, 6)
    finally:
        del ALGORITHMS["all_to_all", "halves"]


def test_ranks_may_need_scratch_memory_of_their_own() -> None:
    """The last rank of a linear exscan passes nothing on and needs none; it is shown as long as the others' and empty."""
    seen = traced(4, "exscan", "linear")[0]
    used = [any(step.scratch.known[rank].any() for step in seen) for rank in range(4)]
    assert used == [True, True, True, False]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_barrier_shows_whom_each_rank_has_heard_of(size: int) -> None:
    for seen in pc.run_threads(size, lambda comm: trace(comm, "barrier", "dissemination", np.empty(0))):
        assert seen.start.values.ravel().tolist() == [1 << rank for rank in range(size)]
        first = [(1 << rank) | (1 << (rank - 1) % size) for rank in range(size)]
        assert seen.steps[0].values.ravel().tolist() == first
        assert seen.steps[-1].values.ravel().tolist() == [(1 << size) - 1] * size


def test_refusals() -> None:
    comm = pc.init()
    for verb, algorithm, x, error in [
        ("all_reduce", "circle", np.ones(1), InvalidArgumentError),
        ("all_reduce", "ring", np.ones((2, 2)), InvalidArgumentError),
        ("all_reduce", "ring", np.ones(0), InvalidArgumentError),
        ("all_reduce", "ring", np.ones(4, np.float16), UnsupportedError),
        ("everything", "ring", np.ones(1), InvalidArgumentError),
    ]:
        with pytest.raises(error):
            trace(comm, verb, algorithm, x)
    with pytest.raises(InvalidArgumentError, match="root 1"):
        trace(comm, "broadcast", "binomial", np.ones(1), root=1)
