"""Vector addition with a ragged tail: bit for bit what NumPy gives. Exits non-zero on a mismatch."""

from __future__ import annotations

import sys

import numpy as np
import report

import tessera as ts


@ts.jit(target="rocm")
def vector_add(x, y, z, BLOCK: ts.constexpr = 1024):
    i = ts.program_id(0)
    ts.store(z, (i,), ts.load(x, (i,), shape=(BLOCK,)) + ts.load(y, (i,), shape=(BLOCK,)))


def main() -> int:
    options = report.options(__doc__)
    n, block = 1_000_003, 1024
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n).astype(np.float32)
    y = rng.standard_normal(n).astype(np.float32)
    z = np.full(n, np.nan, np.float32)

    kernel = vector_add.compile(x, y, z, BLOCK=block, arch=options.arch)
    results = [ts.runtime.launch(kernel.artifact, ts.cdiv(n, block), (x, y, z)) for _ in range(3)]

    wrong = int(np.count_nonzero(z != x + y))
    seconds = min(result.seconds for result in results)
    print(f"vector_add of {n} float32, {block} a program")
    report.describe(kernel, results[-1])
    print(f"  {wrong} elements differ from NumPy's: {'WRONG' if wrong else 'ok'}")
    print(f"  {3 * x.nbytes / seconds / 1e9:.1f} GB/s ({seconds * 1e3:.2f} ms)")
    if options.show:
        report.show(kernel)
    if options.save:
        report.save(kernel, options.save)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
