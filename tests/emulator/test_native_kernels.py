"""The native kernels of the direct algorithms: arrays where they are, and through staging, in several rounds."""

from __future__ import annotations

import calls
import emulated
import numpy as np
import pytest
import reference
from calls import Call

from pycollectives import device

NATIVE = (
    ("all_reduce", "one_shot"),
    ("all_reduce", "two_shot"),
    ("reduce_scatter", "direct"),
    ("all_gather", "direct"),
    ("broadcast", "flat"),
)


def jobs(size: int, dtypes: tuple[str, ...]) -> list[Call]:
    """Every native kernel on arrays of all sorts: empty, odd, longer than staging, misaligned, in place."""
    made = []
    for i, (verb, algorithm) in enumerate(NATIVE):
        for k, count in enumerate((0, 1, 3, 67, 700, 1500)):
            dtype = dtypes[(i + k) % len(dtypes)]
            into = ("new", "in place", "offset")[(i + k) % 3]
            layout = "offset" if k % 2 else "c"
            made.append(
                Call(
                    verb,
                    algorithm,
                    "sum",
                    dtype,
                    (count,),
                    (i + k) % size,
                    layout,
                    into,
                    exact=k % 2 == 0,
                    seed=k,
                )
            )
    return made


@pytest.mark.parametrize("always_stage", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_native_kernels(size: int, always_stage: bool) -> None:
    made = jobs(size, ("float32", "int64", "bfloat16", "float16", "float64", "uint8"))
    options = device.emulated(native=True, always_stage=always_stage, threads=32 * (1 + size % 2))
    before = emulated.device().statistics()[1]
    digests = emulated.run(size, calls.check_all, made, options=options, seed=size)
    calls.agree(made, digests)
    assert emulated.device().statistics()[1] == before


@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_operators(dtype: str) -> None:
    made = [
        Call("all_reduce", ("one_shot", "two_shot")[i % 2], op, dtype, (41,), exact=op == "prod", seed=i)
        for i, op in enumerate(reference.operators(dtype))
    ]
    for any_kernel in (False, True):
        emulated.run(3, calls.check_all, made, options=device.emulated(native=True, any_kernel=any_kernel))


def test_it_is_the_native_kernel() -> None:
    """One launch of the native kernel, and none of the interpreter."""

    def fn(comm: object) -> list[str]:
        comm.all_reduce(np.ones(9), algorithm="two_shot")  # type: ignore[attr-defined]
        return [type(call).__name__ for call in comm._device._kept.values()]  # type: ignore[attr-defined]

    assert emulated.run(2, fn, options=device.emulated(native=True)) == [["DirectCall"]] * 2
    assert emulated.run(2, fn, options=device.emulated(native=False)) == [["Call"]] * 2
