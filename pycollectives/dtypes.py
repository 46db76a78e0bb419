"""How the dtype of a message travels: as a number, or as a text that describes it."""

from __future__ import annotations

import ast
import math
from functools import lru_cache
from typing import Any

import numpy as np

from . import _core
from .arrays import Array, as_input, dtype_name
from .errors import UnsupportedError
from .extended_dtypes import dtype_of

_NUMBER = {name: i for i, name in enumerate(_core.DTYPES)}
_DESCRIBED = 255


def array_of(number: int, text: str, shape: tuple[int, ...], memory: Any) -> Array:
    """The array of a received message."""
    dtype = _dtype(number, text)
    if math.prod(shape) * dtype.itemsize == 0:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, buffer=memory)


@lru_cache(maxsize=1024)
def element_of(dtype: np.dtype[Any]) -> Any:
    """What the native side knows of a dtype. One without a number travels as text: its name, or what it is made of."""
    as_input(np.empty(0, dtype))  # refuses Python objects and foreign byte order
    if (number := _NUMBER.get(dtype_name(dtype))) is not None:
        return _core.Element(number, "")
    for text in (dtype.name, repr(np.lib.format.dtype_to_descr(dtype))):
        try:
            if _dtype(_DESCRIBED, text) == dtype and len(text.encode()) <= _core.LONGEST_DTYPE:
                return _core.Element(_DESCRIBED, text)
        except Exception:  # not a description of it: NumPy raises several kinds
            continue
    raise UnsupportedError(
        f"dtype {dtype} cannot be described in a message; send its bytes: x.view(numpy.uint8)"
    )


@lru_cache(maxsize=1024)
def _dtype(number: int, text: str) -> np.dtype[Any]:
    if number != _DESCRIBED:
        return dtype_of(_core.DTYPES[number])
    try:
        return dtype_of(text)
    except TypeError:
        made: np.dtype[Any] = np.lib.format.descr_to_dtype(ast.literal_eval(text))
        return made
