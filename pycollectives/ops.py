"""Reduction operators: by name, by NumPy ufunc, by `ReduceOp`, a scaled sum, or a function of the caller's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from .errors import InvalidArgumentError, UnsupportedError
from .extended_dtypes import dtype_of
from .schedule.registry import suggest
from .user_op import UserOp


class ReduceOp(str, Enum):
    """The operators. `AVG` is the sum divided by the number of ranks in it: all, or for scan and exscan those up to or before
    this one (integers: truncated toward zero)."""

    SUM = "sum"
    PROD = "prod"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"
    LAND = "land"
    LOR = "lor"
    LXOR = "lxor"


@dataclass(frozen=True)
class ScaledSum:
    """The sum over all ranks times `factor`, which must be the same on all ranks."""

    factor: float


OpLike: TypeAlias = "str | ReduceOp | ScaledSum | np.ufunc | UserOp"

_UFUNCS: dict[Any, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.minimum: "min",
    np.maximum: "max",
    np.bitwise_and: "band",
    np.bitwise_or: "bor",
    np.bitwise_xor: "bxor",
    np.logical_and: "land",
    np.logical_or: "lor",
    np.logical_xor: "lxor",
}
NAMES = tuple(op.value for op in ReduceOp)


def scaled_sum(factor: float) -> ScaledSum:
    """The operator "sum, then multiply by `factor`", computed in the accumulation type.

    Raises InvalidArgumentError if `factor` is no real number.
    """
    try:
        return ScaledSum(float(factor))
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"factor is {factor!r}; it must be a real number") from None


@dataclass(frozen=True)
class Operator:
    """A resolved operator: the kernel that combines, and what is done to the complete value."""

    name: str  # as in records: that of the kernel, "avg", "scaled_sum" or "op(function)"
    kernel: str
    epilogue: int = 0  # 0 none, 1 divide, 2 scale
    factor: float = 1.0
    commutative: bool = True
    user: UserOp | None = None  # what combines where the kernel is "user"


def resolve(op: OpLike, size: int) -> Operator:
    """The operator that a caller means; InvalidArgumentError suggests the near one."""
    if isinstance(op, ScaledSum):
        return Operator("scaled_sum", "sum", 2, op.factor)
    if isinstance(op, UserOp):
        return Operator(op.name, "user", commutative=op.commutative, user=op)
    if isinstance(op, np.ufunc):
        if op not in _UFUNCS:
            known = ", ".join(f"numpy.{u.__name__}" for u in _UFUNCS)
            raise InvalidArgumentError(
                f"numpy.{op.__name__} is not a reduction operator here. Known: {known}"
            )
        op = _UFUNCS[op]
    name = op.value if isinstance(op, ReduceOp) else op
    if callable(name):
        raise InvalidArgumentError(f"a function becomes an operator by pc.op(function), once; got {op!r}")
    if not isinstance(name, str) or name not in NAMES:  # type: ignore[redundant-expr]
        raise InvalidArgumentError(
            f"unknown operator {op!r}{suggest(str(name), NAMES)}. Known: {', '.join(NAMES)}"
        )
    return Operator("avg", "sum", 1, float(size)) if name == "avg" else Operator(name, name)


def check(operator: Operator, dtype: str) -> None:
    """UnsupportedError if `dtype` has no such reduction; the text names the operators that it has."""
    if operator.user is not None:
        operator.user.compile(dtype_of(dtype))
        return
    from . import _core

    kinds, kernels = _core.DTYPES, _core.OPS
    number = kinds.index(dtype)
    if not _core.supports(number, kernels.index(operator.kernel), operator.epilogue):
        can = [k for k in kernels if _core.supports(number, kernels.index(k), 0)]
        can += ["avg", "scaled_sum"] if _core.supports(number, kernels.index("sum"), 1) else []
        raise UnsupportedError(f"{operator.name} is not defined for {dtype}; defined are: {', '.join(can)}")
