"""Reports from the field: where simulators differ from GPUs. Each test names the case and the public thread that it retells."""

from __future__ import annotations

import both
import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.jit import JitFunction, Options

# BND-06 (jax-ml/jax#21143), windows that move, is in test_cases_bounds.py.


@ts.jit
def reduce(x, out, N: ts.constexpr = 4):
    tile = ts.load(x, 0, shape=N)
    out[0] = ts.sum(tile)
    out[1] = ts.max(ts.load(x, 0, shape=N, other=-np.inf))
    out[2] = ts.min(ts.load(x, 0, shape=N, other=np.inf))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32, np.float64])
def test_flt_15_sums_are_of_values(dtype) -> None:
    """triton-lang/triton#11604: the interpreter summed bfloat16 as integers. NaN in is NaN out; sums are held in float32, rounded once."""
    for values, expected in (
        ([1, np.nan, 2], [np.nan] * 3),
        ([1, 2, 3.5], [6.5, 3.5, 1]),
        ([-1, -2, -3.5], [-6.5, -1, -3.5]),
        ([np.inf, 1, 2], [np.inf, np.inf, 1]),
        ([np.inf, -np.inf, 2], [np.nan, np.inf, -np.inf]),
    ):
        out = np.zeros(3, dtype)
        both.run(reduce, 1, np.array(values, dtype), out)
        np.testing.assert_array_equal(out.astype(np.float64), expected)
    if np.dtype(dtype).itemsize == 2:  # 256 + 1 + 1 + … in bfloat16 alone stays 256; 2048 in float16
        big = 256 if dtype is ml_dtypes.bfloat16 else 2048
        x = np.array([big, *[1] * 62], dtype)
        out = np.zeros(3, dtype)
        both.run(reduce, 1, x, out, N=64)
        assert float(out[0]) == float(np.array(big + 62, np.float32).astype(dtype))


@ts.jit
def many_dots(a, b, c, SIZE: ts.constexpr = 16):
    i = ts.program_id(0)
    x, y = ts.load(a, (i, 0, 0), shape=(1, SIZE, SIZE)), ts.load(b, (i, 0, 0), shape=(1, SIZE, SIZE))
    product = ts.dot(x.reshape(SIZE, SIZE), y.reshape(SIZE, SIZE), ts.zeros((SIZE, SIZE), c.dtype))
    ts.store(c, (i, 0, 0), product[None, :, :])


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [(np.float16, np.float32), (ml_dtypes.bfloat16, np.float32), (np.int8, np.int32), (np.uint8, np.int32), (np.float16, np.float16)],
)
def test_lay_09_one_hot_operands(narrow, wide) -> None:
    """ROCm/rocm-systems#7272: A = e(i, k), B = e(k', j): one element of C is 1 where k = k', none elsewhere. All 4,096 of each instruction.

    (Layouts by themselves are compared with AMD's calculator in test_matrix_rows.py and test_sim_matrix.py. Wave64 is a later version's.)
    """
    i, k, j = (axis.ravel() for axis in np.meshgrid(np.arange(16), np.arange(16), np.arange(16), indexing="ij"))
    program = np.arange(4096)
    a, b = np.zeros((4096, 16, 16), narrow), np.zeros((4096, 16, 16), narrow)
    a[program, i, k] = 1
    b[program, k, j] = 1
    c = np.full((4096, 16, 16), 9, wide)
    kernel = JitFunction(many_dots.function, Options(num_waves=1))
    kernel[4096](a, b, c)
    expected = np.zeros((4096, 16, 16), wide)
    expected[program, i, j] = 1
    assert np.array_equal(c, expected)
    b = np.roll(b, 1, axis=1)  # k' = k + 1
    kernel[4096](a, b, c)
    assert not c.any()
