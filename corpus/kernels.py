"""The kernels that tests run and benchmarks measure, each with the NumPy function that it must agree with beside it."""

from __future__ import annotations

import numpy as np

import tessera as ts


@ts.jit(target="rocm")
def matmul(a, b, c, BM: ts.constexpr = 64, BN: ts.constexpr = 64, BK: ts.constexpr = 32):
    """C[M, N] = A[M, K] @ B[K, N]; integers accumulate in int32, floats in float32. Grid: (cdiv(M, BM), cdiv(N, BN))."""
    i, j = ts.program_id(0), ts.program_id(1)
    acc = ts.zeros((BM, BN), c.dtype)
    for k in range(ts.cdiv(a.shape[1], BK)):
        x = ts.load(a, (i, k), shape=(BM, BK))
        y = ts.load(b, (k, j), shape=(BK, BN))
        acc = ts.dot(x, y, acc)
    ts.store(c, (i, j), acc)


@ts.jit(target="rocm")
def matmul_bias_activation(a, b, bias, c, BM: ts.constexpr = 64, BN: ts.constexpr = 64, BK: ts.constexpr = 32):
    """C = max(A @ B + bias, 0), cast to C's dtype in the epilogue; bias has N elements."""
    i, j = ts.program_id(0), ts.program_id(1)
    acc = ts.zeros((BM, BN), ts.float32)
    for k in range(ts.cdiv(a.shape[1], BK)):
        acc = ts.dot(ts.load(a, (i, k), shape=(BM, BK)), ts.load(b, (k, j), shape=(BK, BN)), acc)
    row = ts.load(bias, (j,), shape=(BN,)).astype(ts.float32)
    ts.store(c, (i, j), ts.maximum(acc + row[None, :], 0.0).astype(c.dtype))


@ts.jit(target="rocm")
def chained_dots(a, b, d, c, BM: ts.constexpr = 32, BN: ts.constexpr = 32, BK: ts.constexpr = 32, BD: ts.constexpr = 32):
    """C[M, D] = (A[M, K] @ B[K, N]) @ D[N, D], the inner product rounded to A's dtype, in blocks of BN."""
    i, j = ts.program_id(0), ts.program_id(1)
    total = ts.zeros((BM, BD), ts.float32)
    for n in range(ts.cdiv(b.shape[1], BN)):
        inner = ts.zeros((BM, BN), ts.float32)
        for k in range(ts.cdiv(a.shape[1], BK)):
            inner = ts.dot(ts.load(a, (i, k), shape=(BM, BK)), ts.load(b, (k, n), shape=(BK, BN)), inner)
        total = ts.dot(inner.astype(a.dtype), ts.load(d, (n, j), shape=(BN, BD)), total)
    ts.store(c, (i, j), total)


@ts.jit(target="rocm")
def computed_operand(a, b, scale, c, BM: ts.constexpr = 32, BN: ts.constexpr = 32, BK: ts.constexpr = 32):
    """C = (A * scale, rounded to B's dtype, negatives masked to zero) @ B: A is float32, B float16 or bfloat16, scale one number a row."""
    i, j = ts.program_id(0), ts.program_id(1)
    acc = ts.zeros((BM, BN), ts.float32)
    factor = ts.load(scale, (i,), shape=(BM,))
    for k in range(ts.cdiv(a.shape[1], BK)):
        x = ts.load(a, (i, k), shape=(BM, BK)) * factor[:, None]
        x = ts.where(x > 0.0, x, 0.0).astype(b.dtype)
        acc = ts.dot(x, ts.load(b, (k, j), shape=(BK, BN)), acc)
    ts.store(c, (i, j), acc)


@ts.jit(target="rocm")
def one_dot(a, b, c, M: ts.constexpr = 32, N: ts.constexpr = 32, K: ts.constexpr = 32):
    """C = A @ B in one program without a loop."""
    x = ts.load(a, (0, 0), shape=(M, K))
    y = ts.load(b, (0, 0), shape=(K, N))
    ts.store(c, (0, 0), ts.dot(x, y, ts.zeros((M, N), c.dtype)))


@ts.jit(target="rocm")
def vector_add(x, y, z, BLOCK: ts.constexpr = 1024):
    """z = x + y. Grid: (cdiv(n, BLOCK),)."""
    i = ts.program_id(0)
    ts.store(z, (i,), ts.load(x, (i,), shape=(BLOCK,)) + ts.load(y, (i,), shape=(BLOCK,)))


@ts.jit(target="rocm")
def softmax(x, y, ROWS: ts.constexpr = 1, COLS: ts.constexpr = 1024):
    """y = softmax of each row of x, a whole row at a time: COLS is at least the row's length. Grid: (cdiv(rows, ROWS),)."""
    i = ts.program_id(0)
    row = ts.load(x, (i, 0), shape=(ROWS, COLS), other=-np.inf).astype(ts.float32)
    row = ts.exp(row - ts.max(row, axis=1)[:, None])
    ts.store(y, (i, 0), (row / ts.sum(row, axis=1)[:, None]).astype(y.dtype))


@ts.jit(target="rocm")
def layer_norm(x, gamma, beta, y, eps, ROWS: ts.constexpr = 1, COLS: ts.constexpr = 1024):
    """y = (x - mean) / sqrt(var + eps) * gamma + beta along rows, a whole row at a time."""
    i = ts.program_id(0)
    n = x.shape[1]
    inside = ts.arange(COLS) < n
    row = ts.load(x, (i, 0), shape=(ROWS, COLS)).astype(ts.float32)
    centred = ts.where(inside[None, :], row - ts.sum(row, axis=1)[:, None] / n, 0.0)
    scale = ts.rsqrt(ts.sum(centred * centred, axis=1) / n + eps)
    g = ts.load(gamma, (0,), shape=(COLS,)).astype(ts.float32)
    b = ts.load(beta, (0,), shape=(COLS,)).astype(ts.float32)
    ts.store(y, (i, 0), (centred * scale[:, None] * g[None, :] + b[None, :]).astype(y.dtype))


DEFAULT_CONFIGURATIONS = (
    {"BM": 32, "BN": 32, "BK": 32},
    {"BM": 64, "BN": 64, "BK": 32},
    {"BM": 128, "BN": 64, "BK": 32},
    {"BM": 128, "BN": 128, "BK": 32},
    {"BM": 64, "BN": 64, "BK": 64},
)
"""The tile sizes of matmul that must be free of spills and of LDS read conflicts."""
