"""What is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pycollectives.schedule import names

from . import others
from .rows import Row
from .timing import ITEM, Wish, once, ours


def plan(wish: Wish) -> Iterator[tuple[Row, Callable[[], float]]]:
    """What is measured, the most wanted first."""
    most, large = wish.ranks[-1], wish.large

    def row(
        what: str, verb: str, ranks: int, nbytes: int, algorithm: str, traffic: int = 0, **more: Any
    ) -> Any:
        return Row(what, verb, ranks, nbytes, traffic=traffic), lambda: ours(
            wish, verb, ranks, nbytes, algorithm, **more
        )

    tiny = {"native": True}
    wide = {} if wish.emulated else {"blocks": 1024}  # as many as the device holds
    yield row("launch of one rank, native", "all_reduce", 1, 8, "one_shot", **tiny)
    yield row("launch of one rank, native, in a graph", "all_reduce", 1, 8, "one_shot", graph=True, **tiny)
    yield row("launch of one rank, interpreted", "all_reduce", 1, 8, "one_shot", native=False)
    for n in wish.ranks:
        yield row("8 bytes, native one-shot", "all_reduce", n, 8, "one_shot", **tiny)
        yield row("8 bytes, native one-shot, in a graph", "all_reduce", n, 8, "one_shot", graph=True, **tiny)
        yield row("8 bytes, interpreted one-shot", "all_reduce", n, 8, "one_shot", native=False)
    for nbytes in sorted({large // 4, large}):
        yield row("copy kernel", "all_gather", 1, nbytes, "direct", 2 * nbytes, **wide)
        for n in wish.ranks:
            whole = nbytes // n // n * n
            yield row("n-ary reduction kernel", "reduce_scatter", n, whole, "direct", (n + 1) * whole, **wide)
            yield row("native two-shot", "all_reduce", n, whole, "two_shot", 2 * n * whole, **wide)
            yield row(
                "interpreted two-shot",
                "all_reduce",
                n,
                whole,
                "two_shot",
                2 * n * whole,
                native=False,
                **wide,
            )
            ring: dict[str, Any] = {"protocol": "simple", **wide}
            yield row("interpreted ring", "all_reduce", n, whole, "ring", **ring)
            yield row("hand-written ring", "all_reduce", n, whole, "ring", hand_ring=True, **ring)
            yield row("native all-gather", "all_gather", n, whole, "direct", (1 + n) * whole, **wide)
    yield from guarded("CuPy and PyTorch", lambda: by_others(wish))
    for n in wish.ranks:
        yield row("8 bytes, one launch, native one-shot", "all_reduce", n, 8, "one_shot", fused=True, **tiny)
        whole = large // n // n * n
        one: dict[str, Any] = {"fused": True, **wide}
        traffic = 2 * n * whole
        yield row("one launch, native two-shot", "all_reduce", n, whole, "two_shot", traffic, **one, **tiny)
        yield row("one launch, interpreted ring", "all_reduce", n, whole, "ring", protocol="simple", **one)
    yield from by_switch(wish, row)
    for n in (most, *(n for n in wish.ranks if n != most)):
        for nbytes in wish.sizes:
            for algorithm in names("all_reduce"):
                yield row(f"{algorithm}", "all_reduce", n, nbytes, algorithm, native=False)
    yield from guarded("NCCL", lambda: by_nccl(wish))


def by_others(wish: Wish) -> Iterator[Any]:
    """The same by CuPy and PyTorch."""
    for n in wish.ranks:
        for nbytes in wish.sizes:
            for name, call in others.on_one_device(wish.emulated, n, nbytes):
                yield Row(name, "all_reduce", n, nbytes), partial(once, wish, call)


def by_nccl(wish: Wish) -> Iterator[Any]:
    """The same by NCCL, on several devices."""
    for nbytes in wish.sizes:
        for name, ranks, measure in others.nccl(wish.emulated, nbytes):
            yield Row(name, "all_reduce", ranks, nbytes), measure


def guarded(name: str, rows: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """What another library cannot do is a row that failed, and costs no other."""
    try:
        yield from rows()
    except Exception as error:
        failure = error

        def fail() -> float:
            raise failure

        yield Row(f"{name}: making its arrays", "all_reduce", 0, 0), fail


def by_switch(wish: Wish, row: Callable[..., Any]) -> Iterator[Any]:
    """Ranks with a device each: through the switch, with arrays where they are and with copies of them, and without it."""
    n = others.switched(wish.emulated)
    if n < 2:
        return
    alone: dict[str, Any] = {"spread": True, "native": True}
    for nbytes in (*wish.sizes, wish.large):
        for algorithm, verb in (
            ("two_shot", "all_reduce"),
            ("direct", "all_gather"),
            ("direct", "reduce_scatter"),
        ):
            whole = max(nbytes // ITEM // n, 4) * n * ITEM
            name = f"{verb} on {n} devices"
            by = {"multicast": True, **alone}
            yield row(f"{name}, by the switch, in place", verb, n, whole, algorithm, symmetric=True, **by)
            yield row(f"{name}, by the switch, copied", verb, n, whole, algorithm, **by)
            yield row(
                f"{name}, not by the switch",
                verb,
                n,
                whole,
                algorithm,
                symmetric=True,
                multicast=False,
                **alone,
            )
