"""Dtypes by name, with bfloat16, float8_* and the like of ml_dtypes among them.

ml_dtypes is imported when one of its types is asked for, no earlier: that takes up to twice as long as all the rest of
`import pycollectives`. An array of such a type was made by somebody who has imported it.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def dtype_of(named: Any) -> np.dtype[Any]:
    """NumPy's dtype for a name, a type or a dtype; raises what `numpy.dtype` raises."""
    dtype: np.dtype[Any]
    try:
        dtype = np.dtype(named)
    except TypeError:
        if not isinstance(named, str):
            raise
        import ml_dtypes  # noqa: F401 - teaches NumPy the names of its types

        dtype = np.dtype(named)
    return dtype


def finfo(dtype: np.dtype[Any]) -> Any:
    """What `numpy.finfo` says, of ml_dtypes' types too."""
    if dtype.kind in "fc":
        try:
            return np.finfo(dtype)
        except ValueError:  # one of ml_dtypes that calls itself a float
            pass
    import ml_dtypes

    info: Any = ml_dtypes.finfo
    return info(dtype)
