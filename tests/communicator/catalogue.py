"""Every verb of the catalogue as one random operation, made and checked on every rank. Used by tests and by the soak."""

from __future__ import annotations

from typing import Any

import numpy as np
import reference
from reference import Array

from pycollectives.schedule import COLLECTIVES

VERBS = tuple(verb for verb in COLLECTIVES if verb != "barrier")
UNEVEN = ("all_gatherv", "reduce_scatterv", "gatherv", "scatterv", "all_to_allv")
EVEN_DTYPES = ("int8", "uint16", "int32", "int64", "float32", "float64", "complex64", "bfloat16", "float16")
WAYS = ("call", "async", "plan", "out")


def inputs(size: int, count: int, dtype: str, seed: int) -> list[Array]:
    """What every rank brings: small whole numbers, exact in every dtype and order of a sum; different in every place."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-2, 3, count).astype(dtype) for _ in range(size)]


def wanted(verb: str, xs: list[Array], rank: int, root: int) -> Array | None:
    """What `rank` must get."""
    size = len(xs)
    block = slice(rank * (xs[0].size // size), (rank + 1) * (xs[0].size // size))
    if verb in ("all_reduce", "reduce"):
        return reference.fold("sum", xs) if verb == "all_reduce" or rank == root else None
    if verb == "reduce_scatter":
        return reference.fold("sum", xs)[block]
    if verb in ("all_gather", "gather"):
        return np.stack(xs) if verb == "all_gather" or rank == root else None
    if verb == "broadcast":
        return xs[root]
    if verb == "scatter":
        return xs[root][block]
    if verb == "all_to_all":
        return np.concatenate([x[block] for x in xs])
    upto = xs[: rank + 1] if verb == "scan" else xs[:rank]
    return reference.fold("sum", upto) if upto else None


def check(
    comm: Any, verb: str, algorithm: str | None, count: int, dtype: str, root: int, way: str, seed: int
) -> None:
    """One call of an even verb; `count` elements of a block where there are blocks."""
    contract = COLLECTIVES[verb]
    blocks = contract.output == "block" or verb in ("all_to_all", "scatter")
    xs = inputs(comm.size, count * comm.size if blocks else count, dtype, seed)
    x = xs[comm.rank]
    want = wanted(verb, xs, comm.rank, root)
    options: dict[str, Any] = {"algorithm": algorithm} | ({"root": root} if contract.rooted else {})
    if way == "out" and want is not None:
        options["out"] = np.full_like(want, 1)
    if way == "plan":
        again = comm.plan(verb, x, **options)
        again()
        got = again()
    else:
        got = getattr(comm, verb)(x, async_op=way == "async", **options)
        got = got.wait() if way == "async" else got
    what = (verb, algorithm, comm.size, comm.rank, count, dtype, root, way, seed)
    assert (got is None) == (want is None), what
    assert want is None or (
        got.shape == want.shape and got.dtype == want.dtype and np.array_equal(got, want)
    ), what


def check_uneven(
    comm: Any, verb: str, algorithm: str | None, counts: list[int], root: int, told: bool, seed: int
) -> None:
    """One call of an uneven verb with rows of two elements; `told`: the counts are given, else exchanged."""
    size, rank, way = comm.size, comm.rank, WAYS[seed % 3]

    def made(*arguments: Any, **options: Any) -> Any:
        if way == "plan":
            again = comm.plan(verb, *arguments, **options)
            again()
            return again()
        got = getattr(comm, verb)(*arguments, async_op=way == "async", **options)
        return got.wait() if way == "async" else got

    rng = np.random.default_rng(seed)
    rows = [rng.integers(-9, 10, (n, 2)) for n in counts]
    options: dict[str, Any] = {"algorithm": algorithm}
    given: Any = {"counts": counts} if told else {}
    want: Array | None
    if verb == "all_gatherv":
        got, want = made(rows[rank], **given, **options), np.concatenate(rows)
    elif verb == "gatherv":
        got = made(rows[rank], root=root, **given, **options)
        want = np.concatenate(rows) if rank == root else None
    elif verb == "scatterv":
        given = {"counts": counts} if told or rank == root else {}
        source = np.concatenate(rows) if rank == root else np.empty((0, 2), np.int64)
        got, want = made(source, root=root, **given, **options), rows[rank]
    elif verb == "reduce_scatterv":
        whole = np.concatenate(rows)
        first = sum(counts[:rank])
        got, want = made(whole + rank, counts, **options), None
        want = (whole * size + sum(range(size)))[first : first + counts[rank]]
    else:
        matrix = rng.integers(0, 4, (size, size))
        parts = [[rng.integers(-9, 10, (n, 2)) for n in line] for line in matrix]
        expect = [matrix[:, rank]] if told else []
        got = made(np.concatenate(parts[rank]), matrix[rank], *expect, **options)
        want = np.concatenate([line[rank] for line in parts])
    what = (verb, algorithm, size, rank, counts, root, told, way, seed)
    assert (got is None) == (want is None), what
    assert want is None or (got.shape == want.shape and np.array_equal(got, want)), what


def able(verb: str, size: int, *, even: bool = True) -> list[str]:
    """The algorithms of a verb that can run on so many ranks, on blocks of any size if not `even`."""
    from pycollectives.schedule import find

    return [name for name in reference.algorithms(verb, size) if even or not find(verb, name).even_only]


def every_algorithm(comm: Any, counts: list[int], dtypes: list[str]) -> int:
    """Every verb by every algorithm at every root; returns the number of calls."""
    made = 0
    for verb in VERBS:
        for algorithm in able(verb, comm.size):
            for root in range(comm.size if COLLECTIVES[verb].rooted else 1):
                for i, count in enumerate(counts):
                    check(
                        comm,
                        verb,
                        algorithm,
                        count,
                        dtypes[(made + i) % len(dtypes)],
                        root,
                        WAYS[made % 4],
                        made,
                    )
                    made += 1
    zeros = [(3 * r) % 4 for r in range(comm.size)]
    for verb in UNEVEN:
        for algorithm in able(verb[:-1], comm.size, even=False):
            for root in range(comm.size if COLLECTIVES[verb[:-1]].rooted else 1):
                for told in (True, False):
                    check_uneven(comm, verb, algorithm, zeros, root, told, made)
                    made += 1
    return made


def soak(comm: Any, operations: int, seed: int) -> int:
    """Random operations on random communicators, the same on all ranks; returns how many this rank took part in."""
    rng = np.random.default_rng(seed)
    pairs, turned = comm.split(comm.rank // 2), comm.split(0, key=-comm.rank)
    made = 0
    for i in range(operations):
        which = int(rng.integers(3))
        at = (comm, pairs, turned)[which]
        verb = str(rng.choice(VERBS + UNEVEN))
        uneven = verb in UNEVEN
        names = [None, *able(verb[:-1] if uneven else verb, at.size, even=not uneven)]
        # Groups of one colour may have other sizes than those of another: draw as often and as much on all ranks.
        algorithm = names[int(rng.random() * len(names))]
        root, count = int(rng.random() * at.size), int(2 ** (rng.random() * 14)) - 1
        counts = [int(n) for n in rng.integers(0, 6, comm.size)[: at.size]]
        dtype, way, told = str(rng.choice(EVEN_DTYPES)), str(rng.choice(WAYS)), bool(rng.integers(2))
        if uneven:
            check_uneven(at, verb, algorithm, counts, root, told, i)
        else:
            check(at, verb, algorithm, count, dtype, root, way, i)
        made += 1
    pairs.close()
    turned.close()
    return made
