"""From a fresh process to a code object: the f16 128x128x32 matmul for gfx1151, by specification, without arrays. Timed from outside."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tessera as ts
from corpus import kernels

f16, f32 = (ts.Array(d, ndim=2, align=16, disjoint=True) for d in (ts.float16, ts.float32))
code = kernels.matmul.compile(f16, f16, f32, BM=128, BN=128, BK=32, arch="gfx1151").code_object
assert code[:4] == b"\x7fELF"
