"""Reports from the field: what lies outside an array. Each test names the case and the public thread that it retells."""

from __future__ import annotations

import both
import compare
import numpy as np
import pytest
from poison import LAYOUTS, Arena

import tessera as ts
from corpus.kernels import matmul
from tessera.errors import KernelError, KernelValueError

pytestmark = pytest.mark.filterwarnings("ignore:kernel .* has been compiled")
F32 = np.dtype(np.float32)


def inside(values: np.ndarray, layout: str = "sliced") -> np.ndarray:
    """`values` in poisoned memory."""
    return Arena(values.shape, values.dtype, LAYOUTS[layout]).fill(values)


@pytest.mark.parametrize("dtype", [np.float16, ts.bfloat16.numpy, np.int8, np.uint8])
@pytest.mark.parametrize("layout", ["odd", "padded", "sliced", "transposed", "negative"])
def test_bnd_01_a_ragged_k_adds_nothing(dtype, layout: str) -> None:
    """triton-lang/triton#630: what lies behind the array enters the dot as zeros, NaN included."""
    a = ((np.arange(5 * 33) * 7) % 11 - 5).reshape(5, 33)
    b = ((np.arange(33 * 7) * 5) % 13 - 6).reshape(33, 7)
    if dtype is np.uint8:
        a, b = a + 5, b + 6
    x, y = (Arena(v.shape, np.dtype(dtype), LAYOUTS[layout]).fill(v.astype(dtype)) for v in (a, b))
    out = Arena((5, 7), np.dtype(np.int32 if np.dtype(dtype).kind in "iu" else np.float32))
    out.fill(np.full((5, 7), 99))
    both.run(matmul, (1, 1), x, y, out.array, BM=16, BN=16, BK=32)
    out.check_surroundings()
    assert out.array.tolist() == (a @ b).tolist()
    if dtype is not np.uint8:
        assert (out.array[0].tolist(), out.array.sum()) == ([37, 11, -28, -15, 76, -41, -80], -200)


@pytest.mark.parametrize("bk", [16, 32, 64])
def test_bnd_02_an_outer_product(bk: int) -> None:
    """triton-lang/triton#934: K = 1, with M from 1 up."""
    column, row = np.array([[2.0], [-3.0], [0.5]]), (np.arange(20) - 7.0)[None, :]
    for m in (1, 3):
        a, b = inside(column[:m].astype(np.float16)), inside(row.astype(np.float16))
        c = np.full((m, 20), np.nan, np.float32)
        both.run(matmul, (1, 2), a, b, c, BM=16, BN=16, BK=bk)
        assert c.tolist() == (column[:m] @ row).tolist()


@ts.jit
def sum_of_one_tile(x, out, N: ts.constexpr):
    out[0] = ts.sum(ts.load(x, 0, shape=N))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int32, np.uint64])
def test_bnd_03_what_is_not_there_reads_as_zero(dtype) -> None:
    """triton-lang/triton#9911: without a fill value it is 0, on every path to memory."""
    values = np.array([0.5, 2, 4]) if np.dtype(dtype).kind == "f" else np.array([1, 2, 4])
    for layout in (None, "sliced"):
        x = Arena((3,), np.dtype(dtype)).fill(values.astype(dtype)) if layout is None else strided(values.astype(dtype))
        widened = {"f": dtype, "i": np.int64, "u": np.uint64}[np.dtype(dtype).kind]
        for size in (4, 8, 64, 1024):
            out = np.full(1, 99, widened)
            both.run(sum_of_one_tile, 1, x, out, N=size)
            assert out[0] == values.sum()


def strided(values: np.ndarray) -> np.ndarray:
    """Every third element of poisoned memory, backwards."""
    array = Arena((3 * len(values) + 4,), values.dtype).array[2::3][: len(values)][::-1]
    array[...] = values
    return array


@ts.jit
def column_sums(x, out, ROWS: ts.constexpr, COLUMNS: ts.constexpr, other: ts.constexpr):
    j = ts.program_id(0)
    total = ts.zeros(COLUMNS, x.dtype)
    for i in range(ts.cdiv(x.shape[0], ROWS)):
        total += ts.sum(ts.load(x, (i, j), shape=(ROWS, COLUMNS), other=other), axis=0)
    ts.store(out, j, total)


@pytest.mark.parametrize("layout", ["odd", "padded", "transposed", "sliced", "negative"])
def test_bnd_05_the_fill_value_is_what_is_read(layout: str) -> None:
    """triton-lang/triton#2138: zeros add nothing, NaN shows wherever the last tile runs over, 1 counts the rows that aren't there."""
    x = Arena((20, 6), F32, LAYOUTS[layout]).fill(np.tile(np.arange(6, dtype=np.float32), (20, 1)))
    for other, expected in (
        (0.0, 20 * np.arange(6.0)),
        (np.nan, np.full(6, np.nan)),
        (1.0, 20 * np.arange(6.0) + 12),
        (-np.inf, np.full(6, -np.inf)),
    ):
        out = np.full(6, 99, np.float32)
        both.run(column_sums, 3, x, out, ROWS=16, COLUMNS=2, other=other)
        np.testing.assert_array_equal(out, expected.astype(np.float32))
    out = np.full(6, 99, np.float32)
    both.run(column_sums, 3, x, out, ROWS=4, COLUMNS=2, other=np.nan)  # 20 rows are 5 tiles of 4: nothing runs over
    assert out.tolist() == (20 * np.arange(6.0)).tolist()


@ts.jit
def window(x, out, start, other: ts.constexpr, N: ts.constexpr = 8):
    ts.store(out, 0, ts.load(x, offset=start, shape=N, other=other))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, np.float16, np.float32, np.float64])
def test_bnd_06_windows_never_move(dtype) -> None:
    """jax-ml/jax#21143: element i of the tile is x[start + i] or the fill value, wherever the window lies."""
    x = Arena((8,), np.dtype(dtype)).fill((np.arange(8) + 10).astype(dtype))
    fill = 7 if np.dtype(dtype).kind == "u" else -1
    compiled = None
    for start in (3, 0, -1, -3, -7, -8, -9, 7, 8, 9, 1000, -1000, 2**31, -(2**31) - 5, 2**40, -(2**40), 2**62, -(2**63)):
        out = np.full(8, 99, dtype)
        compiled = compiled or window.compile(x, out, start, other=fill, arch="gfx1151")
        both.launch(compiled, 1, x, out, start)
        assert out.tolist() == [start + i + 10 if 0 <= start + i < 8 else fill for i in range(8)], start
    assert window.cache_info().compiles <= 20


@ts.jit
def masked_total(x, out, stop, N: ts.constexpr = 32):
    total = 0.0
    k = 0
    while k < stop:
        total += ts.sum(ts.load(x, offset=k, shape=N, other=-0.0))
        k += N
    out[0] = total


@ts.jit
def masked_total_of_rows(x, out, row, N: ts.constexpr = 32):
    total = ts.zeros((), ts.float32)
    for k in range(0, 128, N):
        total += ts.sum(ts.load(x, offset=(row, k), shape=(1, N)))
    out[0] = total


def test_bnd_09_the_fill_wins_in_every_trip() -> None:
    """triton-lang/triton#10654: the uniform part of an address can't bring a lane that is outside back in range."""
    x = Arena((100,), F32).fill(np.ones(100, np.float32))
    out = np.zeros(1, np.float32)
    for stop in (128, 1024):
        both.run(masked_total, 1, x, out, stop)
        assert out[0] == 100
    # Rows of a matrix: past the end of one row lies the next, which must not be read for it.
    matrix = Arena((3, 100), F32, LAYOUTS["padded"]).fill(np.arange(1, 4, dtype=np.float32)[:, None] * np.ones((3, 100), np.float32))
    for row, expected in ((0, 100), (1, 200), (2, 300), (3, 0), (-1, 0)):
        both.run(masked_total_of_rows, 1, matrix, out, row)
        assert out[0] == expected


@ts.jit
def load_with(x, out, other: ts.constexpr):
    ts.store(out, 0, ts.load(x, 0, shape=8, other=other))


@pytest.mark.parametrize(
    ("dtype", "other"),
    [
        (np.int8, -np.inf), (np.int32, np.inf), (np.int32, np.nan), (np.uint8, -1), (np.int8, 128), (np.uint16, 2**16), (np.int64, 2**63),
        (np.float16, 1e6), (np.float32, 1e39), (np.int32, 0.5), (np.bool_, 2),
    ],
)  # fmt: skip
def test_bnd_10_a_fill_value_that_the_dtype_lacks(dtype, other) -> None:
    """NVIDIA/cutile-python#23: an error at the load that names the dtype, before anything is compiled."""
    x = np.zeros(5, dtype)
    with pytest.raises(KernelError) as caught:
        load_with.compile(x, np.zeros(8, dtype), other=other)
    assert isinstance(caught.value, (KernelValueError, TypeError))
    assert np.dtype(dtype).name in str(caught.value)
    assert "ts.load(x, 0, shape=8, other=other)" in str(caught.value)
    assert "^^^" in str(caught.value)


@ts.jit
def padded_softmax(x, out, N: ts.constexpr = 8):
    row = ts.load(x, 0, shape=N, other=-np.inf).astype(ts.float32)
    row = ts.exp(row - ts.max(row))
    ts.store(out, 0, row / ts.sum(row))


@pytest.mark.parametrize("dtype", [np.float16, ts.bfloat16.numpy, np.float32])
def test_bnd_10_minus_infinity_where_there_is_one(dtype) -> None:
    """NVIDIA/cutile-python#23: -inf reaches a reduction behind a widening cast, and weighs nothing."""
    x = Arena((5,), np.dtype(dtype)).fill(np.full(5, 2.5, dtype))
    out = np.full(5, 99, np.float32)
    both.run(padded_softmax, 1, x, out)
    assert out.tolist() == [np.float32(0.2)] * 5


@ts.jit
def nearest(x, out, other: ts.constexpr, N: ts.constexpr = 4):
    tile = ts.load(x, 0, shape=N, other=other)
    smallest = ts.min(tile)
    out[0] = smallest
    out[1] = ts.min(ts.where(tile == smallest, ts.arange(N), N)).astype(ts.float32)


def test_bnd_11_padding_that_cannot_win() -> None:
    """AnswerDotAI/fastkmeans#9: +inf never wins a minimum; 0, the default, does, and the language's page says so."""
    x = Arena((3,), F32).fill(np.array([3, 2, 5], np.float32))
    for size in (4, 8, 256):
        out = np.zeros(2, np.float32)
        both.run(nearest, 1, x, out, other=np.inf, N=size)
        assert out.tolist() == [2, 1]
        both.run(nearest, 1, x, out, other=0, N=size)
        assert out.tolist() == [0, 3]


@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_bnd_15_empty_operands(dtype) -> None:
    """triton-lang/triton#10427: M = 0 or N = 0 runs nothing; K = 0 writes zeros, not what was there."""
    out = np.float32 if dtype is np.float16 else np.int32
    for m, k, n in ((3, 0, 4), (0, 5, 4), (3, 5, 0), (0, 0, 0), (100, 0, 70)):
        a, b = np.zeros((m, k), dtype), np.zeros((k, n), dtype)
        c = Arena((m, n), np.dtype(out))
        c.fill(np.full((m, n), 77, out))
        both.run(matmul, (ts.cdiv(m, 32), ts.cdiv(n, 32)), a, b, c.array, BM=32, BN=32)
        c.check_surroundings()
        assert c.array.tolist() == np.zeros((m, n)).tolist()


def test_bnd_15_an_empty_array_is_all_outside() -> None:
    """triton-lang/triton#10427: programs that run all the same read the fill value and write nothing."""
    empty, out = np.zeros((0, 4), np.float32), np.full((2, 4), 9, np.float32)

    @ts.jit
    def copy(x, y):
        ts.store(y, (0, 0), ts.load(x, (0, 0), shape=(2, 4), other=5))

    both.run(copy, 1, empty, out)
    assert out.tolist() == [[5] * 4] * 2
    both.run(copy, (2, 3), out, empty)
    compare.same(out, np.full((2, 4), 5, np.float32))
