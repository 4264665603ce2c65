"""Arguments: what is checked, what is said, and the bytes that a kernel gets."""

from __future__ import annotations

import re
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import dtypes
from tessera.errors import LaunchError
from tessera.runtime.arguments import bind, classify, disjoint
from tessera.runtime.artifact import ArrayParameter, Artifact, Parameter, ScalarParameter, kernarg_layout
from tessera.runtime.views import ArrayView, overlap, view


def artifact(*parameters: Parameter) -> Artifact:
    placed, size = kernarg_layout(parameters)
    return Artifact(b"\x7fELF", "kern", "rocm", "gfx1151", "wmma", "rocm_wmma", placed, size, 1, 32, 0)


def array(name: str, dtype: dtypes.DType, ndim: int, *, align: int = 0, contiguous: int | None = None, **more: bool) -> ArrayParameter:
    return ArrayParameter(name, dtype, ndim, align or dtype.bytes, contiguous, **more)


def aligned(shape: tuple[int, ...], dtype: object, offset: int = 0) -> np.ndarray:
    """An array in C order whose address is 64 n + offset."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


def the_view(value: object) -> ArrayView:
    found = view(value)
    assert found is not None
    return found


# ---- packing -----------------------------------------------------------------------------------------------------------------------


def test_kernarg_bytes() -> None:
    a = aligned((5, 7), np.float16)[::2, ::-1]
    kernel = artifact(
        array("a", dtypes.float16, 2, writes=False), ScalarParameter("n", dtypes.int64, weak=True), ScalarParameter("x", dtypes.bfloat16)
    )
    bound = bind(kernel, (a, -3, 1.5))
    assert bound.kernarg == struct.pack("<QqqqqqHxx", a.ctypes.data, 3, 7, 28, -2, -3, 0x3FC0)
    assert bound.values[1:] == (-3, ml_dtypes.bfloat16(1.5))
    assert bound.buffers == (("a", a.ctypes.data - 12, 2 * 28 + 12 + 2, False),)
    assert bind(kernel, {"x": 1.5, "a": a, "n": -3}).kernarg == bound.kernarg


def test_mixed_scalars_lie_where_the_layout_says() -> None:
    out = aligned((3,), np.int8)
    parameters: list[Parameter] = [
        ScalarParameter("a", dtypes.int8),
        ScalarParameter("b", dtypes.int64),
        ScalarParameter("c", dtypes.int32),
        array("p", dtypes.int8, 0),
        ScalarParameter("d", dtypes.int16),
        ScalarParameter("e", dtypes.float64),
        ScalarParameter("f", dtypes.bool_),
    ]
    values = {"a": -5, "b": 2**40 + 3, "c": -70_000, "p": out[0:1].reshape(()), "d": -300, "e": 0.1, "f": True}
    forms = {"a": "<b", "b": "<q", "c": "<i", "p": "<Q", "d": "<h", "e": "<d", "f": "<?"}
    for order in ([0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [4, 6, 1, 0, 3, 2, 5]):
        kernel = artifact(*(parameters[i] for i in order))
        bound = bind(kernel, values)
        assert len(bound.kernarg) == kernel.kernarg_size
        for p in kernel.parameters:
            expected = values[p.name] if p.name != "p" else out.ctypes.data
            assert struct.unpack_from(forms[p.name], bound.kernarg, p.offset) == (expected,), p.name


def test_relocation_touches_addresses_only() -> None:
    a, b = aligned((4,), np.float32), aligned((3, 2), np.float32)
    kernel = artifact(array("a", dtypes.float32, 1), ScalarParameter("n", dtypes.int32), array("b", dtypes.float32, 2))
    bound = bind(kernel, (a, 9, b))
    moved = bound.relocated({"b": 0x7777000011112222})
    assert struct.unpack("<Qqqixxxx", moved[:32]) == (a.ctypes.data, 4, 4, 9)
    assert struct.unpack("<Qqqqq", moved[32:]) == (0x7777000011112222, 3, 2, 8, 4)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1, 2, -1, -2, 0])), min_size=1, max_size=3), st.booleans())
def test_spans_cover_every_element(axes: list[tuple[int, int]], transpose: bool) -> None:
    base = np.zeros([8] * len(axes), np.int16)
    steps = tuple(slice(None, None, step or 1) for _, step in axes)
    x = base[steps][tuple(slice(0, extent) for extent, _ in axes)]
    for axis, (extent, step) in enumerate(axes):
        if step == 0 and extent:
            x = np.broadcast_to(x.take([0], axis), x.shape)
    x = x.T if transpose else x
    start, size = the_view(x).span()
    low, high = np.lib.array_utils.byte_bounds(x) if hasattr(np.lib, "array_utils") else np.byte_bounds(x)
    assert size == (high - low if x.size else 0)
    assert not x.size or start == low


# ---- scalars -----------------------------------------------------------------------------------------------------------------------

INTEGERS = [d for d in dtypes.ALL if d.is_integer]
FLOATS = [d for d in dtypes.ALL if d.is_float]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_range(dtype: dtypes.DType) -> None:
    kernel = artifact(ScalarParameter("n", dtype))
    info = np.iinfo(dtype.numpy)
    for value in (int(info.min), int(info.max), 1):
        for given_value in (value, dtype.numpy.type(value)):
            bound = bind(kernel, (given_value,))
            assert bound.kernarg[: dtype.bytes] == np.array(value, dtype.numpy).tobytes()
            assert bound.values[0] == value
            assert bound.values[0].dtype == dtype.numpy
    for value in (int(info.min) - 1, int(info.max) + 1):
        with pytest.raises(LaunchError, match=f"argument 'n' of kernel 'kern': {value} does not fit {dtype.name}"):
            bind(kernel, (value,))
    for value in (True, 1.0, "1", None, np.float32(1), np.bool_(True), np.array(1, dtype.numpy)):
        with pytest.raises(LaunchError, match=f"{dtype.name} is needed"):
            bind(kernel, (value,))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_scalars(dtype: dtypes.DType) -> None:
    kernel = artifact(ScalarParameter("x", dtype))
    top = float(ml_dtypes.finfo(dtype.numpy).max)
    for value in (0.0, -0.0, 0.1, -top, float("inf"), float("nan"), 3):
        expected = np.array(value, dtype.numpy)
        assert bind(kernel, (value,)).kernarg[: dtype.bytes] == expected.tobytes(), value
        assert bind(kernel, (dtype.numpy.type(value),)).kernarg[: dtype.bytes] == expected.tobytes(), value
    if dtype is not dtypes.float64:
        with pytest.raises(LaunchError, match="does not fit"):
            bind(kernel, (top * 4,))
    with pytest.raises(LaunchError, match="does not fit"):
        bind(kernel, (10**400,))
    for value in (True, np.int32(1), "x", np.longdouble(1) if np.dtype(np.longdouble).itemsize != 8 else np.int8(1)):
        with pytest.raises(LaunchError, match=f"{dtype.name} is needed"):
            bind(kernel, (value,))


def test_weak_numbers_are_pythons() -> None:
    kernel = artifact(ScalarParameter("n", dtypes.int64, weak=True), ScalarParameter("x", dtypes.float64, weak=True))
    bound = bind(kernel, (2**63 - 1, 0.1))
    assert bound.kernarg == struct.pack("<qd", 2**63 - 1, 0.1)
    assert [type(v) for v in bound.values] == [int, float]
    assert bind(kernel, (0, 3)).kernarg == struct.pack("<qd", 0, 3.0)
    with pytest.raises(LaunchError, match=r"a Python int is needed, not NumPy's int64; pass `int\(x\)`"):
        bind(kernel, (np.int64(3), 0.1))
    with pytest.raises(LaunchError, match=r"a Python float is needed, not NumPy's float32; pass `float\(x\)`"):
        bind(kernel, (3, np.float32(0.1)))
    with pytest.raises(LaunchError, match="does not fit int64"):
        bind(kernel, (2**63, 0.1))
    with pytest.raises(LaunchError, match="a Python int is needed, not True"):
        bind(kernel, (True, 0.1))


def test_bools() -> None:
    kernel = artifact(ScalarParameter("b", dtypes.bool_))
    assert bind(kernel, (True,)).kernarg == b"\1\0\0\0"
    assert bind(kernel, (np.bool_(False),)).kernarg == b"\0\0\0\0"
    for value in (1, 1.0, np.int8(1)):
        with pytest.raises(LaunchError, match="a bool is needed"):
            bind(kernel, (value,))


# ---- arrays ------------------------------------------------------------------------------------------------------------------------


def refused(kernel: Artifact, *args: object) -> str:
    with pytest.raises(LaunchError) as caught:
        bind(kernel, args)
    return caught.value.message


def test_which_arguments() -> None:
    kernel = artifact(array("a", dtypes.float32, 1), ScalarParameter("n", dtypes.int32))
    a = aligned((4,), np.float32)
    assert "missing n" in refused(kernel, a)
    assert "takes a, n (2 at run time): unexpected a str at position 2" in refused(kernel, a, 1, "x")
    with pytest.raises(LaunchError, match="missing n; unexpected m"):
        bind(kernel, {"a": a, "m": 1})
    assert "must be a 1-dimensional array of float32, not int (3)" in refused(kernel, 3, 3)
    assert "must be a 1-dimensional array of float32, not list" in refused(kernel, [1.0], 3)
    assert "must be a 1-dimensional array of float32, not float32" in refused(kernel, np.float32(1), 3)
    assert "not an array" in refused(kernel, a, a)


def test_dtype_and_rank() -> None:
    kernel = artifact(array("a", dtypes.float32, 2))
    assert "its dtype is float64, the artifact takes float32" in refused(kernel, aligned((2, 2), np.float64))
    assert "it has 1 dimensions (4,), the artifact takes 2" in refused(kernel, aligned((4,), np.float32))
    assert "other byte order" in refused(kernel, np.zeros((2, 2), np.dtype(np.float32).newbyteorder()))
    assert "no dtype for NumPy's complex64" in refused(kernel, np.zeros((2, 2), np.complex64))
    assert "mask" in refused(kernel, np.ma.zeros((2, 2), np.float32))
    # A dtype of the same size and another name is another dtype.
    assert "its dtype is uint16" in refused(artifact(array("a", dtypes.bfloat16, 1)), np.zeros(3, np.uint16))


def test_what_is_written_must_be_writable() -> None:
    a = aligned((4,), np.float32)
    a.flags.writeable = False
    assert "it is read-only" in refused(artifact(array("a", dtypes.float32, 1)), a)
    assert not bind(artifact(array("a", dtypes.float32, 1, writes=False)), (a,)).buffers[0].writable


def test_stride_zero() -> None:
    rows = np.broadcast_to(aligned((3,), np.float32), (4, 3))
    written = np.lib.stride_tricks.as_strided(aligned((3,), np.float32), (4, 3), (0, 4))
    assert "stride along axis 0 is 0 over 4 elements" in refused(artifact(array("a", dtypes.float32, 2)), written)
    assert bind(artifact(array("a", dtypes.float32, 2, writes=False)), (rows,)).buffers[0].size == 12
    one = np.lib.stride_tricks.as_strided(aligned((3,), np.float32), (1, 3), (0, 4))
    bind(artifact(array("a", dtypes.float32, 2)), (one,))


def test_classes() -> None:
    kernel = artifact(array("a", dtypes.float32, 2, align=16, contiguous=1, small=True, writes=False))
    good = aligned((6, 8), np.float32)
    assert bind(kernel, (good,)).buffers[0].size == 192
    bind(kernel, (good[1::2],))
    bind(kernel, (good[::-1],))
    bind(kernel, (good[:, :5],))
    assert "needs axis 1 contiguous (stride 4), this array's stride there is 32" in refused(kernel, good[:4, :4].T)
    assert "needs axis 1 contiguous (stride 4), this array's stride there is -4" in refused(kernel, good[:, ::-1])
    assert re.search(r"aligned to 16 bytes; this array lies at 0x[0-9a-f]+ with strides \(32, 4\)", refused(kernel, good[:, 1:5]))
    assert "aligned to 16 bytes" in refused(kernel, aligned((6, 7), np.float32))
    bind(artifact(array("a", dtypes.float32, 2, contiguous=1)), (aligned((6, 7), np.float32)[:, 3:],))
    # A better class than asked for is fine; an axis of one element and an array of none bind nothing.
    bind(artifact(array("a", dtypes.float32, 2, align=4)), (good,))
    bind(kernel, (good[:1, 4:].T[:1],))
    bind(kernel, (good[:, 1:1],))
    huge = np.lib.stride_tricks.as_strided(good, (2**28, 8), (16, 4))
    assert "below 2**31" in refused(kernel, huge)
    bind(artifact(array("a", dtypes.float32, 2, writes=False)), (huge,))


def test_elements_must_be_aligned() -> None:
    packed = np.zeros(4, np.dtype([("tag", np.uint8), ("x", np.float32)]))["x"]
    kernel = artifact(array("a", dtypes.float32, 1, writes=False))
    assert "no multiples of the element's 4 bytes" in refused(kernel, packed)
    with pytest.raises(LaunchError, match="no multiples"):
        classify(the_view(packed))


def test_classify() -> None:
    base = aligned((16, 32), np.float16)

    def best(x: np.ndarray) -> tuple[int, int | None, bool]:
        c = classify(the_view(x))
        assert (c.dtype, c.ndim) == (dtypes.float16, x.ndim)
        return c.align, c.contiguous, c.small

    assert best(base) == (16, 1, True)
    assert best(base.T) == (16, 0, True)
    assert best(base[:, 4:]) == (8, 1, True)
    assert best(base[:, 2:]) == (4, 1, True)
    assert best(base[:, 1:]) == (2, 1, True)
    assert best(base[:, ::2]) == (4, None, True)
    assert best(base[:, ::-1]) == (2, None, True)
    assert best(base[::-1]) == (16, 1, True)
    assert best(aligned((5, 7), np.float16)) == (2, 1, True)
    assert best(aligned((5, 6), np.float16)) == (4, 1, True)
    assert best(base[:, :1]) == (16, 1, True)
    assert best(base[:1].T) == (16, 0, True)
    assert best(base[:0, 1:]) == (16, 1, True)
    assert best(np.broadcast_to(base[0], (4, 32))) == (16, 1, True)
    assert best(np.broadcast_to(base[:, :1], (16, 32))) == (16, None, True)
    assert best(base[0, 0:1].reshape(())) == (16, None, True)
    assert best(np.lib.stride_tricks.as_strided(base, (2**27, 16), (16, 2))) == (16, 1, False)
    assert best(np.lib.stride_tricks.as_strided(base, (2**31, 1), (0, 2))) == (16, 1, False)
    assert best(np.lib.stride_tricks.as_strided(base, (2**30 - 7, 1), (2, 2))) == (16, 0, True)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([np.int8, np.float16, np.float32, np.float64]),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.sampled_from([1, 2, 3, -1]), st.sampled_from([1, 2, 4, -1])),
    st.booleans(),
)
def test_an_array_is_of_its_own_class(dtype: type, start: tuple[int, int], step: tuple[int, int], transpose: bool) -> None:
    x = aligned((9, 16), dtype)[start[0] :: step[0], start[1] :: step[1]]
    x = x.T if transpose else x
    c = classify(the_view(x))
    bind(artifact(ArrayParameter("a", c.dtype, c.ndim, c.align, c.contiguous, c.small)), (x,))


# ---- overlap -----------------------------------------------------------------------------------------------------------------------


def test_overlapping_arguments() -> None:
    x = aligned((8, 8), np.float32)
    pair = artifact(array("a", dtypes.float32, 2, writes=False), array("c", dtypes.float32, 2))
    message = refused(pair, x, x)
    assert "arguments 'a' and 'c' of kernel 'kern' overlap in memory and 'c' is written" in message
    assert "disjoint" in message
    assert "overlap" in refused(pair, x[:5], x[4:])
    bind(pair, (x[:4], x[4:]))
    bind(pair, (x[:, ::2], x[:, 1::2]))  # interleaved, and sharing nothing
    bind(pair, (x[:0], x))
    both = artifact(array("a", dtypes.float32, 2, writes=False, disjoint=False), array("c", dtypes.float32, 2, disjoint=False))
    bind(both, (x, x))
    one = artifact(array("a", dtypes.float32, 2, writes=False, disjoint=False), array("c", dtypes.float32, 2))
    assert "overlap" in refused(one, x, x)
    readers = artifact(array("a", dtypes.float32, 2, writes=False), array("b", dtypes.float32, 2, writes=False))
    bind(readers, (x, x.T))


def test_overlap_and_disjointness() -> None:
    x = np.zeros(100, np.int8)
    views = [the_view(v) for v in (x[:50], x[50:], x[49:51], x[::2], x[1::2], np.zeros(3, np.int8))]
    assert disjoint(views[:2]) == (True, True)
    assert disjoint(views[:3]) == (False, False, False)
    assert disjoint(views[3:]) == (True, True, True)
    assert not overlap(views[3], views[4])
    assert overlap(views[3], views[0])
    on_device = ArrayView(dtypes.int8, (50,), (1,), x.ctypes.data, True, "hip:0", None)
    assert not overlap(on_device, views[0])
    assert overlap(on_device, ArrayView(dtypes.int8, (5,), (10,), x.ctypes.data, True, "hip:0", None))


# ---- arrays of other origins --------------------------------------------------------------------------------------------------------


class Interface:
    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__


class DLPack:
    """Hands over an array through DLPack alone; `versioned` as version 1 does."""

    def __init__(self, array: np.ndarray, versioned: bool) -> None:
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: object) -> object:
        if "max_version" in options and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("make", [Interface, lambda x: DLPack(x, False), lambda x: DLPack(x, True)])
def test_other_arrays(make: type) -> None:
    x = aligned((6, 10), np.int32)
    x[:] = np.arange(60).reshape(6, 10)
    for part in (x, x[1::2, 3:], x.T, x[:, ::-1]):
        found, expected = the_view(make(part)), the_view(part)
        assert (found.dtype, found.shape, found.strides, found.address) == (dtypes.int32, part.shape, part.strides, expected.address)
        assert found.device == "host"
        np.testing.assert_array_equal(found.to_numpy(), part)
        found.to_numpy()[-1, -1] = 1234
        assert part[-1, -1] == 1234
    assert the_view(make(aligned((2,), np.bool_))).dtype is dtypes.bool_


def test_read_only_and_foreign_arrays() -> None:
    x = aligned((3,), np.float32)
    x.flags.writeable = False
    kernel = artifact(array("a", dtypes.float32, 1))
    assert "read-only" in refused(kernel, Interface(x))
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert "read-only" in refused(kernel, DLPack(x, True))

    class OnCuda(DLPack):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, **options: object) -> object:
            raise BufferError("no such device")

    assert "doesn't hand its memory over" in refused(kernel, OnCuda(x, True))

    class OnGpu:
        __cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (0x7F0000001000, False), "strides": None, "version": 3}  # noqa: RUF012

    found = the_view(OnGpu())
    assert (found.address, found.strides, found.device) == (0x7F0000001000, (12, 4), "hip:0")
