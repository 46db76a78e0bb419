"""What the ranks of test_group.py do: random groups of calls against the same calls one by one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401 - teaches NumPy the name bfloat16
import numpy as np

import pycollectives as pc

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "int16", "float64", "uint8", "bfloat16", "bool", "complex64")
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")
VERBS = (*REDUCING, "all_gather", "broadcast", "gather", "scatter", "all_to_all")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
SPLIT = ("reduce_scatter", "scatter", "all_to_all")
SHAPES: tuple[tuple[int, ...], ...] = ((1,), (3,), (2, 5), (0,), (1, 0, 2), (17,), (4, 1, 3))


def draw(rng: np.random.Generator, size: int, largest: int) -> dict[str, Any]:
    """One call, the same on all ranks."""
    verb = VERBS[rng.integers(len(VERBS))]
    shape = SHAPES[rng.integers(len(SHAPES))] if rng.random() < 0.9 else (int(rng.integers(largest)),)
    drawn: dict[str, Any] = {
        "verb": verb,
        "dtype": DTYPES[rng.integers(len(DTYPES))],
        "seed": int(rng.integers(1 << 30)),
    }
    drawn["shape"] = (shape[0] * size, *shape[1:]) if verb in SPLIT else shape
    options: dict[str, Any] = {}
    if verb in ROOTED:
        options["root"] = int(rng.integers(size))
    if verb in REDUCING:
        options["op"] = ("sum", "prod")[rng.integers(2)] if rng.random() < 0.5 else "sum"
    if rng.random() < 0.2:
        options["async_op"] = True
    return drawn | {"options": options, "into": rng.integers(4), "strided": bool(rng.random() < 0.3)}


def data(call: dict[str, Any], rank: int) -> Array:
    """x of a rank: small whole numbers, so that every order of a reduction gives the same bits."""
    whole = (
        np.random.default_rng([call["seed"], rank]).integers(0, 2, (*call["shape"], 2)).astype(call["dtype"])
    )
    return whole[..., 0] if call["strided"] else np.ascontiguousarray(whole[..., 0])


def make(comm: pc.Communicator, call: dict[str, Any], out: Array | None) -> Any:
    x = data(call, comm.rank)
    if call["into"] == 1 and call["verb"] in ("all_reduce", "broadcast", "scan"):
        out = x
    return getattr(comm, call["verb"])(x, out=out, **call["options"])


def results(
    comm: pc.Communicator, calls: list[dict[str, Any]], wanted: list[Array | None], *, grouped: bool
) -> list[Any]:
    """The results of the calls; those that were drawn so go to contiguous or strided outs."""
    outs: list[Array | None] = []
    for call, want in zip(calls, wanted, strict=True):
        out = None
        if want is not None and call["into"] > 1:
            out = np.empty((*want.shape, call["into"] - 1), want.dtype)[..., 0]
            out.view(np.uint8) if out.size == 0 else out.fill(1)
        outs.append(out)
    with comm.group() if grouped else contextlib.nullcontext():
        pending = [make(comm, call, out) for call, out in zip(calls, outs, strict=True)]
        if grouped:
            assert all(isinstance(p, pc.Work) and not p.done() for p in pending)
    got = [p.wait() if isinstance(p, pc.Work) else p for p in pending]
    for one, out in zip(got, outs, strict=True):
        assert out is None or one is out
    return got


def random_groups(comm: pc.Communicator, seed: int, rounds: int, calls: int, largest: int) -> None:
    rng = np.random.default_rng([seed, comm.size])
    for _ in range(rounds):
        drawn = [draw(rng, comm.size, largest) for _ in range(int(rng.integers(1, calls)))]
        blank: list[Array | None] = [None] * len(drawn)
        one_by_one = results(comm, drawn, blank, grouped=False)
        together = results(comm, drawn, one_by_one, grouped=True)
        for call, want, got in zip(drawn, one_by_one, together, strict=True):
            assert (want is None) == (got is None), call
            if want is not None:
                assert got.shape == want.shape and got.dtype == want.dtype, call
                assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(want).tobytes(), (
                    call,
                    want,
                    got,
                )


def calls_made(comm: pc.Communicator) -> int:
    return max((r["sequence"] for r in comm.history()), default=0)


def counts(comm: pc.Communicator) -> None:
    """How many native calls a group makes."""
    n = comm.size
    for make_calls, expected in (
        (lambda: [comm.all_reduce(np.ones(k)) for k in range(50)], 1),
        (lambda: [comm.all_reduce(np.ones(3, d)) for d in ("f4", "f8", "f4", "i4", "f8")], 3),
        (lambda: [comm.broadcast(np.ones(3, d)) for d in ("f4", "f8", "f4", "i4", "f8")], 1),
        (lambda: [comm.broadcast(np.ones(3), root=k % n) for k in range(6)], n),
        (lambda: [comm.all_reduce(np.ones(3), op) for op in ("sum", "max", "avg", "sum")], 3),
        (lambda: [comm.all_reduce(np.ones(3), algorithm=a) for a in (None, "ring", None, "ring")], 2),
        (lambda: [comm.all_reduce(np.ones(3), deterministic=d) for d in (True, False, True)], 2),
        (lambda: [comm.all_gather(np.ones(k, d)) for k, d in ((1, "f4"), (0, "f8"), (9, "u1"))], 1),
        (lambda: [comm.all_reduce(np.ones(1 << 16)) for _ in range(3)], 3),  # too large
        (lambda: [comm.all_reduce(np.ones(1 << 13)) for _ in range(17)], 2),  # the buffer is full after 16
        (lambda: [comm.barrier(), comm.barrier()], 2),
        (lambda: [comm.all_gatherv(np.ones(comm.rank), list(range(n))) for _ in range(2)], 2),
        (lambda: [], 0),
    ):
        comm.barrier()
        before = calls_made(comm)
        with comm.group() as group:
            issued = make_calls()  # type: ignore[no-untyped-call]
            assert len(group) == len(issued) and calls_made(comm) == before
        assert calls_made(comm) - before == expected, (calls_made(comm) - before, expected)


def mixed(comm: pc.Communicator) -> None:
    """Kinds that go alone, among those that do not; nested groups; a fast way that must not be taken."""
    n, me = comm.size, comm.rank
    x, y = np.arange(5.0) + me, np.full((2, 2), me, np.int32)
    for _ in range(3):  # the native fast way knows these calls now
        comm.all_reduce(x)
        comm.broadcast(y, root=n - 1)
        comm.barrier()
    with comm.group():
        a = comm.all_reduce(x)
        b = comm.all_gatherv(np.full(me, me))
        with comm.group() as inner:
            c = comm.broadcast(y, root=n - 1)
            d = comm.all_gather_object({"rank": me})
        assert len(inner) == 4 and not c.done()
        e = comm.barrier()
        f = comm.all_reduce([1, 2, 3], "max", async_op=True)
        g = comm.all_reduce_object([me])
        h = (
            comm.scatter(x.repeat(n).reshape(n, 5) if me == 0 else None, out=np.empty(5)[None])
            if n > 1
            else None
        )
        k = comm.neighbor_exchange(np.full((2, 1), me), (n,), async_op=True)
    assert np.array_equal(a.wait(), np.arange(5.0) * n + n * (n - 1) / 2)
    assert b.wait().tolist() == [r for r in range(n) for _ in range(r)]
    assert (c.wait() == n - 1).all() and d.wait() == [{"rank": r} for r in range(n)]
    assert e.wait() is None and f.wait().tolist() == [1, 2, 3] and g.wait() == list(range(n))
    assert h is None or h.wait().tolist() == [[float(v) for v in np.arange(5.0).repeat(n).reshape(n, 5)[me]]]
    assert k.wait().tolist() == [[(me - 1) % n], [(me + 1) % n]]
    assert "done" in repr(a)


class Stop(Exception):
    """Raised by a test."""


@contextlib.contextmanager
def raises(kind: type[Exception], *words: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def errors(comm: pc.Communicator) -> None:
    """What is refused, and what an exception in the block means."""
    n, me = comm.size, comm.rank
    x = np.ones(4)
    before = calls_made(comm)
    with contextlib.suppress(Stop), comm.group():
        lost = comm.all_reduce(x, out=x)
        late = comm.all_gather_object(1)
        raise Stop("here")
    assert calls_made(comm) == before and (x == 1).all()
    for pending in (lost, late):
        with raises(pc.AbortedError, "was not made", "Stop('here')"):
            pending.wait()
    with comm.group():  # wrong arguments are told at their line, and the rest of the group is made
        for wrong in (
            lambda: comm.all_reduce(x, op="summ"),
            lambda: comm.all_reduce(x, out=np.empty(5)),
            lambda: comm.broadcast(x, root=n),
            lambda: comm.all_reduce(x, algorithm="rnig"),
            lambda: comm.reduce_scatter(np.ones(n + 1)) if n > 1 else comm.broadcast(x, root=-1),
        ):
            with raises(pc.InvalidArgumentError):
                wrong()
        for at_once in (lambda: comm.split(0), lambda: comm.empty(3), lambda: comm.plan("all_reduce", x)):
            with raises(pc.InvalidArgumentError, "outside of group()"):
                at_once()
        kept = comm.all_reduce(x)
        with raises(pc.InvalidArgumentError, "after the block"):
            kept.wait()
    assert (kept.wait() == n).all()
    m = np.zeros((4, 6))
    for issue in (
        lambda: (comm.all_reduce(x, out=x), comm.broadcast(x)),
        lambda: (comm.all_reduce(x), comm.all_reduce(x, out=x)),
        lambda: (comm.all_reduce(np.ones(4), out=x), comm.all_reduce(np.ones(4), out=x)),
        lambda: (comm.all_reduce(m[1:3], out=m[1:3]), comm.all_gatherv(m[:, 2], [4] * n)),
    ):
        with raises(pc.InvalidArgumentError, "calls 0 (", ") and 1 (", "independent"), comm.group():
            first, _ = issue()
        with raises(pc.AbortedError):
            first.wait()
    m = np.arange(24.0).reshape(4, 6) + me
    with comm.group():  # between each other, but apart
        for column in range(6):
            comm.all_reduce(m[:, column], out=m[:, column])
        comm.all_reduce(x)
        comm.broadcast(x)
    assert np.array_equal(m, n * np.arange(24.0).reshape(4, 6) + n * (n - 1) / 2)
    with raises(pc.InvalidArgumentError, "cannot be pickled"), comm.group():
        early = comm.all_reduce(np.ones(2))
        comm.all_gather_object(raises if me else lambda: 0)
        never = comm.all_reduce(np.ones(2, np.int8))
    assert early.wait()[0] == n
    with raises(pc.AbortedError, "was not made"):
        never.wait()
    assert comm.all_reduce(np.ones(1))[0] == n


LISTS: dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    # verb, elements, dtype, root of what most ranks issue, and of what rank 1 issues
    "order of two sizes": (
        [("all_reduce", 3, "f4"), ("all_reduce", 4, "f4")],
        [("all_reduce", 4, "f4"), ("all_reduce", 3, "f4")],
    ),
    "order of two verbs": (
        [("all_reduce", 3, "f4"), ("broadcast", 3, "f4")],
        [("broadcast", 3, "f4"), ("all_reduce", 3, "f4")],
    ),
    "order over two buffers": (
        [("all_reduce", 3, "f4"), ("broadcast", 3, "f4"), ("all_reduce", 3, "f4")],
        [("all_reduce", 3, "f4"), ("all_reduce", 3, "f4"), ("broadcast", 3, "f4")],
    ),
    "types of equal size": (
        [("broadcast", 4, "f4"), ("broadcast", 4, "f4")],
        [("broadcast", 4, "f4"), ("broadcast", 4, "i4")],
    ),
    "sizes of equal sum": (
        [("all_gather", 4, "f4"), ("all_gather", 2, "f4")],
        [("all_gather", 3, "f4"), ("all_gather", 3, "f4")],
    ),
    "one call more": ([("all_reduce", 4, "f4")], [("all_reduce", 4, "f4"), ("all_reduce", 4, "f4")]),
    "an empty call more": ([("all_reduce", 4, "f4")], [("all_reduce", 4, "f4"), ("all_reduce", 0, "f4")]),
    "dtype": (
        [("all_reduce", 4, "f4"), ("all_reduce", 4, "f8")],
        [("all_reduce", 4, "f4"), ("all_reduce", 4, "f4")],
    ),
    "root": ([("broadcast", 4, "f4", 0)], [("broadcast", 4, "f4", 1)]),
}


def mismatch(comm: pc.Communicator, name: str) -> None:
    """MismatchError on every rank, soon; no output has changed."""
    theirs, mine = LISTS[name]
    outs = []
    start = time.monotonic()
    with raises(pc.MismatchError):
        with comm.group():
            for verb, count, dtype, *root in mine if comm.rank == 1 else theirs:
                out = np.full(count * (comm.size if verb == "all_gather" else 1), 9, dtype)
                if verb != "broadcast" or (
                    comm.rank == 1 and root != [1]
                ):  # the others may agree with the root
                    outs.append(out)
                getattr(comm, verb)(
                    np.full(count, comm.rank, dtype), out=out, **({"root": root[0]} if root else {})
                )
        comm.barrier()  # a broadcast does not wait for all
    assert time.monotonic() - start < 5
    assert all((out == 9).all() for out in outs)


def apart(comm: pc.Communicator) -> None:
    """A group is of one communicator and of one thread's calls."""
    import threading

    other = comm.split(0, -comm.rank)
    assert other is not None
    x = np.array([comm.rank + 1.0])
    total = comm.size * (comm.size + 1) / 2
    with comm.group():
        pending = comm.all_reduce(x)
        assert other.all_reduce(x)[0] == total
        assert other.broadcast(x, root=0)[0] == comm.size
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(comm.all_reduce(x, "max")))
        thread.start()
        thread.join()
        assert found[0][0] == comm.size and not pending.done()
        with other.group():
            both = other.all_reduce(x)
    assert pending.wait()[0] == both.wait()[0] == total
    other.close()


def used(comm: pc.Communicator) -> None:
    """`pc.use` counts at the line of the call."""
    with comm.group():
        with pc.use(all_reduce="ring"):
            comm.all_reduce(np.ones(3))
            comm.all_reduce(np.ones(1 << 15))
        comm.all_reduce(np.ones(3), algorithm="two_shot")
    names = [r["algorithm"] for r in comm.history()[-3:]]
    assert sorted(names) == ["ring", "ring", "two_shot"], names


def threshold(comm: pc.Communicator) -> None:
    """Rank 0's setting counts."""
    assert comm.settings.fusion_bytes == 40
    before = calls_made(comm)
    with comm.group():
        for count in (5, 6, 5):  # 40, 48, 40 bytes
            comm.all_reduce(np.ones(count))
    assert calls_made(comm) - before == 2


def training(comm: pc.Communicator, steps: int) -> int:
    """The same group again and again: no kind is prepared twice."""
    gradients = [np.ones((k, 7), np.float32) for k in range(1, 9)]
    for step in range(steps):
        for g in gradients:
            g[...] = comm.rank + step
        with comm.group():
            for g in gradients:
                comm.all_reduce(g, "avg", out=g)
        assert all((g == (comm.size - 1) / 2 + step).all() for g in gradients)
    return len(comm._calls._kept)
