"""Kernels in textual Tile IR for the tests of the ROCm passes, and a way to run them before and after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import tessera.ir.ops  # noqa: F401  the parser knows ops by their classes
from tessera import dtypes
from tessera.ir.core import Kernel
from tessera.ir.interp import run_kernel
from tessera.ir.text import parse_kernel
from tessera.ir.verify import verify


def load_kernel(text: str) -> Kernel:
    kernel = parse_kernel(text)
    verify(kernel)
    return kernel


def array(dtype: str, axis: int | None = 1, align: int = 16, ndim: int = 2) -> str:
    where = "" if axis is None else f"axis={axis},"
    return f"array<{dtype},{ndim},align={align},{where}small,disjoint>"


def matmul(
    bm: int,
    bn: int,
    bk: int,
    *,
    waves: int = 4,
    dtype: str = "f16",
    acc: str = "f32",
    out: str | None = None,
    a_axis: int | None = 1,
    b_axis: int | None = 1,
    align: int = 16,
    operand: str = "",
    epilogue: str = "",
    result: str = "%acc",
    b_dtype: str | None = None,
) -> str:
    """`c = a @ b` over tiles. `operand` holds ops on %x and %y that end in %xx and %yy; `epilogue` ops on %acc, with %bias at hand."""
    b_dtype = b_dtype or dtype
    x, y = ("%xx", "%yy") if operand else ("%x", "%y")
    tile = f"{bm}x{bn}x{acc}"
    return f"""
kernel @matmul num_waves={waves} weak=[]
^(%a: {array(dtype, a_axis, align)}, %b: {array(b_dtype, b_axis, align)}, %bias: {array("f32", 0, ndim=1)}, %c: {array(out or acc)}) {{
  %pm = program_id axis=0 : i64
  %pn = program_id axis=1 : i64
  %bm = const type=i64 value={bm} : i64
  %bn = const type=i64 value={bn} : i64
  %bk = const type=i64 value={bk} : i64
  %m0 = mul %pm %bm : i64
  %n0 = mul %pn %bn : i64
  %zero = const type=i64 value=0 : i64
  %za = const type={dtype} value=0 : {dtype}
  %zb = const type={b_dtype} value=0 : {b_dtype}
  %zf = const type=f32 value=0 : f32
  %k = extent %a axis=1 : i64
  %init = const type={tile} value=0 : {tile}
  %acc = for %zero %k %bk [%init] stages=0 : {tile}
  ^(%i: i64, %t: {tile}) {{
    %x = load %a [%m0 %i] %za shape=({bm},{bk}) : {bm}x{bk}x{dtype}
    %y = load %b [%i %n0] %zb shape=({bk},{bn}) : {bk}x{bn}x{b_dtype}
{operand}
    %d = dot {x} {y} %t fallback='' instruction='' : {tile}
    yield [%d]
  }}
{epilogue}
  store %c [%m0 %n0] {result}
  yield []
}}
"""


def bias_relu_epilogue(bm: int, bn: int) -> str:
    """%out = relu(%acc + bias).astype(f16)."""
    return f"""
  %bt = load %bias [%n0] %zf shape=({bn},) : {bn}xf32
  %br = reshape %bt shape=(1,{bn}) : 1x{bn}xf32
  %bb = broadcast %br shape=({bm},{bn}) : {bm}x{bn}xf32
  %sum = add %acc %bb : {bm}x{bn}xf32
  %zeros = const type={bm}x{bn}xf32 value=0 : {bm}x{bn}xf32
  %relu = maximum %sum %zeros : {bm}x{bn}xf32
  %out = cast %relu to=f16 : {bm}x{bn}xf16
"""


def scaled_masked_operands(bm: int, bn: int, bk: int, dtype: str) -> str:
    """%xx = where(column index < k, (x.astype(f32) * 0.5).astype(f16), 0); %yy = y.astype(f16)."""
    return f"""
    %xf = cast %x to=f32 : {bm}x{bk}xf32
    %half = const type={bm}x{bk}xf32 value=0.5 : {bm}x{bk}xf32
    %xs = mul %xf %half : {bm}x{bk}xf32
    %xh = cast %xs to=f16 : {bm}x{bk}xf16
    %cols = arange type={bk}xi64 : {bk}xi64
    %at = splat %i shape=({bk},) : {bk}xi64
    %col = add %cols %at : {bk}xi64
    %end = splat %k shape=({bk},) : {bk}xi64
    %inside = lt %col %end : {bk}xbool
    %row = reshape %inside shape=(1,{bk}) : 1x{bk}xbool
    %mask = broadcast %row shape=({bm},{bk}) : {bm}x{bk}xbool
    %none = const type={bm}x{bk}xf16 value=0 : {bm}x{bk}xf16
    %xx = select %mask %xh %none : {bm}x{bk}xf16
    %yy = cast %y to=f16 : {bk}x{bn}xf16
"""


FLASH = f"""
kernel @flash num_waves=4 weak=[]
^(%q: {array("f16")}, %k: {array("f16")}, %v: {array("f16")}, %o: {array("f16")}) {{
  %pm = program_id axis=0 : i64
  %bm = const type=i64 value=64 : i64
  %bn = const type=i64 value=32 : i64
  %m0 = mul %pm %bm : i64
  %zero = const type=i64 value=0 : i64
  %z = const type=f16 value=0 : f16
  %n = extent %k axis=0 : i64
  %mi = const type=64xf32 value=-inf : 64xf32
  %li = const type=64xf32 value=0 : 64xf32
  %oi = const type=64x64xf32 value=0 : 64x64xf32
  %si = const type=64x32xf32 value=0 : 64x32xf32
  %qt = load %q [%m0 %zero] %z shape=(64,64) : 64x64xf16
  %scale = const type=64x32xf32 value=0.125 : 64x32xf32
  %neg = const type=64x32xf32 value=-1000.0 : 64x32xf32
  %cols = arange type=32xi64 : 32xi64
  %mf, %lf, %of = for %zero %n %bn [%mi %li %oi] stages=0 : 64xf32, 64xf32, 64x64xf32
  ^(%i: i64, %m: 64xf32, %l: 64xf32, %acc: 64x64xf32) {{
    %kt = load %k [%i %zero] %z shape=(32,64) : 32x64xf16
    %kk = transpose %kt order=(1,0) : 64x32xf16
    %s0 = dot %qt %kk %si fallback='' instruction='' : 64x32xf32
    %s1 = mul %s0 %scale : 64x32xf32
    %is = splat %i shape=(32,) : 32xi64
    %c = add %cols %is : 32xi64
    %ns = splat %n shape=(32,) : 32xi64
    %in = lt %c %ns : 32xbool
    %in2 = reshape %in shape=(1,32) : 1x32xbool
    %mask = broadcast %in2 shape=(64,32) : 64x32xbool
    %s = select %mask %s1 %neg : 64x32xf32
    %mx = max %s axis=1 : 64xf32
    %mn = maximum %m %mx : 64xf32
    %mr = reshape %mn shape=(64,1) : 64x1xf32
    %mb = broadcast %mr shape=(64,32) : 64x32xf32
    %sub = sub %s %mb : 64x32xf32
    %p = exp %sub : 64x32xf32
    %da = sub %m %mn : 64xf32
    %al = exp %da : 64xf32
    %ps = sum %p axis=1 : 64xf32
    %l1 = mul %l %al : 64xf32
    %l2 = add %l1 %ps : 64xf32
    %ar = reshape %al shape=(64,1) : 64x1xf32
    %ab = broadcast %ar shape=(64,64) : 64x64xf32
    %a1 = mul %acc %ab : 64x64xf32
    %ph = cast %p to=f16 : 64x32xf16
    %vt = load %v [%i %zero] %z shape=(32,64) : 32x64xf16
    %a2 = dot %ph %vt %a1 fallback='' instruction='' : 64x64xf32
    yield [%mn %l2 %a2]
  }}
  %lr = reshape %lf shape=(64,1) : 64x1xf32
  %lb = broadcast %lr shape=(64,64) : 64x64xf32
  %r = div %of %lb : 64x64xf32
  %rh = cast %r to=f16 : 64x64xf16
  store %o [%m0 %zero] %rh
  yield []
}}
"""
"""Attention, one block of 64 queries: two chained dots, a running maximum and sum."""


def softmax(rows: int, columns: int, waves: int = 4) -> str:
    full = f"{rows}x{columns}xf32"
    return f"""
kernel @softmax num_waves={waves} weak=[]
^(%x: {array("f32")}, %y: {array("f32")}) {{
  %pm = program_id axis=0 : i64
  %bm = const type=i64 value={rows} : i64
  %m0 = mul %pm %bm : i64
  %zero = const type=i64 value=0 : i64
  %z = const type=f32 value=-inf : f32
  %t = load %x [%m0 %zero] %z shape=({rows},{columns}) : {full}
  %m = max %t axis=1 : {rows}xf32
  %mr = reshape %m shape=({rows},1) : {rows}x1xf32
  %mb = broadcast %mr shape=({rows},{columns}) : {full}
  %d = sub %t %mb : {full}
  %e = exp %d : {full}
  %s = sum %e axis=1 : {rows}xf32
  %sr = reshape %s shape=({rows},1) : {rows}x1xf32
  %sb = broadcast %sr shape=({rows},{columns}) : {full}
  %o = div %e %sb : {full}
  store %y [%m0 %zero] %o
  yield []
}}
"""


def small_integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Values whose products and sums are exact in every accumulator, so that no order of summation shows."""
    return rng.integers(-4, 5, shape).astype(dtypes.parse(dtype).numpy)


def run(kernel: Kernel, grid: tuple[int, int, int], inputs: Sequence[np.ndarray], out: np.ndarray) -> np.ndarray:
    """The output array after a run; it starts as `out`, which stays as it is."""
    result = out.copy()
    with np.errstate(all="ignore"):
        run_kernel(kernel, grid, [*inputs, result])
    return result
