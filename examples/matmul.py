"""A float16 matrix product: compiled, launched, and compared with float64 element by element. Exits non-zero on a mismatch."""

from __future__ import annotations

import sys

import numpy as np
import report

import tessera as ts


@ts.jit(target="rocm")
def matmul(a, b, c, BM: ts.constexpr = 64, BN: ts.constexpr = 64, BK: ts.constexpr = 32):
    """C[M, N] = A[M, K] @ B[K, N], accumulated in float32. One program computes one BM x BN tile of C."""
    i, j = ts.program_id(0), ts.program_id(1)
    acc = ts.zeros((BM, BN), ts.float32)
    for k in range(ts.cdiv(a.shape[1], BK)):
        x = ts.load(a, (i, k), shape=(BM, BK))  # what lies outside reads as zero
        y = ts.load(b, (k, j), shape=(BK, BN))
        acc = ts.dot(x, y, acc)
    ts.store(c, (i, j), acc.astype(c.dtype))  # what lies outside isn't written


def run(m: int, k: int, n: int, tile: tuple[int, int, int], options) -> bool:
    rng = np.random.default_rng(m * n + k)
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    bm, bn, bk = tile

    kernel = matmul.compile(a, b, c, BM=bm, BN=bn, BK=bk, arch=options.arch)
    grid = (ts.cdiv(m, bm), ts.cdiv(n, bn))
    results = [ts.runtime.launch(kernel.artifact, grid, (a, b, c)) for _ in range(3)]

    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(c - wide_a @ wide_b)
    # The products are exact in float32; their sum is not: |error| <= gamma(K) * |A| @ |B|.
    bound = report.gamma(k) * (np.abs(wide_a) @ np.abs(wide_b))
    good = bool(np.all(error <= bound))
    seconds = min(result.seconds for result in results)
    print(f"matmul {m}x{k}x{n} float16, tiles {bm}x{bn}x{bk}")
    report.describe(kernel, results[-1])
    print(f"  maximum error {np.max(error):.3g}, {np.max(error / bound):.3f} of what float32 may lose: {'ok' if good else 'WRONG'}")
    print(f"  {2 * m * n * k / seconds / 1e9:.1f} GFLOP/s ({seconds * 1e3:.2f} ms)")
    if options.show:
        report.show(kernel)
    if options.save:
        report.save(kernel, options.save)
    return good


def main() -> int:
    options = report.options(__doc__)
    good = run(500, 300, 700, (64, 64, 32), options)
    good &= run(1024, 1024, 1024, (128, 128, 32), options)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
