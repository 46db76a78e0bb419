"""What is measured, the most wanted first: where the time is not enough, it is the end that is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pycollectives.schedule import names

from . import others
from .rows import Row
from .timing import BYTES, Wish, once, ours

Rows = Iterator[tuple[Row, Callable[[], float]]]
# The collectives that have a native kernel beside the interpreter, with their algorithm.
NATIVE = (
    ("all_reduce", "two_shot"),
    ("reduce_scatter", "direct"),
    ("all_gather", "direct"),
    ("broadcast", "flat"),
)
REST = ("broadcast", "all_gather", "reduce_scatter", "all_to_all", "reduce", "scan")
BLOCKS = ("reduce_scatter", "all_gather", "all_to_all")
NATIVELY: dict[str, Any] = {"native": True}


def plan(wish: Wish) -> Rows:
    """All rows."""
    yield from latencies(wish)
    yield from bandwidths(wish)
    yield from guarded("CuPy and PyTorch", lambda: by_others(wish))
    yield from one_launch(wish)
    yield from guarded("several devices", lambda: on_devices(wish))
    yield from protocols(wish)
    yield from small_floats(wish)
    brief = replace(wish, rounds=min(wish.rounds, 3), round_seconds=wish.round_seconds / 2)  # they are many
    most, few = (wish.ranks[-1],), (wish.sizes[1], wish.sizes[-1])
    yield from algorithms(brief, ("all_reduce",), most, wish.sizes)
    yield from algorithms(brief, REST, most, few)
    yield from algorithms(brief, ("all_reduce",), wish.ranks[:-1], few)


def row(
    wish: Wish,
    what: str,
    verb: str,
    ranks: int,
    nbytes: int,
    algorithm: str | None,
    traffic: int = 0,
    **more: Any,
) -> tuple[Row, Callable[[], float]]:
    measured = partial(ours, wish, verb, ranks, nbytes, algorithm, **more)
    return Row(what, verb, ranks, nbytes, traffic=traffic), measured


def wide(wish: Wish) -> dict[str, Any]:
    """As many blocks as the device holds."""
    return {} if wish.emulated else {"blocks": 1024}


def whole(nbytes: int, ranks: int) -> int:
    """So many bytes, or a few less, that they are blocks of whole vectors for so many ranks."""
    return max(nbytes // (16 * ranks), 1) * 16 * ranks


def latencies(wish: Wish) -> Rows:
    """Of one call that is waited for, and in a row of calls, where the next one is queued while the last one runs."""
    for what, options in (("native", NATIVELY), ("interpreted", {"native": False})):
        for n in (1, *wish.ranks):
            name = f"launch of one rank, {what}" if n == 1 else f"8 bytes, {what} one-shot"
            ways: tuple[tuple[str, dict[str, Any]], ...] = (
                ("call and wait", {"waits": True}),
                ("calls in a row", {}),
                ("in a graph", {"graph": True}),
            )
            for way, more in ways:
                yield row(wish, f"{name}, {way}", "all_reduce", n, 8, "one_shot", **more, **options)


def bandwidths(wish: Wish) -> Rows:
    """Native kernels beside interpreted ones, against what all ranks must read and write."""
    large, most = wish.large, wide(wish)
    for nbytes in sorted({large // 4, large}):
        yield row(wish, "copy kernel", "all_gather", 1, nbytes, "direct", 2 * nbytes, **most)
        for n in wish.ranks:
            size = whole(nbytes, n)
            traffic = {"all_reduce": 2 * n * size, "reduce_scatter": (n + 1) * size}
            for verb, algorithm in NATIVE:
                moved = traffic.get(verb, (1 + n) * size)
                name = "two-shot" if verb == "all_reduce" else verb.replace("_", "-")
                first = "n-ary reduction kernel" if verb == "reduce_scatter" else f"native {name}"
                yield row(wish, first, verb, n, size, algorithm, moved, **most)
                yield row(wish, f"interpreted {name}", verb, n, size, algorithm, moved, native=False, **most)
            ring: dict[str, Any] = {"protocol": "simple", **most}
            yield row(wish, "interpreted ring", "all_reduce", n, size, "ring", **ring)
            yield row(wish, "hand-written ring", "all_reduce", n, size, "ring", hand_ring=True, **ring)


def one_launch(wish: Wish) -> Rows:
    """The same where ranks share a launch."""
    for n in wish.ranks:
        size, one = whole(wish.large, n), {"fused": True, **wide(wish)}
        for way, more in (("call and wait", {"waits": True}), ("calls in a row", {})):
            name = f"8 bytes, one launch, native one-shot, {way}"
            yield row(wish, name, "all_reduce", n, 8, "one_shot", fused=True, **more, **NATIVELY)
        moved = 2 * n * size
        yield row(wish, "one launch, native two-shot", "all_reduce", n, size, "two_shot", moved, **one)
        yield row(
            wish, "one launch, interpreted ring", "all_reduce", n, size, "ring", protocol="simple", **one
        )


def protocols(wish: Wish) -> Rows:
    """By size. LL128 is not chosen for ranks on one device, but it has a speed there."""
    for n in (wish.ranks[-1], wish.ranks[0]):
        for nbytes in wish.protocol_sizes:
            for protocol, name in (("ll", "LL"), ("ll128", "LL128"), ("simple", "Simple")):
                for algorithm in ("one_shot", "ring") if n == wish.ranks[-1] else ("ring",):
                    what, size = f"{name}, {algorithm}", nbytes if nbytes < 16 * n else whole(nbytes, n)
                    yield row(wish, what, "all_reduce", n, size, algorithm, native=False, protocol=protocol)


def small_floats(wish: Wish) -> Rows:
    """bfloat16, which is combined in float32, beside float32 in rows of the same size."""
    for n in wish.ranks:
        size, more = whole(wish.large, n), {"dtype": "bfloat16", **wide(wish)}
        for verb, algorithm in NATIVE[:2]:
            name = "two-shot" if verb == "all_reduce" else verb.replace("_", "-")
            moved = (2 * n if verb == "all_reduce" else n + 1) * size
            yield row(wish, f"native {name} of bfloat16", verb, n, size, algorithm, moved, **more)
        ring: dict[str, Any] = {"protocol": "simple", **more}
        yield row(wish, "interpreted ring of bfloat16", "all_reduce", n, size, "ring", **ring)


def algorithms(wish: Wish, verbs: tuple[str, ...], ranks: tuple[int, ...], sizes: tuple[int, ...]) -> Rows:
    """Every algorithm, interpreted."""
    for n in ranks:
        for nbytes in dict.fromkeys(sizes):
            for verb in verbs:
                for algorithm in names(verb):
                    what = algorithm if verb == "all_reduce" else f"{verb} {algorithm}"
                    size = whole(nbytes, n) if verb in BLOCKS else nbytes
                    yield row(wish, what, verb, n, size, algorithm, native=False)


def by_others(wish: Wish) -> Rows:
    """The same by CuPy and PyTorch."""
    for n in wish.ranks:
        for nbytes in wish.sizes:
            for name, (call, is_right) in others.on_one_device(wish.emulated, n, nbytes):
                yield Row(name, "all_reduce", n, nbytes), partial(once, wish, call, is_right)


def on_devices(wish: Wish) -> Rows:
    """Ranks with a device each: by native kernels, with arrays where they are, and by the switch where there is one, in place and
    copied; interpreted; and by NCCL.
    """
    n, item = others.devices(wish.emulated), BYTES["float32"]
    if n < 2:
        return
    compared = "nccl" not in others.missing(wish.emulated)
    by_switch = others.switched(wish.emulated)
    for nbytes in (*wish.sizes, wish.large):
        for verb, algorithm in NATIVE:
            size, name = max(nbytes // item // n, 4) * n * item, f"{verb} on {n} devices"
            one = partial(row, wish, verb=verb, ranks=n, nbytes=size, spread=True)
            if by_switch:
                there: dict[str, Any] = {"algorithm": algorithm, "native": True, "multicast": True}
                yield one(f"{name}, by the switch, in place", symmetric=True, **there)
                yield one(f"{name}, by the switch, copied", **there)
            by_hand: dict[str, Any] = {"algorithm": algorithm, "native": True, "multicast": False}
            yield one(f"{name}, not by the switch", symmetric=True, **by_hand)
            yield one(f"{name}, interpreted", algorithm=None, native=False)
            if compared:
                yield Row(f"{name}, NCCL", verb, n, size), partial(others.by_nccl, wish, verb, n, size)


def guarded(name: str, rows: Callable[[], Rows]) -> Rows:
    """What another library cannot do is a row that failed, and costs no other."""
    try:
        yield from rows()
    except Exception as error:
        failure = error

        def fail() -> float:
            raise failure

        yield Row(f"{name}: making its arrays", "all_reduce", 0, 0), fail
