from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pycollectives.bench import accuracy
from pycollectives.schedule import names


def test_table_and_json(command: Any) -> None:
    options = ("numerics", "-n", "2,3", "--dtype", "float16", "--dtype", "float32", "--elements", "500")
    found = json.loads(command(*options, "--json").stdout)
    assert {(e["dtype"], e["ranks"]) for e in found} == {
        (d, n) for d in ("float16", "float32") for n in (2, 3)
    }
    assert {e["algorithm"] for e in found if e["ranks"] == 2} <= set(names("all_reduce"))
    for each in found:
        assert each["same_bits"] and each["bound"] <= each["ranks"] - 1, each
        assert each["largest"] >= each["mean"] >= 0, each
    assert {e["left_fold"] for e in found if e["algorithm"] == "two_shot"} == {True}
    text = command(*options).stdout
    assert "largest ulp" in text and "recursive_doubling" in text


def test_cost_of_determinism(command: Any) -> None:
    found = json.loads(command("numerics", "--cost", "-n", "2", "--sizes", "8,64K", "--json").stdout)
    assert [e["nbytes"] for e in found] == [8, 65536]
    assert all(e["free"] > 0 and e["deterministic"] > 0 for e in found)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--dtype", "int32"), "int32 is exact"),
        (("--dtype", "flaot32"), "did you mean"),
        (("-n", "two"), "expected numbers of ranks"),
        (("--data", "none"), "known are normal"),
        (("--op", "max"), "measured are sum"),
        (("-a", "rign"), "ring"),
        (("-c", "broadcast"), "all_reduce, reduce, reduce_scatter"),
    ],
)
def test_wrong_command_lines(command: Any, options: tuple[str, ...], text: str) -> None:
    assert text in command("numerics", *options, code=2).stderr


@pytest.mark.parametrize("data", accuracy.DATA)
def test_errors_stay_below_the_bound(data: str) -> None:
    """P - 1 roundings of partial sums, none larger than u Σ|x|; the small floats are rounded once on top."""
    for dtype in ("float8_e5m2", "bfloat16", "float32", "float64", "complex64"):
        for each in accuracy.measure("all_reduce", dtype, 5, "sum", 400, data, 3):
            assert each.same_bits and each.bound <= 4 * (2 if dtype == "complex64" else 1), each
            if dtype in ("float8_e5m2", "bfloat16") and data != "cancelling":
                assert each.largest <= 0.51, each


def test_the_measure_itself() -> None:
    """An error of one unit in the last place counts as one, at powers of two and below the normal numbers too."""
    for dtype, one in (("float32", 2.0**-23), ("bfloat16", 2.0**-7), ("float16", 2.0**-10)):
        for at in (1.0, 1.5, 1024.0):
            assert (
                accuracy.ulps(np.array([one * 2.0 ** np.floor(np.log2(at))]), np.array([at]), dtype)[0] == 1
            )
    assert accuracy.ulps(np.array([2.0**-149]), np.array([0.0]), "float32")[0] == 1
    xs = [np.full(3, 0.1), np.full(3, 0.2)]
    total, size = accuracy.exact(xs, "sum")
    assert float(abs(total[0] - (np.longdouble(0.1) + np.longdouble(0.2)))) == 0 and size[0] == total[0]
