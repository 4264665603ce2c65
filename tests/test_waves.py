"""Reductions, transposes and broadcasts across lanes and waves as machine code: the simulator against the reference, bit for bit.

The runs are in the simulator's checking mode: a missing barrier or wait, or data that nobody wrote, is an error.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from rocm_kernels import array, load_kernel

from tessera import dtypes, llvm
from tessera.dtypes import DType, Kind
from tessera.ir.interp import run_kernel
from tessera.runtime.simulator import engine
from tessera.targets.rocm import codeobject
from tessera.targets.rocm.allocate import lds_bytes
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.lowering import lower_kernel
from tessera.targets.rocm.pipeline import ROCM_PASSES

ARCH = arch("gfx1151")


def same(x: np.ndarray, y: np.ndarray) -> bool:
    """Equal bit for bit, any NaN equalling any NaN."""
    raw = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.itemsize]
    return bool(((x.view(raw) == y.view(raw)) | ((x != x) & (y != y))).all())


def check(text: str, arrays: list[np.ndarray]) -> str:
    """Compile, run one program, compare all arrays. Returns the LLVM IR."""
    kernel = load_kernel(text)
    for step in ROCM_PASSES:
        step(kernel, ARCH)
    ir = lower_kernel(kernel, ARCH, lds_bytes=lds_bytes(kernel))
    code = codeobject.link(llvm.compile_device(ir, ARCH.name))
    want, got = [a.copy() for a in arrays], [a.copy() for a in arrays]
    run_kernel(load_kernel(text), (1, 1, 1), want)
    kernarg, buffers = b"", []
    for index, a in enumerate(got):
        address = a.__array_interface__["data"][0]
        kernarg += np.array([address, *a.shape, *a.strides], np.int64).tobytes()
        buffers.append(engine.Buffer(f"p{index}", address, a.nbytes))
    program = engine.prepare(code, check=True)
    program.run((1, 1, 1), (32 * kernel.num_waves, 1, 1), kernarg, buffers, check=True)
    for have, wanted in zip(got, want, strict=True):
        assert same(have, wanted), (have, wanted)
    return ir


def sample(shape: tuple[int, ...], dtype: DType, *, nan: bool = False) -> np.ndarray:
    """Any integers; floats whose sums are exact in any order, with some NaN and zeros of both signs if asked for."""
    rng = np.random.default_rng(shape[0] * 7 + dtype.bits)
    if dtype.kind is Kind.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if not dtype.is_float:
        info = np.iinfo(dtype.numpy)
        return rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
    x = rng.integers(-8, 8, shape).astype(dtype.numpy)
    return np.where(rng.random(shape) < 0.01, np.nan, np.where(rng.random(shape) < 0.1, -0.0, x)).astype(dtype.numpy) if nan else x


def reduction(op: str, dtype: DType, rows: int, columns: int, axis: int, waves: int) -> str:
    d, left = dtype.short, (rows, columns)[1 - axis]
    return f"""
kernel @reduce num_waves={waves} weak=[]
^(%x: {array(d)}, %y: {array(d, 0, ndim=1)}) {{
  %zero = const type=i64 value=0 : i64
  %z = const type={d} value=0 : {d}
  %t = load %x [%zero %zero] %z shape=({rows},{columns}) : {rows}x{columns}x{d}
  %m = {op} %t axis={axis} : {left}x{d}
  store %y [%zero] %m
  yield []
}}
"""


def check_reduction(op: str, dtype: DType, rows: int, columns: int, axis: int, waves: int) -> None:
    x = sample((rows, columns), dtype, nan=op != "sum")
    check(reduction(op, dtype, rows, columns, axis, waves), [x, np.zeros((rows, columns)[1 - axis], dtype.numpy)])


@pytest.mark.parametrize(
    ("op", "dtype", "rows", "columns", "axis", "waves"),
    [
        ("sum", dtypes.float16, 1, 1024, 1, 4),
        ("max", dtypes.float32, 1, 1024, 1, 8),
        ("min", dtypes.bfloat16, 16, 64, 0, 4),
        ("max", dtypes.float16, 64, 16, 1, 2),
        ("sum", dtypes.float64, 128, 8, 0, 3),
        ("sum", dtypes.int8, 16, 64, 1, 5),
        ("min", dtypes.uint8, 64, 4, 0, 4),
        ("max", dtypes.int64, 1, 256, 1, 2),
        ("max", dtypes.bool_, 8, 32, 0, 1),
        ("sum", dtypes.uint16, 2, 2, 0, 4),
    ],
)
def test_reductions(op: str, dtype: DType, rows: int, columns: int, axis: int, waves: int) -> None:
    check_reduction(op, dtype, rows, columns, axis, waves)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_reductions_of_every_dtype(dtype: DType) -> None:
    for op, (rows, columns), axis, waves in product(("sum", "max", "min"), ((1, 1024), (16, 64), (64, 4)), (0, 1), (1, 2, 3, 4, 8)):
        if op != "sum" or dtype.kind is not Kind.BOOL:
            check_reduction(op, dtype, rows, columns, axis, waves)


def transpose(dtype: DType, rows: int, columns: int, waves: int) -> str:
    d = dtype.short
    return f"""
kernel @transpose num_waves={waves} weak=[]
^(%x: {array(d)}, %y: {array(d)}) {{
  %zero = const type=i64 value=0 : i64
  %z = const type={d} value=0 : {d}
  %t = load %x [%zero %zero] %z shape=({rows},{columns}) : {rows}x{columns}x{d}
  %u = transpose %t order=(1,0) : {columns}x{rows}x{d}
  store %y [%zero %zero] %u
  yield []
}}
"""


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "waves"),
    [
        (dtypes.float16, 64, 64, 4),
        (dtypes.int8, 64, 128, 2),
        (dtypes.float32, 32, 32, 1),
        (dtypes.float64, 16, 64, 3),
        (dtypes.bool_, 64, 64, 8),
        (dtypes.uint16, 2, 4, 4),
        (dtypes.bfloat16, 128, 8, 7),
    ],
)
def test_transposes(dtype: DType, rows: int, columns: int, waves: int) -> None:
    x = sample((rows, columns), dtype)
    check(transpose(dtype, rows, columns, waves), [x, np.zeros((columns, rows), dtype.numpy)])


def centred(rows: int, columns: int, waves: int) -> str:
    """Each row less its maximum, and the sum of that over rows, and the sum of everything."""
    full = f"{rows}x{columns}xf32"
    return f"""
kernel @centred num_waves={waves} weak=[]
^(%x: {array("f32")}, %y: {array("f32")}, %s: {array("f32", 0, ndim=1)}, %t: {array("f32", 0, ndim=1)}) {{
  %zero = const type=i64 value=0 : i64
  %z = const type=f32 value=0 : f32
  %v = load %x [%zero %zero] %z shape=({rows},{columns}) : {full}
  %m = max %v axis=1 : {rows}xf32
  %mr = reshape %m shape=({rows},1) : {rows}x1xf32
  %mb = broadcast %mr shape=({rows},{columns}) : {full}
  %d = sub %v %mb : {full}
  store %y [%zero %zero] %d
  %c = sum %d axis=0 : {columns}xf32
  store %s [%zero] %c
  %all = sum %c axis=0 : f32
  %one = splat %all shape=(1,) : 1xf32
  store %t [%zero] %one
  yield []
}}
"""


@pytest.mark.parametrize(("rows", "columns", "waves"), [(16, 128, 4), (64, 8, 3), (1, 1024, 8), (8, 8, 6), (4, 16, 1)])
def test_chained_reductions_and_broadcasts(rows: int, columns: int, waves: int) -> None:
    x = sample((rows, columns), dtypes.float32)
    ir = check(centred(rows, columns, waves), [x, np.zeros_like(x), np.zeros(columns, np.float32), np.zeros(1, np.float32)])
    if waves == 1:
        assert "s.barrier" not in ir
