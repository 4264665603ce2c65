"""Every elementwise operation on tiles that give each lane one element: vectors of length 1 are where LLVM is least tested."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import dtypes

FLOATS = (ts.float16, ts.bfloat16, ts.float32, ts.float64)
INTEGERS = tuple(d for d in dtypes.ALL if d.is_integer)


@ts.jit(num_waves=4)
def arithmetic(x, y, out):
    a, b = ts.load(x, 0, shape=32), ts.load(y, 0, shape=32)
    results = (a + b, a - b, a * b, a // b, a % b, ts.minimum(a, b), ts.maximum(a, b), ts.abs(a), -a, ts.where(a < b, a, b))
    for i in ts.static_range(len(results)):
        ts.store(out, (i, 0), ts.reshape(results[i], (1, 32)))


@ts.jit(num_waves=4)
def functions(x, out):
    a = ts.load(x, 0, shape=32)
    results = (ts.floor(a), ts.ceil(a), ts.sqrt(a), a / (a + a))
    for i in ts.static_range(len(results)):
        ts.store(out, (i, 0), ts.reshape(results[i], (1, 32)))


@ts.jit(num_waves=4)
def bits(x, y, out):
    a, b = ts.load(x, 0, shape=32), ts.load(y, 0, shape=32)
    results = (a & b, a | b, a ^ b, ~a, a << b, a >> b)
    for i in ts.static_range(len(results)):
        ts.store(out, (i, 0), ts.reshape(results[i], (1, 32)))


def values(dtype: dtypes.DType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        x = rng.integers(max(info.min, -50), 50, 32).astype(dtype.numpy)
        x[:4] = [info.min, info.max, 0, 1]
        return rng.permutation(x)
    x = (rng.standard_normal(32) * 20).astype(dtype.numpy)
    x[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.0]
    return rng.permutation(x)


def both(kernel, inputs: list[np.ndarray], rows: int, dtype: dtypes.DType) -> tuple[np.ndarray, np.ndarray]:
    """The kernel's output in the simulator and in the reference executor, as bits (NaNs made equal)."""
    found = []
    for executor in ("rocm_sim", "reference"):
        out = np.zeros((rows, 32), dtype.numpy)
        compiled = kernel.compile(*inputs, out, arch="gfx1151")
        ts.runtime.launch(compiled.artifact, 1, (*inputs, out), executor=executor)
        plain = out.astype(np.float64) if dtype.is_float else out
        found.append(np.where(np.isnan(plain), 777.0, plain) if dtype.is_float else out)
        found[-1] = np.stack([found[-1], np.signbit(plain) & ~np.isnan(plain)]) if dtype.is_float else found[-1]
    return found[0], found[1]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_arithmetic(dtype):
    got, want = both(arithmetic, [values(dtype, 1), values(dtype, 2)], 10, dtype)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions(dtype):
    got, want = both(functions, [values(dtype, 3)], 4, dtype)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_bits(dtype):
    got, want = both(bits, [values(dtype, 4), values(dtype, 5)], 6, dtype)
    np.testing.assert_array_equal(got, want)
