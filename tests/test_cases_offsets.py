"""Reports from the field: offsets and strides beyond 32 bits, and strides of 0. Each test names the case and the thread that it retells.

Arrays past 2**31 bytes are views with huge strides into memory that the operating system gives only where it is touched.
"""

from __future__ import annotations

import mmap
import re

import both
import compare
import numpy as np
import pytest
from poison import LAYOUTS, Arena

import tessera as ts
from corpus.kernels import matmul
from tessera.errors import LaunchError

GIB = 2**30


@pytest.fixture(scope="module")
def space() -> np.ndarray:
    """Nine gibibytes of zeros, of which only the pages touched exist."""
    lazily = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_NORESERVE} if hasattr(mmap, "MAP_NORESERVE") else {}
    try:
        memory = mmap.mmap(-1, 9 * GIB, **lazily)
    except (OSError, ValueError, OverflowError) as error:
        pytest.skip(f"no address space for 9 GiB: {error}")
    return np.frombuffer(memory, np.uint8)


def spread(space: np.ndarray, dtype, shape: tuple[int, ...], strides: tuple[int, ...], start: int = 0) -> np.ndarray:
    """A view of huge strides (bytes); `start` is the byte of element 0."""
    return np.lib.stride_tricks.as_strided(
        space[start:].view(np.uint8)[: np.dtype(dtype).itemsize].view(dtype), shape, strides, writeable=True
    )


@ts.jit
def offsets_of(out, batch, rows, columns):
    i = ts.program_id(0) + 638
    out[i - 638] = i * (rows * columns)
    wrapped = i * np.int32(2048 * 3072)
    ts.static_assert(wrapped.dtype == ts.int32)


@ts.jit
def wrapped_products(x, out, N: ts.constexpr = 4):
    ts.store(out, 0, ts.load(x, 0, shape=N) * np.int32(2048 * 3072))


def test_off_01_a_program_times_a_stride() -> None:
    """microsoft/dion#103: index arithmetic is exact in 64 bits; int32 tiles wrap, as NumPy's."""
    out = np.zeros(2, np.int64)
    compiled = both.run(offsets_of, 2, out, 640, 2048, 3072)
    assert out.tolist() == [638 * 2048 * 3072, 4020240384]
    assert re.search(r"mul .*: i64", compiled.tile_ir)
    x, products = np.array([639, 341, -639, 1], np.int32), np.zeros(4, np.int32)
    both.run(wrapped_products, 1, x, products)
    assert products.tolist() == [-274726912, 2145386496, 274726912, 6291456]


@ts.jit
def double_rows(x, y, ROWS: ts.constexpr = 2, COLUMNS: ts.constexpr = 64):
    i = ts.program_id(0)
    ts.store(y, (i, 0), ts.load(x, (i, 0), shape=(ROWS, COLUMNS), other=9) * 2)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int32, np.float64])
@pytest.mark.parametrize("stride", [GIB + 64, 2 * GIB - 64, 2 * GIB, 2 * GIB + 16, 4 * GIB - 16])
def test_off_01_rows_far_apart(space: np.ndarray, dtype, stride: int) -> None:
    """microsoft/dion#103: rows whose distance is near 2**31 and 2**32 bytes, forwards and backwards."""
    rows = min(8 * GIB // stride + 1, 5)
    x = spread(space, dtype, (rows, 37), (stride, np.dtype(dtype).itemsize), 4096)
    x[...] = (np.arange(rows * 37).reshape(rows, 37) % 120).astype(dtype)
    for view in (x, x[::-1]):
        y = np.zeros((rows, 37), dtype)
        both.run(double_rows, ts.cdiv(rows, 2), view, y)
        compare.same(y, view * np.dtype(dtype).type(2))
    before = x.copy()
    both.run(double_rows, ts.cdiv(rows, 2), before, x)  # and stores
    compare.same(x, before * np.dtype(dtype).type(2))
    x[...] = 0


def test_off_01_a_batch_of_matrices(space: np.ndarray) -> None:
    """microsoft/dion#103: three axes; the last matrix of the batch begins past 2**32 bytes."""

    @ts.jit
    def scale(x, factor, N: ts.constexpr = 16):
        b = ts.program_id(0)
        for i in range(ts.cdiv(x.shape[1], N)):
            tile = ts.load(x, (b, i, 0), shape=(1, N, N))
            ts.store(x, (b, i, 0), tile * factor)

    x = spread(space, np.float32, (4, 20, 11), (2 * GIB + 4096, 4096, 4), 64)
    values = np.arange(4 * 20 * 11, dtype=np.float32).reshape(4, 20, 11)
    x[...] = values
    both.run(scale, 4, x, 3)
    compare.same(x.copy(), values * np.float32(3))
    x[...] = 0


def test_off_01_a_matrix_product_across_the_limit(space: np.ndarray) -> None:
    """microsoft/dion#103: operands and result with rows a hundred megabytes apart."""
    rng = np.random.default_rng(3)
    stride = 128 * 2**20
    a = spread(space, np.float16, (40, 50), (stride, 2), 0)
    b = spread(space, np.float16, (50, 24), (stride, 2), 4096)
    c = spread(space, np.float32, (40, 24), (stride, 4), 8192)
    a[...], b[...], c[...] = rng.standard_normal(a.shape), rng.standard_normal(b.shape), 77
    both.run(matmul, (2, 1), a, b, c, exact=False, BM=32, BN=32)
    compare.product(c.copy(), a.copy(), b.copy())
    for array in (a, b, c):
        array[...] = 0


@ts.jit
def promoted(x, out, i):
    at = ts.astype(i, ts.int64) * 2**20
    out[0] = at
    out[1] = x[at]
    x[at + 1] = 77
    out[2] = ts.sum(ts.load(x, offset=at - 4, shape=8).astype(ts.int64))


@pytest.mark.parametrize("make", [np.int32, np.int16, np.uint16, int])
def test_off_03_an_offset_of_64_bits_stays_so(space: np.ndarray, make) -> None:
    """ROCm/triton#830: through every pass, in scalars that index, in offsets of tiles, and in what is stored."""
    x = space[: 4096 * 2**20 + 64].view(np.uint8)
    x[4096 * 2**20 - 8 : 4096 * 2**20 + 8] = np.arange(16)
    out = np.zeros(3, np.int64)
    both.run(promoted, 1, x, out, make(4096))
    assert out.tolist() == [4294967296, 8, sum((4, 5, 6, 7, 8, 77, 10, 11))]
    assert x[4096 * 2**20 + 1] == 77
    assert x[1] == 0
    x[4096 * 2**20 - 8 : 4096 * 2**20 + 8] = 0


@ts.jit
def constant_index(x, out):
    out[0] = x[2**31 + 5]
    out[1] = x[2**31 + 8]  # one past the end
    out[2] = x[2**32 + 5]
    x[2**31 + 6] = 9
    x[2**31 + 8] = 9
    x[2**32 + 1] = 9


def test_off_04_constant_indices_keep_their_value(space: np.ndarray) -> None:
    """tile-ai/tilelang#2560: past 2**31 they read there; past the end they read 0 and write nothing; past int64 they are an error."""
    x = space[: 2**31 + 8]
    x[2**31 : 2**31 + 8] = np.arange(1, 9)
    out = np.full(3, 99, np.uint8)
    both.run(constant_index, 1, x, out)
    assert out.tolist() == [6, 0, 0]
    assert x[2**31 :].tolist() == [1, 2, 3, 4, 5, 6, 9, 8]
    assert space[2**31 + 8] == 0 and space[2**32 + 1] == 0  # noqa: PT018
    small = np.arange(16, dtype=np.uint8)  # 2**32 + 5 is not 5
    both.run(constant_index, 1, small, out)
    assert (out.tolist(), small.tolist()) == ([0, 0, 0], list(range(16)))
    x[2**31 :] = 0

    @ts.jit
    def beyond(x):
        x[2**63] = 1

    with pytest.raises(ts.errors.KernelError, match="int64"):
        beyond.compile(small)


def test_off_04_elements_past_2_to_the_31(space: np.ndarray) -> None:
    """tile-ai/tilelang#2560: more than 2**31 elements, whose offset in bytes is beyond 2**33."""
    x = space[: 2 * (2**32 + 100)].view(np.float16)
    assert x.size > 2**32
    x[2**31 - 3 : 2**31 + 5], x[2**32 + 92 :] = np.arange(8), np.arange(8)

    @ts.jit
    def tail(x, out, at, N: ts.constexpr = 16):
        ts.store(out, 0, ts.load(x, offset=at, shape=N, other=-1))
        out[16] = x.shape[0].astype(ts.float64)

    out = np.zeros(17)
    for at, expected in ((2**31 - 3, [*range(8), *[0] * 8]), (2**32 + 92, [*range(8), *[-1] * 8]), (2**32 + 100, [-1] * 16)):
        both.run(tail, 1, x, out, at)
        assert out.tolist() == [*expected, 2**32 + 100]
    x[2**31 - 3 : 2**31 + 5] = x[2**32 + 92 :] = 0


# ---- strides of 0 ---------------------------------------------------------------------------------------------------------------------


@ts.jit
def add_one(x, out, ROWS: ts.constexpr, COLUMNS: ts.constexpr):
    ts.store(out, (0, 0), ts.load(x, (0, 0), shape=(ROWS, COLUMNS)) + 1)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float16, np.float64])
def test_lay_06_reading_through_stride_zero(dtype) -> None:
    """triton-lang/triton-ascend#1424: along either axis, or both."""
    for values, shape in (([1, 2, 3], (4, 3)), ([[5], [6]], (2, 4)), (7, (3, 5))):
        x = np.broadcast_to(np.array(values, dtype), shape)
        out = np.zeros(shape, dtype)
        both.run(add_one, 1, x, out, ROWS=4, COLUMNS=8)
        assert out.tolist() == (x + np.dtype(dtype).type(1)).tolist()
    x, out = np.broadcast_to(np.array([1, 2, 3], dtype), (4, 3)), np.zeros((4, 3), dtype)
    both.run(add_one, 1, x, out, ROWS=4, COLUMNS=4)
    assert out.sum() == 36


def test_lay_06_dot_with_a_broadcast_operand() -> None:
    """triton-lang/triton-ascend#1424."""
    rng = np.random.default_rng(1)
    rows, column = rng.standard_normal(40).astype(np.float16), rng.standard_normal((40, 1)).astype(np.float16)
    a, b = np.broadcast_to(rows, (30, 40)), rng.standard_normal((40, 20)).astype(np.float16)
    c = Arena((30, 20), np.dtype(np.float32), LAYOUTS["sliced"])
    both.run(matmul, (1, 1), a, b, c.fill(np.zeros((30, 20))), exact=False, BM=32, BN=32)
    compare.product(c.array, a, b)
    b = np.broadcast_to(column, (40, 20))
    both.run(matmul, (1, 1), a, b, c.fill(np.zeros((30, 20))), exact=False, BM=32, BN=32)
    compare.product(c.array, a, b)


def test_lay_06_writing_through_stride_zero_is_refused() -> None:
    """triton-lang/triton-ascend#1424: which element would win isn't defined; an axis of one element is fine."""
    x = np.zeros((4, 3), np.float32)
    target = np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (4, 3), (0, 4), writeable=True)
    with pytest.raises(LaunchError, match="stride"):
        add_one[1](x, target, ROWS=4, COLUMNS=4)
    target = np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (1, 3), (0, 4), writeable=True)
    both.run(add_one, 1, x[:1], target, ROWS=4, COLUMNS=4)
    assert target.tolist() == [[1, 1, 1]]
