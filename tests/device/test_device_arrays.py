"""What arrays in device memory say of themselves, and that nobody reads their memory to find out."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import fake_arrays as fake
import ml_dtypes
import numpy as np
import pytest

import pycollectives as pc
from pycollectives.arrays import as_input, prepare
from pycollectives.device.arrays import DeviceView, stream_of, view_of


def test_interface() -> None:
    at = fake.untouchable()
    view = view_of(fake.Interface(at + 64, (3, 5), "<i2", strides=(40, 8), stream=7))
    assert isinstance(view, DeviceView)
    assert (view.ctypes.data, view.shape, view.strides, view.dtype) == (at + 64, (3, 5), (40, 8), np.int16)
    assert view.flags.writeable and not view.flags.c_contiguous
    assert stream_of(view) == 7 and view.number == -1 and view.library == "fake_arrays"
    assert "(3, 5)" in repr(view) and str(view) == repr(view)


def test_interface_in_c_order() -> None:
    view = view_of(fake.Interface(fake.untouchable(), (4, 2), "<f8", readonly=True))
    assert view is not None and view.strides == (16, 8) and view.flags.c_contiguous
    assert not view.flags.writeable and stream_of(view) == 1


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_the_interface_has_no_name_for(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    one = fake.Interface(fake.untouchable(), (6,), f"|V{dtype.itemsize}")
    one.dtype = dtype  # type: ignore[attr-defined]
    view = view_of(one)
    assert view is not None and view.dtype == dtype and view.nbytes == 6 * dtype.itemsize


def test_no_elements_no_memory() -> None:
    view = view_of(fake.Interface(0, (0, 3), "<f4"))
    assert view is not None and view.shape == (0, 3) and view.dtype == np.float32


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"stream": 0}, pc.InvalidArgumentError),
        ({"mask": object()}, pc.UnsupportedError),
        ({"shape": None}, pc.InvalidArgumentError),
        ({"data": 5}, pc.InvalidArgumentError),
        ({"typestr": "?what"}, pc.InvalidArgumentError),
    ],
)
def test_what_the_interface_may_not_say(change: dict[str, Any], error: type[Exception]) -> None:
    one = fake.Interface(fake.untouchable(), (2,))
    one.__cuda_array_interface__ |= change
    with pytest.raises(error):
        view_of(one)


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        ((0, 8), "int8"),
        ((0, 64), "int64"),
        ((1, 16), "uint16"),
        ((2, 16), "float16"),
        ((2, 64), "float64"),
        ((4, 16), "bfloat16"),
        ((5, 64), "complex64"),
        ((6, 8), "bool"),
        ((10, 8), "float8_e4m3fn"),
        ((12, 8), "float8_e5m2"),
    ],
)
def test_dlpack(code: tuple[int, int], dtype: str) -> None:
    at = fake.untouchable()
    one = fake.Dlpack(at, (4, 3), code, strides=(6, 2), device=(2, 3), offset=128)
    view = view_of(one)
    assert view is not None and view.dtype.name == dtype and view.number == 3
    item = view.itemsize
    assert (view.ctypes.data, view.shape, view.strides) == (at + 128, (4, 3), (6 * item, 2 * item))
    assert one.asked == [1], "the producer has to make the data ready on the stream that is used"


def test_dlpack_in_c_order_and_managed_memory() -> None:
    view = view_of(fake.Dlpack(fake.untouchable(), (2, 5), device=(13, 0)))
    assert view is not None and view.flags.c_contiguous and view.shape == (2, 5)


class JaxArray(fake.Dlpack):
    """It has both ways; only DLPack lets it know which stream has to wait."""

    __module__ = "jaxlib._jax"

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AssertionError("nobody waits for what fills the array")


def test_jax() -> None:
    one = JaxArray(fake.untouchable(), (2, 5))
    view = view_of(one)
    assert view is not None and view.shape == (2, 5) and view.library == "jaxlib"
    assert one.asked == [1], "the default stream"


def test_what_dlpack_may_not_say() -> None:
    for wrong in ({"code": (2, 128)}, {"code": (3, 64)}, {"lanes": 4}):
        with pytest.raises(pc.UnsupportedError, match="DLPack"):
            view_of(fake.Dlpack(fake.untouchable(), (2,), **wrong))  # type: ignore[arg-type]
    assert view_of(fake.Dlpack(fake.untouchable(), (2,), device=(1, 0))) is None, "memory of the host"


def test_torch() -> None:
    with fake.libraries() as current:
        current.stream = 40
        memory = np.zeros((4, 6), ml_dtypes.bfloat16)[:, ::2]
        view = view_of(fake.TorchTensor(memory, index=2))
        assert view is not None and view.dtype == ml_dtypes.bfloat16 and view.number == 2
        assert (view.ctypes.data, view.shape, view.strides) == (memory.ctypes.data, (4, 3), memory.strides)
        assert stream_of(view) == 40
        current.stream = 0
        assert stream_of(view) == 1, "the default stream by a handle that means the same everywhere"
        assert view_of(fake.TorchTensor(memory, cuda=False)) is None
        strange = fake.TorchTensor(memory)
        strange.dtype = "torch.qint8"
        with pytest.raises(pc.UnsupportedError, match="qint8"):
            view_of(strange)


def test_host_arrays_are_none() -> None:
    for x in ([1, 2], 3.5, np.ones(2), bytearray(4), None):
        assert view_of(x) is None


def test_buffers() -> None:
    """A result of the caller's kind, contiguous buffers, and the checks of host arrays."""
    with fake.libraries() as current:
        current.stream = 3
        x = as_input(fake.CupyArray(np.zeros((3, 8), np.float32)[:, ::2]))
        made = prepare(x, None, (5,))
        assert made.x.flags.c_contiguous and made.x.shape == (3, 4) and not x.flags.c_contiguous
        assert isinstance(made.finish(), fake.CupyArray) and made.out is not None and made.out.shape == (5,)
        target = fake.CupyArray(np.zeros(5, np.float32))
        assert prepare(x, target, (5,)).finish() is target
        for wrong, what in (
            (np.zeros(5, np.float32), "is not"),
            (fake.CupyArray(np.zeros(4, np.float32)), "4 elements"),
            (fake.CupyArray(np.zeros(5)), "float64"),
        ):
            with pytest.raises(pc.InvalidArgumentError, match=what):
                prepare(x, wrong, (5,))
        with pytest.raises(pc.UnsupportedError, match="contiguous"):
            prepare(x, fake.CupyArray(np.zeros(10, np.float32)[::2]), (5,))
        memory = np.zeros(9, np.float32)
        with pytest.raises(pc.InvalidArgumentError, match="overlap"):
            prepare(as_input(fake.CupyArray(memory[:5])), fake.CupyArray(memory[3:8]), (5,))


def test_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arrays have the interface; results are made by its module."""
    made = ModuleType("numba.cuda")
    made.device_array = lambda shape, dtype: fake.over(np.empty(shape, dtype), 1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "numba.cuda", made)
    array = type("DeviceNDArray", (fake.Interface,), {"__module__": "numba.cuda.cudadrv.devicearray"})
    result = prepare(as_input(array(fake.untouchable(), (4,), "<i2")), None, (2, 4))
    assert result.out is not None and result.out.shape == (2, 4) and result.out.dtype == np.int16


def test_an_unknown_library_needs_out() -> None:
    x = as_input(fake.Interface(fake.untouchable(), (4,)))
    with pytest.raises(pc.UnsupportedError, match="pass out="):
        prepare(x, None, (4,))
    target = fake.Interface(fake.untouchable(), (4,))
    assert prepare(x, target, (4,)).finish() is target


def test_without_a_device() -> None:
    """An array of a device, and no extension, no driver, or no device: every rank gets the same error."""

    def fn(comm: Any) -> str:
        x = fake.Interface(fake.untouchable(), (4,))
        with pytest.raises(pc.DeviceError) as found:
            comm.all_reduce(x, out=x)
        comm.all_reduce(np.ones(3))  # the communicator goes on
        return str(found.value)

    try:
        from pycollectives import _cuda  # type: ignore[attr-defined]

        _cuda.bus_id(0)
    except (ImportError, pc.DeviceError):
        messages = pc.run_threads(2, fn)
        assert len(set(messages)) == 1 and "rank 0 has no device" in messages[0]
    else:
        pytest.skip("optional: there is a device")
