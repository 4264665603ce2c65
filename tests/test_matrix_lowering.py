"""Dots through the whole compiler, run on the simulator: small tiles, dtypes, orders, wave counts, computed operands, attention."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from rocm_kernels import (
    FLASH,
    array,
    bias_relu_epilogue,
    load_kernel,
    matmul,
    run,
    scaled_masked_operands,
    small_integers,
)

from tessera import dtypes
from tessera.runtime.simulator import engine
from tessera.targets.rocm.anchors import dot_layouts
from tessera.targets.rocm.compiler import Options, compile_kernel
from tessera.targets.rocm.layout import parse
from tessera.targets.rocm.lowering.matrix import fragments
from tessera.targets.rocm.matrix import ROWS

pytestmark = pytest.mark.medium


def placed(source: np.ndarray, axis: int | None = 1) -> np.ndarray:
    """A copy whose rows (columns for `axis` 0) begin at multiples of 16 bytes, with NaN or 77 between them."""
    if not source.size:
        return source.copy()
    wide = source if axis == 1 or source.ndim == 1 else source.T
    row = -(-wide.shape[-1] * source.itemsize // 16) * 16
    count = max(1, int(np.prod(wide.shape[:-1]))) * row
    raw = np.full(count + 16, 0x7F, np.uint8)
    start = -raw.ctypes.data % 16
    view = raw[start : start + count].view(source.dtype).reshape(*wide.shape[:-1], row // source.itemsize)[..., : wide.shape[-1]]
    view[...] = wide
    return view if wide is source else view.T


def simulate(text: str, grid: tuple[int, int, int], arrays: list[np.ndarray], out: np.ndarray, arch: str = "gfx1151") -> np.ndarray:
    """Compile and run; the output array starts as a copy of `out`."""
    kernel = load_kernel(text)
    compiled = compile_kernel(kernel, arch, Options())
    program = engine.prepare(compiled.code_object)
    result = placed(out, getattr(kernel.params[-1].type, "axis", None) if out.ndim == 2 else 1)
    kernarg, buffers = b"", []
    for param, given in zip(kernel.params, [*arrays, result], strict=True):
        low = min(given.ctypes.data, given.ctypes.data + sum(s * (e - 1) for s, e in zip(given.strides, given.shape, strict=True)))
        size = sum(abs(s) * (e - 1) for s, e in zip(given.strides, given.shape, strict=True)) + given.itemsize if given.size else 0
        kernarg += struct.pack(f"<Q{2 * given.ndim}q", given.ctypes.data, *given.shape, *given.strides)
        buffers.append(engine.Buffer(param.name, low, size, given is result))
    program.run(grid, (kernel.num_waves * 32, 1, 1), kernarg, buffers)
    return result


def check_matmul(
    shape: tuple[int, int, int], config: tuple[int, int, int], *, dtype: str = "f16", acc: str = "f32", **options: object
) -> None:
    """Integer values whose sums are exact: equal to NumPy's."""
    m, n, k = shape
    rng = np.random.default_rng(m + n * k)
    axes = (options.get("a_axis", 1), options.get("b_axis", 1))
    a, b = (placed(small_integers(rng, s, dtype), axis) for s, axis in zip(((m, k), (k, n)), axes, strict=True))  # type: ignore[arg-type]
    out = np.full((m, n), 77 if acc == "i32" else np.nan, dtypes.parse(acc).numpy)
    grid = (-(-m // config[0]), -(-n // config[1]), 1)
    got = simulate(matmul(*config, dtype=dtype, acc=acc, **options), grid, [a, b, placed(np.zeros(n, np.float32))], out)  # type: ignore[arg-type]
    np.testing.assert_array_equal(got, (a.astype(np.float64) @ b.astype(np.float64)).astype(out.dtype))


@pytest.mark.parametrize("config", [(16, 16, 16), (8, 16, 16), (1, 16, 32), (16, 4, 16), (32, 16, 8), (1, 1, 1), (48, 32, 48)])
@pytest.mark.parametrize("waves", [1, 3])
def test_small_and_odd_tiles(config: tuple[int, int, int], waves: int) -> None:
    check_matmul((19, 17, 21), config, waves=waves)


@pytest.mark.parametrize(("dtype", "acc"), [("bf16", "f32"), ("i8", "i32"), ("u8", "i32"), ("f16", "f16")])
@pytest.mark.parametrize("axes", [(1, 1), (0, 1), (1, 0)])
def test_dtypes_and_orders(dtype: str, acc: str, axes: tuple[int, int]) -> None:
    check_matmul((70, 33, 80), (64, 32, 32), dtype=dtype, acc=acc, a_axis=axes[0], b_axis=axes[1])


@pytest.mark.parametrize("waves", [1, 2, 5, 8])
def test_wave_counts(waves: int) -> None:
    check_matmul((70, 129, 100), (64, 64, 32), waves=waves)


@pytest.mark.parametrize("k", [0, 1, 64])
def test_short_sums(k: int) -> None:
    check_matmul((33, 17, k), (32, 32, 32))


@pytest.mark.slow
@pytest.mark.parametrize("waves", range(1, 9))
@pytest.mark.parametrize("config", [(32, 32, 32), (64, 64, 32), (128, 64, 32), (128, 128, 32), (64, 64, 64)])
@pytest.mark.parametrize(("dtype", "acc"), [("f16", "f32"), ("bf16", "f32"), ("i8", "i32")])
def test_default_configurations(config: tuple[int, int, int], waves: int, dtype: str, acc: str) -> None:
    check_matmul((257, 129, 200), config, waves=waves, dtype=dtype, acc=acc)


def test_a_dot_stored_by_some_lanes_stays_in_front_of_their_branch() -> None:
    text = f"""
    kernel @narrow num_waves=2 weak=[]
    ^(%a: {array("f32")}, %c: {array("f32", 0)}) {{
      %zero = const type=i64 value=0 : i64
      %z = const type=f32 value=0 : f32
      %x = load %a [%zero %zero] %z shape=(128,4) : 128x4xf32
      %h = cast %x to=f16 : 128x4xf16
      %ones = const type=4x4xf16 value=1 : 4x4xf16
      %t = const type=128x4xf32 value=0 : 128x4xf32
      %d = dot %h %ones %t fallback='' instruction='' : 128x4xf32
      store %c [%zero %zero] %d
      yield []
    }}
    """
    a = placed(small_integers(np.random.default_rng(4), (128, 4), "f32"))
    got = simulate(text, (1, 1, 1), [a], np.full((128, 4), np.nan, np.float32))
    np.testing.assert_array_equal(got, np.repeat(a.sum(1, keepdims=True), 4, 1))


def test_operands_stay_in_front_of_the_barrier_behind_which_some_waves_use_them() -> None:
    """Four waves hold the accumulators of eight; the others must not overwrite the operands in LDS before these have been read."""
    text = f"""
    kernel @transposed num_waves=8 weak=[]
    ^(%a: {array("f32")}, %c: {array("f32", 0)}) {{
      %zero = const type=i64 value=0 : i64
      %z = const type=f32 value=0 : f32
      %x = load %a [%zero %zero] %z shape=(32,32) : 32x32xf32
      %xt = transpose %x order=(1,0) : 32x32xf32
      %h = cast %x to=f16 : 32x32xf16
      %ht = cast %xt to=f16 : 32x32xf16
      %d = dot %ht %h %xt fallback='' instruction='' : 32x32xf32
      %f = floor %d : 32x32xf32
      store %c [%zero %zero] %f
      yield []
    }}
    """
    a = placed(small_integers(np.random.default_rng(5), (32, 32), "f32"))
    got = simulate(text, (1, 1, 1), [a], np.full((32, 32), np.nan, np.float32))
    np.testing.assert_array_equal(got, a.T @ a + a.T)


def test_an_epilogue() -> None:
    rng = np.random.default_rng(1)
    arrays = [placed(small_integers(rng, s, "f16")) for s in ((70, 50), (50, 40))] + [placed(rng.integers(-9, 9, 40).astype(np.float32))]
    text = matmul(64, 32, 32, out="f16", epilogue=bias_relu_epilogue(64, 32), result="%out")
    got = simulate(text, (2, 2, 1), arrays, np.full((70, 40), np.nan, np.float16))
    want = np.maximum(arrays[0].astype(np.float64) @ arrays[1].astype(np.float64) + arrays[2], 0)
    np.testing.assert_array_equal(got, want.astype(np.float16))


def test_computed_operands() -> None:
    rng = np.random.default_rng(2)
    arrays = [placed(small_integers(rng, (80, 50), "f16")), placed(small_integers(rng, (50, 60), "i8")), placed(np.zeros(60, np.float32))]
    text = matmul(64, 32, 32, operand=scaled_masked_operands(64, 32, 32, "f16"), b_dtype="i8")
    got = simulate(text, (2, 2, 1), arrays, np.full((80, 60), np.nan, np.float32))
    np.testing.assert_array_equal(got, 0.5 * (arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)).astype(np.float32))


def test_attention() -> None:
    rng = np.random.default_rng(3)
    arrays = [placed(rng.standard_normal((n, 64)).astype(np.float16)) for n in (70, 45, 45)]
    out = np.full((70, 64), np.nan, np.float16)
    got = simulate(FLASH, (2, 1, 1), arrays, out)
    want = run(load_kernel(FLASH), (2, 1, 1), arrays, out)
    # One block of keys after another in another order of summation: a few roundings to f16 of P and of the result.
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), atol=4 * 2**-11 * np.abs(arrays[2]).max().astype(float))


def test_fragments_of_a_small_tile() -> None:
    row = ROWS[0]
    found = dot_layouts(row, 8, 16, 4, (None,))
    assert fragments(found.a, row.a_layout) == {(0, 0): (0, 1, 2, 3, *[-1] * 12)}  # K is filled up with zeros
    assert str(found.acc) == "8x16/i2.i4/j1.j2.j4.j8.i1/-"  # rows 8 to 15 are copies
    assert fragments(parse("16x32/j1.j2.j4.j8.j16/i1.i2.i4.i8.-/"), row.a_layout) == {
        (0, 0): tuple(range(16)),
        (0, 16): tuple(range(16, 32)),
    }
