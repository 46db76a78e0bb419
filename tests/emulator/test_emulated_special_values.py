"""NaN, infinities, zeros of both signs, subnormals and overflow by the CUDA kernels: the same bits as on the CPU."""

from __future__ import annotations

import emulated
import pytest
import special_values
from special_values import FLOATS, INTEGERS

from pycollectives import device
from pycollectives.device import Options

# The interpreter and native kernels, those that are made for a type and an operator, and those that decide at run time.
KERNELS = {
    "interpreter": device.emulated(),
    "any": device.emulated(any_kernel=True),
    "native": device.emulated(native=True),
}
ALGORITHMS = ("one_shot", "two_shot", "ring")  # the native kernels have the first two

by_all_kernels = pytest.mark.parametrize("options", KERNELS.values(), ids=KERNELS)


@by_all_kernels
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_all_pairs(dtype: str, options: Options) -> None:
    emulated.run(2, special_values.all_pairs, dtype, ALGORITHMS, options=options)


@by_all_kernels
def test_integers(options: Options) -> None:
    """Averages divide the wrapped sum, scaled sums saturate, large ones are exact."""
    for dtype in INTEGERS:
        emulated.run(2, special_values.averages_truncate, dtype, ALGORITHMS, options=options)
        emulated.run(2, special_values.scaled_sums_saturate, dtype, ALGORITHMS, options=options)
    emulated.run(2, special_values.large_integers_are_exact, ALGORITHMS, options=options)


@by_all_kernels
def test_floats(options: Options) -> None:
    """Overflow, and subnormals, which are not flushed."""
    emulated.run(2, special_values.small_floats_overflow, ALGORITHMS, options=options)
    emulated.run(3, special_values.subnormals_stay, ALGORITHMS, options=options)
