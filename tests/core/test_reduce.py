"""The reduction kernels, for every instruction set of this machine, against NumPy and ml_dtypes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reduction import (
    COMBINATIONS,
    DTYPES,
    EPILOGUES,
    GUARD,
    SCALES,
    SMALL_FLOATS,
    Array,
    Case,
    accumulation,
    assert_same_bits,
    check,
    is_float,
    run,
)

from pycollectives import _core


@st.composite
def cases(draw: st.DrawFn) -> Case:
    dtype, op = draw(st.sampled_from(COMBINATIONS))
    d, o = _core.DTYPES.index(dtype), _core.OPS.index(op)
    kind = draw(st.sampled_from([k for k, code in EPILOGUES.items() if _core.supports(d, o, code)]))
    if kind == "divide":
        factor = float(draw(st.integers(1, 300)))
    else:
        factor = draw(st.sampled_from(SCALES)) if kind == "scale" else 1.0
    widths = st.booleans() if draw(st.booleans()) else st.just(False)
    source_wide = tuple(draw(st.lists(widths, min_size=1, max_size=9)))
    sink_wide = tuple(draw(st.lists(widths, min_size=1, max_size=2)))
    aliases = [i for i, wide in enumerate(source_wide) if wide == sink_wide[0]]
    return Case(
        dtype=dtype,
        op=op,
        count=draw(st.integers(0, 300)),
        source_wide=source_wide,
        sink_wide=sink_wide,
        epilogue=kind,
        factor=factor,
        in_place=draw(st.sampled_from([None, *aliases])),
        offset=draw(st.integers(0, GUARD)),
        far=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@pytest.mark.parametrize(("far", "stream"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("dtype", "op"), COMBINATIONS)
def test_two_long_sources(dtype: str, op: str, far: bool, stream: bool) -> None:
    """They may be read in several stretches at a time, and their results streamed; the bits are the same, whatever is left
    at the end."""
    for i, nbytes in enumerate((16384 - 64, 16384, 16384 + 65, 70_000)):
        count, sinks = nbytes // DTYPES[dtype].itemsize, (False,) * (1 + i % 2)
        case = Case(dtype, op, count, sink_wide=sinks, offset=7 * i, seed=i, far=far, stream=stream)
        check(replace(case, in_place=1 if i % 2 else None))


@settings(max_examples=400)
@given(cases())
def test_any_case(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("dtype", "op"), COMBINATIONS)
def test_every_combination(dtype: str, op: str) -> None:
    for nsources in (1, 2, 3, 4, 5, 6, 7, 8, 9):
        for count in (1, 7, 64, 131):
            narrow = Case(dtype, op, count, (False,) * nsources, seed=count, offset=nsources)
            check(narrow)
            check(replace(narrow, sink_wide=(False, True), in_place=nsources - 1))
            mixed = tuple((i + count) % 2 == 0 for i in range(nsources))
            check(replace(narrow, source_wide=mixed, sink_wide=(True, False)))


@pytest.mark.parametrize("dtype", [name for name in _core.DTYPES if name != "bool"])
@pytest.mark.parametrize("kind", ["divide", "scale"])
def test_epilogues(dtype: str, kind: str) -> None:
    for nsources in (1, 2, 5, 9):
        for factor in (1.0, 3.0, 8.0, 200.0) if kind == "divide" else SCALES:
            case = Case(dtype, "sum", 75, (False,) * nsources, (False,), kind, factor, seed=nsources)
            check(case)
            check(replace(case, sink_wide=(True, False)))


@pytest.mark.parametrize("dtype", list(_core.DTYPES))
@pytest.mark.parametrize("nsources", [1, 2, 4, 5, 8, 9])
def test_beyond_one_block(dtype: str, nsources: int) -> None:
    block = 8192 // accumulation(dtype).itemsize
    for count in (block - 1, block, block + 1, 3 * block + 5):
        case = Case(dtype, "sum", count, (False,) * nsources, (False, False), seed=count)
        check(case)
        check(replace(case, sink_wide=(True,), source_wide=(True,) + (False,) * (nsources - 1)))
    if dtype in ("int32", "uint8", "float64"):
        check(Case(dtype, "sum", 2 * block + 3, (False,) * nsources, (False, False), "divide", 3.0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "complex64"])
@pytest.mark.parametrize("nsources", [17, 64, 1024])
def test_many_sources(dtype: str, nsources: int) -> None:
    check(Case(dtype, "sum", 133, (False,) * nsources, in_place=nsources // 2))


def convert(values: Array, dtype: str, source_wide: bool, simd: str) -> Array:
    case = Case(dtype, "sum", values.size, (source_wide,), (not source_wide,))
    return run(case, [values], simd)[0]


@pytest.mark.parametrize("simd", _core.SIMD)
@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_every_code_widens(dtype: str, simd: str) -> None:
    item = DTYPES[dtype].itemsize
    codes = np.arange(2 ** (8 * item), dtype=f"u{item}").view(DTYPES[dtype])
    wide = convert(codes, dtype, False, simd)
    assert_same_bits(wide, codes.astype(np.float32), simd)
    assert np.array_equal(np.signbit(wide), np.signbit(codes.astype(np.float32)))


@pytest.mark.parametrize("simd", _core.SIMD)
@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_narrowing_rounds_to_even(dtype: str, simd: str) -> None:
    """All upper halves of a float32 with the lower halves around every tie, infinities and NaNs included."""
    low = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001, 0xF000, 0xFFFF]
    bits = np.arange(2**16, dtype=np.uint32)[:, None] << np.uint32(16) | np.array(low, np.uint32)
    values = bits.reshape(-1).view(np.float32)
    narrow = convert(values, dtype, True, simd)
    with np.errstate(all="ignore"):
        wanted = values.astype(DTYPES[dtype])
    assert_same_bits(narrow, wanted, simd)
    assert np.array_equal(np.signbit(narrow), np.signbit(wanted))


@pytest.mark.parametrize("simd", _core.SIMD)
@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_rounds_once(dtype: str, simd: str) -> None:
    """A sum that loses its small part when every step is rounded."""
    epsilon = float(ml_dtypes.finfo(DTYPES[dtype]).eps)
    parts = [np.full(70, value, DTYPES[dtype]) for value in (1.0, epsilon / 2, epsilon / 2, epsilon / 2)]
    total = run(Case(dtype, "sum", 70, (False,) * 4), parts, simd)[0]
    assert np.all(total.astype(np.float32) == 1 + 2 * epsilon)


@pytest.mark.parametrize("simd", _core.SIMD)
@pytest.mark.parametrize("dtype", [name for name in DTYPES if is_float(DTYPES[name])])
def test_order_of_minimum_and_maximum_does_not_matter(dtype: str, simd: str) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.125], np.float32).astype(
        DTYPES[dtype]
    )
    a, b = (grid.reshape(-1) for grid in np.meshgrid(special, special))
    for op in ("min", "max"):
        case = Case(dtype, op, a.size)
        forth, back = run(case, [a, b], simd)[0], run(case, [b, a], simd)[0]
        assert np.array_equal(forth.view(np.uint8), back.view(np.uint8))
        assert np.array_equal(np.isnan(forth), np.isnan(a) | np.isnan(b))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "bfloat16", "float16"])
def test_instruction_sets_give_identical_bytes(dtype: str) -> None:
    """Values with full mantissas, for which a fused multiply-add would show."""
    rng = np.random.default_rng(7)
    real = DTYPES[dtype].type(0).real.dtype if dtype.startswith("complex") else DTYPES[dtype]
    per_element = 2 if dtype.startswith("complex") else 1
    values = rng.uniform(0.5, 2.0, (5, 4001 * per_element)).astype(real).view(DTYPES[dtype])
    for op in ("sum", "prod"):
        for kind, factor in (("none", 1.0), ("divide", 3.0), ("scale", 1 / 3)):
            if op == "sum" or kind == "none":
                case = Case(dtype, op, 4001, (False,) * 5, (False,), kind, factor)
                results = {run(case, list(values), simd)[0].tobytes() for simd in _core.SIMD}
                assert len(results) == 1


def test_bool_results_are_zero_or_one() -> None:
    raw = np.arange(256, dtype=np.uint8).view(np.bool_)
    for simd in _core.SIMD:
        for op in _core.OPS:
            for nsources in (1, 2, 5):
                case = Case("bool", op, 256, (False,) * nsources, (False, False))
                for result in run(case, [raw] * nsources, simd):
                    assert result.view(np.uint8).max() <= 1


def test_integer_scale_saturates() -> None:
    for simd in _core.SIMD:
        for dtype in ("int8", "uint16", "int32", "uint32", "int64", "uint64"):
            limits = np.iinfo(dtype)
            values = np.array([0, 1, limits.max, limits.min], dtype)
            for factor, wanted in (
                (1e30, [0, limits.max, limits.max, limits.min]),
                (float("nan"), [0, 0, 0, 0]),
                (float("inf"), [0, limits.max, limits.max, limits.min]),
            ):
                result = run(Case(dtype, "sum", 4, (False,), (False,), "scale", factor), [values], simd)[0]
                assert result.tolist() == wanted, (simd, dtype, factor)


def test_supports() -> None:
    def supported(dtype: str, op: str, kind: str = "none") -> bool:
        return bool(_core.supports(_core.DTYPES.index(dtype), _core.OPS.index(op), EPILOGUES[kind]))

    assert supported("bool", "bxor") and not supported("bool", "sum", "divide")
    assert not supported("float32", "band") and not supported("complex64", "max")
    assert supported("complex128", "sum", "scale") and not supported("int32", "prod", "divide")
    assert len(COMBINATIONS) == 8 * 10 + 10 + 6 * 7 + 2 * 2


def test_bad_arguments() -> None:
    eight, four = np.zeros(8, np.uint8), np.zeros(4, np.uint8)
    f32, total = _core.DTYPES.index("float32"), _core.OPS.index("sum")
    with pytest.raises(ValueError, match="source 1 holds 4 bytes, too few for 2 elements of 4"):
        _core.reduce(f32, total, [eight, four], [eight], [False, False], [False], 2)
    with pytest.raises(ValueError, match="overlaps a source only in part"):
        _core.reduce(f32, total, [eight[1:5]], [eight[:4]], [False], [False], 1)
    with pytest.raises(ValueError, match="sinks overlap"):
        _core.reduce(f32, total, [four], [eight, eight], [False], [False, False], 1)
    with pytest.raises(ValueError, match="dtype must be in"):
        _core.reduce(99, total, [four], [eight], [False], [False], 1)
    with pytest.raises(ValueError, match="1 to 1024 sources"):
        _core.reduce(f32, total, [], [eight], [], [False], 1)
    with pytest.raises(ValueError, match="1 or 2 sinks"):
        _core.reduce(f32, total, [four], [], [False], [], 1)
    with pytest.raises(ValueError, match="one entry per buffer"):
        _core.reduce(f32, total, [four], [eight], [], [False], 1)
    with pytest.raises(ValueError, match="'mmx' is not available"):
        _core.reduce(f32, total, [four], [eight], [False], [False], 1, simd="mmx")
    with pytest.raises(ValueError, match="whole number >= 1"):
        _core.reduce(_core.DTYPES.index("int32"), total, [four], [eight], [False], [False], 1, 1, 0.0)
    with pytest.raises(NotImplementedError, match="band of float32"):
        _core.reduce(f32, _core.OPS.index("band"), [four], [eight], [False], [False], 1)
    with pytest.raises(BufferError):
        _core.reduce(f32, total, [four], [bytes(8)], [False], [False], 1)


def test_environment_variable_chooses_the_instruction_set() -> None:
    def name(wish: str) -> subprocess.CompletedProcess[str]:
        program = "from pycollectives import _core; print(_core.simd_name())"
        environment = {**os.environ, "PYCOLLECTIVES_SIMD": wish}
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )

    assert name("baseline").stdout.strip() == "baseline"
    assert name("").stdout.strip() == _core.SIMD[-1]
    refused = name("sse9")
    assert (
        refused.returncode != 0
        and "PYCOLLECTIVES_SIMD is 'sse9'; this machine runs baseline" in refused.stderr
    )
