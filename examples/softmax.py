"""Softmax over rows that aren't a power of two long, compared with float64. Exits non-zero on a mismatch."""

from __future__ import annotations

import sys

import numpy as np
import report

import tessera as ts


@ts.jit(target="rocm")
def softmax(x, y, ROWS: ts.constexpr = 4, COLS: ts.constexpr = 1024):
    """y = softmax of each row of x. COLS is at least the length of a row: what lies beyond it reads as -inf and adds nothing."""
    i = ts.program_id(0)
    row = ts.load(x, (i, 0), shape=(ROWS, COLS), other=-np.inf)
    row = ts.exp(row - ts.max(row, axis=1)[:, None])
    ts.store(y, (i, 0), row / ts.sum(row, axis=1)[:, None])


def main() -> int:
    options = report.options(__doc__)
    rows, columns, block_rows, block_columns = 1_823, 781, 4, 1024
    rng = np.random.default_rng(0)
    x = (4 * rng.standard_normal((rows, columns))).astype(np.float32)
    y = np.full((rows, columns), np.nan, np.float32)

    kernel = softmax.compile(x, y, ROWS=block_rows, COLS=block_columns, arch=options.arch)
    results = [ts.runtime.launch(kernel.artifact, ts.cdiv(rows, block_rows), (x, y)) for _ in range(3)]

    shifted = x.astype(np.float64) - x.max(axis=1, keepdims=True)
    expected = np.exp(shifted)
    expected /= expected.sum(axis=1, keepdims=True)
    # Relative: rounding x - max moves exp by |x - max| u, in the numerator and at most as much in the sum; two exps of 2 ULP (4 u each);
    # the sum of n terms; the division. Absolute: half the smallest subnormal.
    u = report.UNIT_ROUNDOFF
    relative = np.abs(shifted) * u + np.max(np.abs(shifted), axis=1, keepdims=True) * u + 8 * u + report.gamma(columns) + u
    error = np.abs(y - expected)
    bound = relative * expected + 2.0**-150
    good = bool(np.all(error <= bound))
    seconds = min(result.seconds for result in results)
    print(f"softmax of {rows} rows of {columns} float32, {block_rows} rows a program")
    report.describe(kernel, results[-1])
    print(f"  maximum error {np.max(error):.3g}, {np.max(error / bound):.3f} of what float32 may lose: {'ok' if good else 'WRONG'}")
    print(f"  {2 * x.nbytes / seconds / 1e9:.1f} GB/s ({seconds * 1e3:.2f} ms)")
    if options.show:
        report.show(kernel)
    if options.save:
        report.save(kernel, options.save)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
