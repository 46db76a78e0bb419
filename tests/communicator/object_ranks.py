"""What the ranks of test_objects.py do."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import time
from typing import Any

import numpy as np

import pycollectives as pc

FORMS = (
    "all_gather_object",
    "gather_object",
    "broadcast_object",
    "scatter_object",
    "all_to_all_object",
    "reduce_object",
    "all_reduce_object",
    "scan_object",
    "reduce_scatter_object",
    "exscan_object",
)
ROOTED = ("gather_object", "broadcast_object", "scatter_object", "reduce_object")
LISTS = ("all_to_all_object", "scatter_object", "reduce_scatter_object")  # take one object per rank
FOLDS = ("reduce_object", "all_reduce_object", "scan_object", "reduce_scatter_object", "exscan_object")
WAYS = ("call", "async", "plan")


def join(a: str, b: str) -> str:
    """Associative, does not commute."""
    return f"{a}{b}"


def lean(a: Any, b: Any) -> Any:
    """Neither."""
    return [a, b]


def value(rank: int, seed: int, nbytes: int) -> Any:
    """An object of about `nbytes`, another one on every rank."""
    rng = np.random.default_rng([seed, rank])
    n = nbytes // (rank + 1)
    kinds: list[Any] = [
        None,
        b"",
        rng.bytes(n),
        {"rank": rank, "data": rng.integers(0, 99, n // 8).tolist()},
        rng.standard_normal(n // 8),
        ("é" * (n // 2), rank),
        [[rank] * 3, {rank}],
    ]
    return kinds[int(rng.integers(len(kinds)))]


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and bool(np.array_equal(a, b))
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(type(a) is type(b) and a == b)


def made(comm: pc.Communicator, way: str, form: str, *given: Any, **options: Any) -> Any:
    """One call: at once, asynchronously, or by a plan."""
    if way == "plan":
        return comm.plan(form, **options)(*given)
    if way == "async":
        return getattr(comm, form)(*given, **options, async_op=True).wait()
    return getattr(comm, form)(*given, **options)


def exchange(comm: pc.Communicator, seed: int, nbytes: int, way: str = "call") -> None:
    """Every form that moves objects, against plain Python; every root."""
    make = functools.partial(made, comm, way)
    n, me = comm.size, comm.rank
    values = [value(r, seed, nbytes) for r in range(n)]
    table = [[value(a * n + b, seed + 1, nbytes) for b in range(n)] for a in range(n)]
    assert equal(make("all_gather_object", values[me]), values)
    assert equal(make("all_to_all_object", table[me]), [table[r][me] for r in range(n)])
    for root in range(n):
        got = make("gather_object", values[me], root=root)
        assert equal(got, values if me == root else None)
        got = make("broadcast_object", values[me] if me == root else object, root=root)
        assert equal(got, values[root]) and (me != root or got is values[root])
        got = make("scatter_object", table[root] if me == root else None, root=root)
        assert equal(got, table[root][me])


def folds(comm: pc.Communicator, way: str = "call") -> None:
    """The reductions, in rank order."""
    make = functools.partial(made, comm, way)
    n, me = comm.size, comm.rank
    words = [chr(97 + r) * (r % 3) for r in range(n)]
    for op in (join, lean):
        whole = functools.reduce(op, words)
        prefixes = list(itertools.accumulate(words, op))
        assert make("all_reduce_object", words[me], op=op) == whole
        assert make("scan_object", words[me], op=op) == prefixes[me]
        assert make("exscan_object", words[me], op=op) == (prefixes[me - 1] if me else None)
        for root in range(n):
            got = make("reduce_object", words[me], op=op, root=root)
            assert got == (whole if me == root else None)
        table = [[f"{a}{b}," for b in range(n)] for a in range(n)]
        got = make("reduce_scatter_object", table[me], op=op)
        assert got == functools.reduce(op, [table[r][me] for r in range(n)])
    assert make("all_reduce_object", 1 << (100 + me)) == sum(1 << (100 + r) for r in range(n))
    mine = [me]
    assert make("scan_object", mine, op=operator.iadd) == list(range(me + 1)) and mine == [me]
    assert make("all_reduce_object", mine, op=operator.iadd) == list(range(n)) and mine == [me]
    assert make("exscan_object", mine, op=operator.iadd) == (list(range(me)) or None) and mine == [me]
    for op, want in (("sum", n * (n + 1) // 2), ("max", n), ("min", 1), (pc.ReduceOp.SUM, n * (n + 1) // 2)):
        assert make("all_reduce_object", me + 1, op=op) == want
    assert make("reduce_scatter_object", [{me}] * n, op="bor") == set(range(n))
    assert make("all_reduce_object", me + 1, op=pc.op(product)) == math.factorial(n)


def product(a: int, b: int) -> int:
    return a * b


def call(comm: pc.Communicator, form: str, mine: Any, root: int = 0, way: str = "call") -> Any:
    """One form, with `mine` as what this rank gives."""
    if form in LISTS:
        mine = [1] * (comm.size - 1) + [mine]
    return made(comm, way, form, mine, **({"root": root} if form in ROOTED else {}))


def large(comm: pc.Communicator, nbytes: int) -> None:
    """More than is sent without asking for the free memory."""
    data = np.arange(nbytes // 8) + comm.rank
    got = comm.broadcast_object(data, root=1)
    assert np.array_equal(got, np.arange(nbytes // 8) + 1)


def among_others(comm: pc.Communicator) -> None:
    """Asynchronous calls on objects and arrays keep the order of their issue, whoever waits for what first."""
    n, me = comm.size, comm.rank
    rng = np.random.default_rng(5)
    expected: list[tuple[Any, Any]] = []
    x = np.ones(5)
    for i in range(60):
        kind = int(rng.integers(6))
        if kind == 0:
            work = comm.all_gather_object((me, i), async_op=True)
            expected.append((work, [(r, i) for r in range(n)]))
        elif kind == 1:
            comm.all_reduce(x, out=x, async_op=True)
            comm.all_reduce(x, "avg", out=x, async_op=True)
            comm.broadcast(np.ones(5), out=x, async_op=True)
        elif kind == 2:
            work = comm.exscan_object([me + i], async_op=True)
            expected.append((work, [r + i for r in range(me)] or None))
        elif kind == 3:
            work = comm.all_gatherv(np.full(me, i), async_op=True)  # the counts are exchanged
            expected.append((work, [i] * (n * (n - 1) // 2)))
        elif kind == 4:
            root = int(rng.integers(n))
            assert comm.broadcast_object(i if me == root else None, root=root) == i
        else:
            assert (comm.all_reduce(np.full(3, me)) == n * (n - 1) // 2).all()
    order = np.random.default_rng(me).permutation(len(expected))  # every rank waits in another order
    for k in order:
        work, want = expected[k]
        got = work.wait()
        assert (got.tolist() if isinstance(got, np.ndarray) else got) == want and work.done()
        assert "done" in repr(work)
    assert (x == 1).all()


def issue_at_once(comm: pc.Communicator) -> float:
    """Issuing an asynchronous call on objects never waits, and it ends without anybody's waiting."""
    comm.barrier()
    if comm.rank == 0:
        time.sleep(1.0)
    start = time.monotonic()
    mine = [comm.rank]
    works = [
        comm.all_gather_object(mine, async_op=True),
        comm.scatterv(np.arange(comm.size), [1] * comm.size, async_op=True),
        comm.reduce_scatter_object([1] * comm.size, async_op=True),
        comm.all_to_allv(np.full(comm.size, comm.rank), [1] * comm.size, async_op=True),
    ]
    mine.append(99)  # it has been pickled
    issued = time.monotonic() - start
    if comm.rank == 1:
        try:
            works[0].wait(timeout=0.05)
        except pc.CollectiveTimeoutError:
            pass  # the call goes on
        else:
            raise AssertionError("rank 0 has not come yet")
    while not all(work.done() for work in works):
        assert time.monotonic() - start < 20
        time.sleep(0.005)
    got = [work.wait() for work in works]
    assert got[0] == [[r] for r in range(comm.size)] and got[2] == comm.size
    assert got[1].tolist() == [comm.rank] and got[3].tolist() == list(range(comm.size))
    return issued


def choices_at_issue(comm: pc.Communicator) -> None:
    """What `pc.use` says counts where the call is issued, not where it happens to run."""
    for turn in range(6):
        comm.barrier()
        name = "ring" if turn % 2 else "bruck"
        with pc.use(all_gather=name):
            work = comm.all_gather_object(turn, async_op=True)
            if comm.rank == turn % comm.size:
                time.sleep(0.02)  # here the block is still open when it runs
        assert work.wait() == [turn] * comm.size
        ran = [call["algorithm"] for call in comm.history() if call["collective"] == "all_gather"]
        assert ran[-1] == name


def in_a_group(comm: pc.Communicator) -> None:
    """Inside a group objects go at its end; an earlier call may be waited for, and a plan goes at once."""
    plan = comm.plan("all_gather_object")
    earlier = comm.all_gather_object(comm.rank, async_op=True)
    with comm.group():
        inside = comm.all_gather_object(comm.rank + 1, async_op=True)
        total = comm.all_reduce(np.ones(2))
        assert earlier.wait() == list(range(comm.size))
        assert plan("x") == ["x"] * comm.size
    assert inside.wait() == list(range(1, comm.size + 1)) and (total.wait() == comm.size).all()
