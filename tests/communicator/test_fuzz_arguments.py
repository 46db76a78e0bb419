"""Any Python object in any argument of any verb: an error of the family or a result, and the communicator goes on.

HYPOTHESIS_PROFILE=long searches for an hour or so.
"""

from __future__ import annotations

import inspect
import os
import threading
from typing import Any

import numpy as np
import pytest
import ranks
from hypothesis import given, settings
from hypothesis import strategies as st

import pycollectives as pc
from pycollectives.communicator import Communicator

EXAMPLES = settings().max_examples if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 40

COLLECTIVE = (
    *("all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "barrier", "gather", "scatter"),
    *("all_to_all", "scan", "exscan", "all_gatherv", "reduce_scatterv", "gatherv", "scatterv", "all_to_allv"),
    *("all_gather_object", "gather_object", "broadcast_object", "scatter_object", "all_to_all_object"),
    *("reduce_object", "all_reduce_object", "scan_object", "split", "plan", "empty", "explain", "algorithms"),
)
MESSAGES = ("send", "recv", "sendrecv", "send_object", "recv_object", "neighbor_exchange", "history")


class Refuses(Exception):
    """What the objects below raise."""


class Hostile:
    """Every protocol that an array library might ask for raises."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array") or name.startswith("__dlpack") or name.startswith("__cuda"):
            raise Refuses(name)
        raise AttributeError(name)

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise Refuses

    __index__ = __int__ = __float__ = __len__ = __iter__ = __bool__ = __eq__ = __hash__ = _raise  # type: ignore[assignment]


class Lies:
    """Claims to be an array where there is no memory of that kind."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def chosen(things: list[Any]) -> st.SearchStrategy[Any]:
    """One of these, which may not be compared."""
    return st.integers(0, len(things) - 1).map(lambda i: things[i])


def arrays() -> st.SearchStrategy[Any]:
    base = np.arange(24)
    readonly = np.ones(4)
    readonly.flags.writeable = False
    record = np.zeros(3, [("a", "i4"), ("b", "f8")])
    odd = np.frombuffer(bytes(33), np.uint8)[1:].view(np.float64)
    found = [
        *(np.ones(4, kind) for kind in ("f4", "f8", "i1", "u8", "c16", "?", ">f8", "g", "G", "S5", "U3", "M8[s]", "m8", "O")),
        *(np.zeros(shape) for shape in ((), (0,), (2, 0, 3), (4, 1), (1,) * 12)),
        base[::2], base[::-1], base.reshape(4, 6).T, base.reshape(2, 3, 4)[:, 1], readonly, record, record["b"], odd,
        np.broadcast_to(np.ones(1), (5,)), np.ma.array([1.0, 2.0], mask=[0, 1]), np.float32(3), np.str_("x"),
        memoryview(bytes(8)), bytearray(8), range(5), [1, 2.0], [[1], [2, 3]], (np.ones(2), np.ones(2)),
    ]  # fmt: skip
    return chosen(found)


def oddities() -> st.SearchStrategy[Any]:
    lies = [
        Lies({"shape": (4,), "typestr": "<f8", "version": 3}),
        Lies({"shape": "four", "typestr": "<f8", "data": (0, False), "version": 3}),
        Lies({}),
    ]
    things = [
        None, ..., NotImplemented, Hostile(), Hostile, object(), *lies, type, int, len, lambda a, b: a, np.add, np.sin,
        pc.ReduceOp.MAX, pc.scaled_sum(2), pc.scaled_sum(float("nan")), threading.Lock(), 1j, {}, {1: 2}, {3}, b"x", "",
    ]  # fmt: skip
    return chosen(things)


def objects() -> st.SearchStrategy[Any]:
    numbers = st.one_of(
        st.integers(-3, 5), st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.just(np.int64(1))
    )
    names = st.sampled_from(
        ["sum", "avg", "max", "smu", "ring", "all_reduce", "float32", "\0", "é" * 99, "float31"]
    )
    lists = st.lists(st.integers(-1, 4), max_size=4)
    return st.one_of(arrays(), oddities(), numbers, names, lists, st.text(max_size=5))


def calls(verbs: tuple[str, ...]) -> st.SearchStrategy[tuple[str, dict[str, Any], list[Any]]]:
    """(verb, keyword arguments, positional ones)."""

    def arguments(verb: str) -> st.SearchStrategy[tuple[str, dict[str, Any], list[Any]]]:
        method = getattr(Communicator, verb)
        method = getattr(method, "__wrapped__", method)
        parameters = list(inspect.signature(method).parameters.values())[1:]
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        required = [p for p in positional if p.default is p.empty]
        named = {
            p.name: st.just(False) if p.name == "async_op" else objects()
            for p in parameters
            if p.kind == p.KEYWORD_ONLY and p.name != "timeout"
        }
        must = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY and p.default is p.empty]
        given_named = st.fixed_dictionaries(
            {name: named[name] for name in must}, optional={k: v for k, v in named.items() if k not in must}
        )
        return st.tuples(
            st.just(verb),
            given_named,
            st.lists(objects(), min_size=len(required), max_size=len(positional)),
        )

    return st.sampled_from(verbs).flatmap(arguments)


def outcome(comm: Any, verb: str, named: dict[str, Any], positional: list[Any]) -> str:
    if "timeout" in inspect.signature(getattr(Communicator, verb)).parameters:
        named = {**named, "timeout": 0.05 if verb in MESSAGES else 20.0}
    try:
        getattr(comm, verb)(*positional, **named)
        return "made"
    except (pc.CollectiveError, Refuses) as error:
        return type(error).__name__


RECOVERABLE = ("made", "InvalidArgumentError", "UnsupportedError", "TransportError", "Refuses")


@pytest.mark.parametrize("verb", COLLECTIVE + MESSAGES)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_one_rank(verb: str, data: st.DataObject) -> None:
    call = data.draw(calls((verb,)))

    def body(comm: Any) -> None:
        assert outcome(comm, *call) in (*RECOVERABLE, "CollectiveTimeoutError")
        assert comm.all_reduce(np.ones(3)).tolist() == [1] * 3

    ranks.threads(1, body)


def is_same_everywhere(call: tuple[str, dict[str, Any], list[Any]]) -> bool:
    """Only the root, or all but rank 0, look at `out` of these."""
    return not (call[0] in ("reduce", "gather", "gatherv", "exscan", "plan") and "out" in call[1])


@settings(max_examples=EXAMPLES)
@given(st.lists(calls(COLLECTIVE).filter(is_same_everywhere), min_size=4, max_size=12))
def test_two_ranks(several: list[tuple[str, dict[str, Any], list[Any]]]) -> None:
    """Both make the same calls, come to the same end, and go on."""

    def body(comm: Any) -> list[str]:
        found = []
        for call in several:
            found.append(outcome(comm, *call))
            assert found[-1] in RECOVERABLE, call
            assert comm.all_reduce(np.ones(3)).tolist() == [2] * 3
        return found

    first, second = ranks.threads(2, body)
    assert first == second
