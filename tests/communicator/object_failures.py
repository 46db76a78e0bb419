"""What the ranks of test_objects.py do wrong: what cannot be pickled, read or believed, and operators that raise."""

from __future__ import annotations

import time
import zlib
from typing import Any

import numpy as np
from object_ranks import FOLDS, FORMS, LISTS, WAYS, call, folds, made

import pycollectives as pc
from pycollectives import _core, pickles


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


def mixed_up(comm: pc.Communicator, theirs: tuple[str, int], mine: tuple[str, int]) -> str:
    """Rank 1 makes another call than the others; the error."""
    form, root = mine if comm.rank == 1 else theirs
    try:
        call(comm, form, 1, root)
        comm.barrier(timeout=10)
    except pc.MismatchError as error:
        return str(error)
    raise AssertionError("nothing was raised")


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
