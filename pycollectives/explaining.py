"""All that `comm.explain` and `pycollectives explain` say of a call. Needs no other rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from . import dispatch, ops
from .calls import Calls, Kind
from .data_path import data_path
from .dispatch.selector import predicted
from .errors import InvalidArgumentError, UnsupportedError
from .extended_dtypes import dtype_of
from .ops import OpLike
from .schedule import COLLECTIVES


def explain_call(
    calls: Calls,
    verb: str,
    nbytes: Any,
    *,
    even: bool = True,
    named: str | None,
    reason: str,
    root: int,
    deterministic: bool,
    dtype: Any,
    op: OpLike,
    policy: str | None,
    on_device: Callable[[Kind], str] | None = None,
) -> dispatch.Explanation:
    """The candidates for a call, and what else bears on it; see `Communicator.explain`. `reason`: where `named` is from.
    even=False: one of the uneven forms; the path is that of equal blocks. `on_device`: what there is to say of arrays in device
    memory."""
    if not isinstance(nbytes, (int, np.integer)) or nbytes < 0:
        raise InvalidArgumentError(f"nbytes is {nbytes!r}; it must be a whole number, not negative")
    kind = _kind(calls.size, verb, int(nbytes), root, named, deterministic, dtype, op)
    query = calls.query(kind)
    if not even:
        query = replace(query, needs=replace(query.needs, even=False))
    found = dispatch.explain(query, calls.settings.tuning, named=named, reason=reason)
    notes = [*dispatch.notes(query, calls.settings.tuning, found, policy)]
    one, machine = query.algorithm(found.chosen), calls.settings.tuning.machine
    in_place = replace(machine, beta=machine.beta_symmetric)
    try:
        path = data_path(calls, one, kind)
        if len(path) > 1:
            seconds = predicted(one, query, in_place)
            path[1] += f": predicted {seconds * 1e6:.1f} us"
        notes += path
    except UnsupportedError as error:
        notes.append(f"cannot be run: {error}")
    if on_device is not None and verb != "barrier":
        notes.append(on_device(kind))
    return found.with_notes(notes)


def _kind(
    size: int,
    verb: str,
    nbytes: int,
    root: int,
    named: str | None,
    deterministic: bool,
    dtype: Any,
    op: OpLike,
) -> Kind:
    """A call of `nbytes`, rounded up to whole elements, and to one per rank where the vector has a block for each."""
    contract = COLLECTIVES[verb]
    if verb == "barrier":
        return Kind(verb, np.dtype(np.uint8), 0, named=named)
    try:
        element = dtype_of(dtype)
    except Exception:  # NumPy raises several kinds
        raise InvalidArgumentError(f"dtype {dtype!r} is not known") from None
    operator = ops.resolve(op, size) if contract.reduces else None
    if operator is not None:
        ops.check(operator, element.name)
    blocks = size if contract.in_blocks else 1
    count = -(-nbytes // (element.itemsize * blocks))
    return Kind(
        verb,
        element,
        count if contract.input == "block" else count * blocks,
        operator,
        root if contract.rooted else -1,
        named,
        deterministic,
    )
