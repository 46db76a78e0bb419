"""What the ranks of test_objects.py do."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import time
import zlib
from typing import Any

import numpy as np

import pycollectives as pc
from pycollectives import _core, pickles

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


class Unpicklable:
    """Says why."""

    def __reduce__(self) -> Any:
        raise RuntimeError(f"I stay here {'é' * 3}")


class Poisonous:
    """Can be pickled, and not unpickled."""

    def __reduce__(self) -> Any:
        return explode, ()


class Unspeakable(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Secret:
    def __reduce__(self) -> Any:
        raise Unspeakable


def explode() -> None:
    raise ImportError("no module named nowhere")


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


def refuse(comm: pc.Communicator, form: str, culprit: int, bad: Any, words: list[str], way: str) -> None:
    """Every rank raises soon, names the rank and the reason, and goes on."""
    root = culprit if form in ("broadcast_object", "scatter_object") else 0
    comm.barrier()
    start = time.monotonic()
    try:
        call(comm, form, bad if comm.rank == culprit else 5, root, way)
    except pc.InvalidArgumentError as error:
        assert time.monotonic() - start < 2
        for word in [form, f"rank {culprit}", *words]:
            assert word in str(error), str(error)
        assert (error.rank, error.peer, error.collective) == (comm.rank, culprit, form)
        assert (error.__cause__ is not None) == (comm.rank == culprit)
    else:
        raise AssertionError("nothing was raised")
    assert comm.all_gather_object(comm.rank) == list(range(comm.size))


def refuse_all(comm: pc.Communicator, form: str, way: str) -> None:
    for culprit in range(comm.size):
        refuse(comm, form, culprit, Unpicklable(), ["RuntimeError", "I stay here ééé"], way)
        refuse(comm, form, culprit, lambda: 0, ["cannot be pickled"], way)
        refuse(comm, form, culprit, Secret(), ["Unspeakable"], way)


def several(comm: pc.Communicator) -> None:
    """All culprits are named."""
    try:
        comm.all_gather_object(Unpicklable() if comm.rank != 1 else 0)
    except pc.InvalidArgumentError as error:
        assert all((f"rank {r}:" in str(error)) == (r != 1) for r in range(comm.size)), str(error)
        assert error.peer == 0
    else:
        raise AssertionError("nothing was raised")


def wrong_values(comm: pc.Communicator) -> None:
    """The number of entries, what is no sequence, and roots."""
    n = comm.size
    for form, bad, words in (
        ("all_to_all_object", [0] * (n + 1), f"{n + 1} entries; it must have {n}"),
        ("all_to_all_object", 3, "not a sequence"),
        ("reduce_scatter_object", [1], f"1 entries; it must have {n}"),
        ("scatter_object", [], f"0 entries; it must have {n}"),
        ("scatter_object", None, "not a sequence"),
    ):
        mine = bad if comm.rank == n - 1 else [0] * n
        options = {"root": n - 1} if form == "scatter_object" else {}
        try:
            getattr(comm, form)(mine, **options)
        except pc.InvalidArgumentError as error:
            assert words in str(error) and error.peer == n - 1, str(error)
        else:
            raise AssertionError(form)
    wrong: list[tuple[str, dict[str, Any]]] = [
        *(("broadcast_object", {"root": root}) for root in (n, -1, 1.5, None, "0")),
        *(("all_reduce_object", {"op": op}) for op in ("avg", "smu", 3, None, pc.op(fills))),
        ("all_gather_object", {"timeout": "soon"}),
        ("scan_object", {"timeout": -1}),
    ]
    for form, options in wrong:
        for way in WAYS:
            try:
                made(comm, way, form, 1, **options)
            except pc.InvalidArgumentError:
                continue
            raise AssertionError((form, options, way))
    folds(comm)


def fills(a: Any, b: Any, out: Any) -> None:
    out[...] = a


def bad_operator(comm: pc.Communicator, way: str) -> None:
    """`op` raises, or makes what cannot be pickled: on one rank, told to all."""
    raised = [(form, lambda a, b: a / 0, "op raised ZeroDivisionError") for form in FOLDS]
    for form, op, words in (
        *raised,
        ("all_reduce_object", lambda a, b: Unpicklable(), "the object cannot be pickled"),
        ("scan_object", lambda a, b: Unpicklable(), "the result of op for rank 1 cannot be pickled"),
        ("exscan_object", lambda a, b: Unpicklable(), "the result of op for rank 2 cannot be pickled"),
    ):
        try:
            made(comm, way, form, [1] * comm.size if form in LISTS else 1, op=op)
        except pc.InvalidArgumentError as error:
            assert words in str(error) and error.peer == 0, str(error)
            assert (error.__cause__ is not None) == (comm.rank == 0 or form == "reduce_scatter_object")
        else:
            raise AssertionError(form)
    folds(comm)


def unreadable(comm: pc.Communicator, way: str) -> None:
    """What arrives cannot be unpickled: an error that names the sender, and all stay in step."""
    for form in FORMS:
        kind: Any = pc.InvalidArgumentError if form in FOLDS else pc.CollectiveError
        silent = (form == "gather_object" and comm.rank != 0) or (
            form == "broadcast_object" and comm.rank == 1
        )
        if form in ("scatter_object", "all_to_all_object"):
            silent = comm.rank != comm.size - 1  # only the last one gets it
        try:
            call(
                comm,
                form,
                Poisonous() if comm.rank == 1 else 5,
                1 if form in ("broadcast_object", "scatter_object") else 0,
                way,
            )
        except kind as error:
            assert "rank 1" in str(error) and "no module named nowhere" in str(error), str(error)
            assert not silent
        else:
            assert silent, (form, comm.rank)
    folds(comm)


def damaged(comm: pc.Communicator) -> None:
    """One rank's header is damaged: a protocol error on every rank, at once, without an allocation."""
    good = pickles.Parcel([b"x" * 10]).header("all_gather_object", -1, 1)
    for place in range(len(good)):
        bad = good.copy()
        bad[place] ^= 1 << 60
        start = time.monotonic()
        try:
            if comm.rank == 1:
                heard = comm.all_gather(bad)
                for peer in range(comm.size):
                    pickles.opened("all_gather_object", heard[peer], 1, peer)
            else:
                comm.all_gather_object(5)
        except pc.TransportError as error:
            assert "rank 1" in str(error) and "damaged" in str(error) and error.peer == 1
            assert time.monotonic() - start < 2
        else:
            raise AssertionError(place)
    folds(comm)


def enormous(comm: pc.Communicator) -> None:
    """A length that is whole but beyond all memory, alone or in sum."""
    for announced in ([1 << 60], [(1 << 63) - 1]):
        try:
            if comm.rank in (1, 2):
                header = pickles.Parcel().header("all_gather_object", -1, 1)
                header[3] = announced[0]
                header[-1] = zlib.crc32(header[:-1].tobytes())
                comm.all_gather(header)
                comm.all_gather(np.array([_core.available_memory()]))
            else:
                comm.all_gather_object(5)
        except pc.TransportError as error:
            assert "memory" in str(error)
        else:
            assert comm.rank in (1, 2)
    folds(comm)


def large(comm: pc.Communicator, nbytes: int) -> None:
    """More than is sent without asking for the free memory."""
    data = np.arange(nbytes // 8) + comm.rank
    got = comm.broadcast_object(data, root=1)
    assert np.array_equal(got, np.arange(nbytes // 8) + 1)


def mixed_up(comm: pc.Communicator, theirs: tuple[str, int], mine: tuple[str, int]) -> str:
    """Rank 1 makes another call than the others; the error."""
    form, root = mine if comm.rank == 1 else theirs
    try:
        call(comm, form, 1, root)
        comm.barrier(timeout=10)
    except pc.MismatchError as error:
        return str(error)
    raise AssertionError("nothing was raised")


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


def closed_early(comm: pc.Communicator) -> None:
    """Pending calls on objects end with the communicator."""
    sub = comm.split(0)
    assert sub is not None
    comm.barrier()
    works = [sub.all_gather_object(1, async_op=True) for _ in range(3)] if comm.rank == 0 else []
    time.sleep(0.05)
    sub.close()
    for work in works:
        try:
            work.wait()
        except (pc.AbortedError, pc.PeerError):
            assert work.done()
        else:
            raise AssertionError("nobody else called it")
    try:
        sub.all_gather_object(1, async_op=True)
    except pc.AbortedError:
        comm.barrier()
    else:
        raise AssertionError("it is closed")
