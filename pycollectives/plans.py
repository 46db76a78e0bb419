"""Persistent calls: decided and checked once, made many times."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import as_input
from .caller import UNEVEN
from .dtypes import element_of
from .errors import InvalidArgumentError
from .group import outside
from .neighbors import Neighbors
from .object_exchange import function_of
from .object_messages import ObjectMessages
from .objects import Objects
from .pickles import COLLECTIVE_FORMS
from .point_to_point import check_tag, rank_of, target_of
from .schedule import COLLECTIVES
from .schedule.registry import suggest
from .work import PersistentMethod, persistent

ARRAYS = (*COLLECTIVES, *UNEVEN)
MESSAGES = (
    "send",
    "recv",
    "recv_from",
    "sendrecv",
    *("send_object", "recv_object", "recv_object_from", "sendrecv_object"),
)
VERBS = (*ARRAYS, *COLLECTIVE_FORMS, *MESSAGES, "neighbor_exchange")
GIVEN_LATER = ("value", "values")  # the object of an object verb


class Plans(Objects, ObjectMessages, Neighbors):
    """`plan()`; `Communicator` inherits it."""

    def plan(self, verb: str, *args: Any, **options: Any) -> Callable[..., Any]:
        """Decide and check a call once; the returned object makes it, on the same arrays, every time it is called.

            again = comm.plan("all_reduce", x, "max", out=x)
            again()                                              # comm.all_reduce(x, "max", out=x)
            told = comm.plan("broadcast_object", root=1)
            status = told(status)                                # comm.broadcast_object(status, root=1)

        Takes what the method of that name takes, but for `async_op`; for the verbs on objects also without the object, with
        which the plan is called each time. Returns the result, in the same array each time where there is no `out`. An uneven
        verb exchanges its counts here, and they hold for every call. Collective like the call itself, but for messages
        (`send`, `recv`, `sendrecv` and their object forms).

        Raises InvalidArgumentError for a verb or an option that does not exist, and what the call raises for its arguments.
        """
        self._native()
        outside(self, "plan")
        if self._spelt(verb) not in VERBS:
            raise InvalidArgumentError(f"unknown collective {verb!r}{suggest(str(verb), VERBS)}")
        try:
            given = _signature(type(self), verb).bind(*args, **options)
        except TypeError as error:
            raise InvalidArgumentError(f"plan({verb!r}): {error}") from None
        given.apply_defaults()
        if verb in MESSAGES:
            return self._plan_message(verb, given.arguments)
        if verb in COLLECTIVE_FORMS:
            return self._plan_objects(verb, given.arguments)
        if verb == "neighbor_exchange":
            return self._plan_exchange(**given.arguments)
        return self._plan_arrays(verb, given.arguments)

    def _plan_arrays(self, verb: str, options: dict[str, Any]) -> Callable[..., Any]:
        if options.pop("accumulate", None) is not None:
            raise InvalidArgumentError(
                "a plan reads the same arrays each time: give it x in the dtype of accumulate"
            )
        core, limit = self._native(), self._limit(options["timeout"])
        counts = options.get("counts")
        if verb == "all_to_allv":
            counts = options["send_counts"], options["recv_counts"]
        arguments = self._resolve(
            verb,
            np.empty(0, np.uint8) if verb == "barrier" else options["x"],
            options.get("op"),
            options.get("root"),
            counts,
            options.get("out"),
            options["algorithm"],
            options.get("deterministic", False),
        )
        if (device := self._device_of(arguments)) is not None:
            return device.plan(arguments, limit)
        kind = arguments.kind
        return persistent(
            core,
            self._calls.find(kind),
            arguments.x,
            arguments.buffers,
            limit,
            f"{verb}({kind.dtype}[{kind.count}])",
        )

    def _plan_objects(self, verb: str, options: dict[str, Any]) -> PersistentMethod:
        self._limit(options["timeout"])
        if "root" in options:
            options["root"] = self._root(options["root"])
        if "op" in options:
            options["op"] = function_of(options["op"])
        method = getattr(type(self), verb).__wrapped__  # at once, also in a group
        return PersistentMethod(functools.partial(method, self, **options), verb)

    def _plan_message(self, verb: str, options: dict[str, Any]) -> PersistentMethod:
        limit = options["timeout"] = self._limit(options["timeout"])
        sends = "dest" in options
        if sends:
            options["dest"] = rank_of(options["dest"], self.size, "dest")
        if "source" in options:
            options["source"] = rank_of(options["source"], self.size, "source", least=-1)
        options["tag"] = check_tag(options["tag"], least=0 if sends else -1)
        if options.get("recv_tag") is not None:
            options["recv_tag"] = check_tag(options["recv_tag"], least=-1)
        if options.get("out") is not None:
            target_of(options["out"])
        ends = (f"{what}={options[what]}" for what in ("dest", "source", "tag") if what in options)
        text = f"{verb}({', '.join(ends)})"
        if "x" in options:
            x = options["x"] = as_input(options["x"])
            if verb == "send" and x.flags.c_contiguous:
                call = functools.partial(self._messages.send, x, element_of(x.dtype))
                return PersistentMethod(functools.partial(call, options["dest"], options["tag"], limit), text)
        return PersistentMethod(functools.partial(getattr(self, verb), **options), text)


def _signature(cls: type[Plans], verb: str) -> inspect.Signature:
    """The parameters of a plan."""
    signature = inspect.signature(getattr(cls, verb))
    left_out = {"self", "async_op", *(GIVEN_LATER if "_object" in verb else ())}
    return signature.replace(
        parameters=[p for name, p in signature.parameters.items() if name not in left_out]
    )
