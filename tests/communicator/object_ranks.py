"""What the ranks of test_objects.py do."""

from __future__ import annotations

import functools
import itertools
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
)


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


def exchange(comm: pc.Communicator, seed: int, nbytes: int) -> None:
    """Every form that moves objects, against plain Python; every root."""
    n, me = comm.size, comm.rank
    values = [value(r, seed, nbytes) for r in range(n)]
    table = [[value(a * n + b, seed + 1, nbytes) for b in range(n)] for a in range(n)]
    assert equal(comm.all_gather_object(values[me]), values)
    assert equal(comm.all_to_all_object(table[me]), [table[r][me] for r in range(n)])
    for root in range(n):
        got = comm.gather_object(values[me], root=root)
        assert equal(got, values if me == root else None)
        got = comm.broadcast_object(values[me] if me == root else object, root=root)
        assert equal(got, values[root]) and (me != root or got is values[root])
        assert equal(comm.scatter_object(table[root] if me == root else None, root=root), table[root][me])


def folds(comm: pc.Communicator) -> None:
    """The reductions, in rank order."""
    n, me = comm.size, comm.rank
    words = [chr(97 + r) * (r % 3) for r in range(n)]
    for op in (join, lean):
        whole = functools.reduce(op, words)
        assert comm.all_reduce_object(words[me], op) == whole
        assert comm.scan_object(words[me], op) == list(itertools.accumulate(words, op))[me]
        for root in range(n):
            assert comm.reduce_object(words[me], op, root=root) == (whole if me == root else None)
    assert comm.all_reduce_object(1 << (100 + me)) == sum(1 << (100 + r) for r in range(n))
    mine = [me]
    assert comm.scan_object(mine, operator.iadd) == list(range(me + 1)) and mine == [me]
    assert comm.all_reduce_object(mine, operator.iadd) == list(range(n)) and mine == [me]


def call(comm: pc.Communicator, form: str, mine: Any, root: int = 0) -> Any:
    """One form, with `mine` as what this rank gives."""
    if form in ("all_to_all_object", "scatter_object"):
        mine = [1] * (comm.size - 1) + [mine]
    options = (
        {"root": root}
        if form in ("gather_object", "broadcast_object", "scatter_object", "reduce_object")
        else {}
    )
    return getattr(comm, form)(mine, **options)


def refuse(comm: pc.Communicator, form: str, culprit: int, bad: Any, words: list[str]) -> None:
    """Every rank raises soon, names the rank and the reason, and goes on."""
    root = culprit if form in ("broadcast_object", "scatter_object") else 0
    comm.barrier()
    start = time.monotonic()
    try:
        call(comm, form, bad if comm.rank == culprit else 5, root)
    except pc.InvalidArgumentError as error:
        assert time.monotonic() - start < 2
        for word in [form, f"rank {culprit}", *words]:
            assert word in str(error), str(error)
        assert (error.rank, error.peer, error.collective) == (comm.rank, culprit, form)
        assert (error.__cause__ is not None) == (comm.rank == culprit)
    else:
        raise AssertionError("nothing was raised")
    assert comm.all_gather_object(comm.rank) == list(range(comm.size))


def refuse_all(comm: pc.Communicator, form: str) -> None:
    for culprit in range(comm.size):
        refuse(comm, form, culprit, Unpicklable(), ["RuntimeError", "I stay here ééé"])
        refuse(comm, form, culprit, lambda: 0, ["cannot be pickled"])
        refuse(comm, form, culprit, Secret(), ["Unspeakable"])


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
    for root in (n, -1, 1.5):
        try:
            comm.broadcast_object(1, root=root)  # type: ignore[arg-type]
        except pc.InvalidArgumentError:
            continue
        raise AssertionError(root)
    folds(comm)


def bad_operator(comm: pc.Communicator) -> None:
    """`op` raises, or makes what cannot be pickled: on one rank, told to all."""
    for form, op, words in (
        ("all_reduce_object", lambda a, b: a / 0, "op raised ZeroDivisionError"),
        ("reduce_object", lambda a, b: a / 0, "op raised ZeroDivisionError"),
        ("scan_object", lambda a, b: a / 0, "op raised ZeroDivisionError"),
        ("all_reduce_object", lambda a, b: Unpicklable(), "the object cannot be pickled"),
        ("scan_object", lambda a, b: Unpicklable(), "the result of op for rank 1 cannot be pickled"),
    ):
        try:
            getattr(comm, form)(1, op)
        except pc.InvalidArgumentError as error:
            assert words in str(error) and error.peer == 0, str(error)
        else:
            raise AssertionError(form)
    folds(comm)


def unreadable(comm: pc.Communicator) -> None:
    """What arrives cannot be unpickled: an error that names the sender, and all stay in step."""
    for form in FORMS:
        reduces = form in ("reduce_object", "all_reduce_object", "scan_object")
        kind: Any = pc.InvalidArgumentError if reduces else pc.CollectiveError
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
