"""Layout assignment: results stay, layouts obey their rules, and conversions stand where they must and nowhere else."""

from __future__ import annotations

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
    softmax,
)

from tessera import dtypes
from tessera.ir.core import IRError, Kernel, Op
from tessera.ir.ops.memory import Load, Store
from tessera.ir.text import parse_kernel, print_kernel
from tessera.ir.verify import verify
from tessera.targets.rocm.anchors import Threads, memory_layout, split_waves, staging_layout, touches, waves_of
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.assign import assign
from tessera.targets.rocm.check import check_layouts
from tessera.targets.rocm.layout import parse
from tessera.targets.rocm.matrix import ROWS
from tessera.targets.rocm.ops import ConvertLayout, Wmma
from tessera.targets.rocm.select import select

ARCH = arch("gfx1151")


def assigned(text: str) -> Kernel:
    kernel = load_kernel(text)
    select(kernel, ARCH)
    assign(kernel, ARCH)
    verify(kernel)
    check_layouts(kernel, ARCH)
    assert print_kernel(parse_kernel(print_kernel(kernel), layout=str)) == print_kernel(kernel)
    return kernel


def ops(kernel: Kernel, *kinds: type[Op]) -> list[Op]:
    return [op for op in kernel.body.walk() if isinstance(op, kinds)]


def conversions(kernel: Kernel) -> list[str]:
    """The conversions, as "from -> to"."""
    return [f"{op.operands[0].layout} -> {op.results[0].layout}" for op in ops(kernel, ConvertLayout)]


def layouts_of(kernel: Kernel, kind: type[Op]) -> list[str]:
    return [str(op.results[0].layout) for op in ops(kernel, kind)]


def both(text: str, grid: tuple[int, int, int], inputs: list[np.ndarray], out: np.ndarray) -> Kernel:
    """Run before and after; the results must be equal bit for bit."""
    kernel = assigned(text)
    before, after = (run(k, grid, inputs, out) for k in (load_kernel(text), kernel))
    np.testing.assert_array_equal(before, after)
    assert not np.array_equal(before, out, equal_nan=True)
    return kernel


def matmul_inputs(m: int, n: int, k: int, a: str = "f16", b: str | None = None) -> list[np.ndarray]:
    rng = np.random.default_rng(m * n + k)
    return [small_integers(rng, (m, k), a), small_integers(rng, (k, n), b or a), rng.standard_normal(n).astype(np.float32)]


# ---- matmul ------------------------------------------------------------------------------------------------------------------


def test_the_matmul_of_the_documentation() -> None:
    kernel = assigned(matmul(128, 128, 32))
    assert layouts_of(kernel, Load) == [
        "128x32/j1.j2.j4.i32.i64/j8.j16.i1.i2.i4/i8.i16",  # 16 bytes along k, four lanes to a row
        "32x128/j1.j2.j4.i1.i2/j8.j16.j32.i4.j64/i8.i16",  # blocks of 4 k by 8 columns, transposed on their way to LDS
    ]
    assert layouts_of(kernel, Wmma) == ["128x128/i2.i4.i8.j16.j32.i16.i32/j1.j2.j4.j8.i1/j64.i64"]
    assert conversions(kernel) == [
        "128x32/j1.j2.j4.i32.i64/j8.j16.i1.i2.i4/i8.i16 -> 128x32/j1.j2.j4.j8.j16.i16.i32/i1.i2.i4.i8.-/-.i64",
        "32x128/j1.j2.j4.i1.i2/j8.j16.j32.i4.j64/i8.i16 -> 32x128/i1.i2.i4.i8.j16.j32.i16/j1.j2.j4.j8.-/j64.-",
    ]
    (store,) = ops(kernel, Store)
    assert str(store.operands[-1].layout) == layouts_of(kernel, Wmma)[0]  # from the accumulators, without a detour


@pytest.mark.parametrize("waves", range(1, 9))
@pytest.mark.parametrize("config", [(32, 32, 32), (64, 64, 32), (128, 64, 32), (128, 128, 32), (64, 64, 64)])
def test_default_configurations(config: tuple[int, int, int], waves: int) -> None:
    kernel = both(matmul(*config, waves=waves), (2, 2, 1), matmul_inputs(130, 70, 45), np.full((130, 70), np.nan, np.float32))
    assert len(conversions(kernel)) == 2


@pytest.mark.parametrize(("dtype", "acc"), [("bf16", "f32"), ("f16", "f16"), ("i8", "i32"), ("u8", "i32")])
@pytest.mark.parametrize("axes", [(1, 1), (0, 1), (1, 0), (0, 0), (None, None)])
def test_dtypes_and_orders(dtype: str, acc: str, axes: tuple[int | None, int | None]) -> None:
    out = np.full((70, 90), 77, dtypes.parse(acc).numpy)
    kernel = both(
        matmul(64, 32, 32, dtype=dtype, acc=acc, a_axis=axes[0], b_axis=axes[1]), (2, 3, 1), matmul_inputs(70, 90, 50, dtype), out
    )  # fmt: skip
    assert len(conversions(kernel)) == 2


@pytest.mark.parametrize("config", [(16, 16, 16), (8, 16, 16), (1, 16, 32), (16, 4, 16), (32, 16, 8), (1, 1, 1), (2, 4, 8)])
@pytest.mark.parametrize("waves", [1, 3, 4])
def test_small_tiles(config: tuple[int, int, int], waves: int) -> None:
    grid = (-(-19 // config[0]), -(-17 // config[1]), 1)
    both(matmul(*config, waves=waves), grid, matmul_inputs(19, 17, 21), np.full((19, 17), np.nan, np.float32))


@pytest.mark.parametrize("config", [(96, 64, 48), (48, 32, 16), (32, 192, 32)])
@pytest.mark.parametrize("waves", [1, 4])
def test_extents_that_are_not_powers_of_two(config: tuple[int, int, int], waves: int) -> None:
    both(matmul(*config, waves=waves), (2, 2, 1), matmul_inputs(100, 70, 60), np.full((100, 70), np.nan, np.float32))


def test_an_epilogue_stays_in_the_accumulators_layout() -> None:
    text = matmul(128, 64, 32, out="f16", epilogue=bias_relu_epilogue(128, 64), result="%out")
    kernel = both(text, (1, 2, 1), matmul_inputs(100, 70, 40), np.full((100, 70), np.nan, np.float16))
    assert len(conversions(kernel)) == 2  # those of the operands
    acc = layouts_of(kernel, Wmma)[0]
    (store,) = ops(kernel, Store)
    assert str(store.operands[-1].layout) == acc
    bias = next(op for op in ops(kernel, Load) if len(op.results[0].tile.shape) == 1)
    assert str(bias.results[0].layout) == "64/i16/i1.i2.i4.i8.-/i32.-"


def test_computed_operands() -> None:
    text = matmul(64, 32, 32, operand=scaled_masked_operands(64, 32, 32, "f16"), b_dtype="i8")
    kernel = both(text, (2, 2, 1), matmul_inputs(80, 60, 50, "f16", "i8"), np.full((80, 60), np.nan, np.float32))
    assert len(conversions(kernel)) == 2  # what is computed from a load lies as the load does; the mask is made there


def test_a_dot_outside_any_loop() -> None:
    text = f"""
    kernel @once num_waves=2 weak=[]
    ^(%a: {array("f16")}, %b: {array("f16", 0)}, %c: {array("f32")}) {{
      %zero = const type=i64 value=0 : i64
      %z = const type=f16 value=0 : f16
      %x = load %a [%zero %zero] %z shape=(32,64) : 32x64xf16
      %y = load %b [%zero %zero] %z shape=(64,32) : 64x32xf16
      %t = const type=32x32xf32 value=1.5 : 32x32xf32
      %d = dot %x %y %t fallback='' instruction='' : 32x32xf32
      %e = dot %x %y %d fallback='' instruction='' : 32x32xf32
      store %c [%zero %zero] %e
      yield []
    }}
    """
    kernel = both(text, (1, 1, 1), matmul_inputs(30, 31, 60)[:2], np.full((30, 31), np.nan, np.float32))
    assert len(conversions(kernel)) == 2  # shared by both dots


# ---- attention, softmax, elementwise -----------------------------------------------------------------------------------------


def test_attention_converts_operands_only() -> None:
    rng = np.random.default_rng(5)
    inputs = [rng.standard_normal((n, 64)).astype(np.float16) for n in (70, 45, 45)]
    kernel = both(FLASH, (2, 1, 1), inputs, np.full((70, 64), np.nan, np.float16))
    wmmas = ops(kernel, Wmma)
    operands = {id(v.owner) for op in wmmas for v in op.operands[:2]}
    assert all(id(op) in operands for op in ops(kernel, ConvertLayout))
    assert [str(op.results[0].layout).split("/")[-1] for op in wmmas] == ["i16.i32", "i16.i32"]  # rows stay within their waves
    # The conversion of q stands in front of the loop.
    assert sum(isinstance(op, ConvertLayout) for op in kernel.body.ops) == 1


@pytest.mark.parametrize("shape", [(1, 1024), (4, 256), (64, 64), (2, 4), (128, 16)])
@pytest.mark.parametrize("waves", [1, 4, 6])
def test_softmax_needs_no_conversion(shape: tuple[int, int], waves: int) -> None:
    x = np.random.default_rng(0).standard_normal((150, shape[1] - 1)).astype(np.float32)
    kernel = both(softmax(*shape, waves), (2, 1, 1), [x], np.full((150, shape[1] - 1), np.nan, np.float32))
    assert conversions(kernel) == []


def test_waves_lie_along_rows_that_are_reduced_one_by_one() -> None:
    assert layouts_of(assigned(softmax(4, 256)), Load) == ["4x256/j1.j2.j128/j4.j8.j16.j32.j64/i1.i2"]


def test_a_transposed_operand_is_converted_once() -> None:
    text = f"""
    kernel @add num_waves=4 weak=[]
    ^(%a: {array("f32")}, %b: {array("f32", 0)}, %c: {array("f32")}) {{
      %zero = const type=i64 value=0 : i64
      %z = const type=f32 value=0 : f32
      %x = load %a [%zero %zero] %z shape=(64,64) : 64x64xf32
      %y = load %b [%zero %zero] %z shape=(64,64) : 64x64xf32
      %d = sub %x %y : 64x64xf32
      store %c [%zero %zero] %d
      yield []
    }}
    """
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((60, 50)).astype(np.float32), np.asfortranarray(rng.standard_normal((60, 50)).astype(np.float32))]
    kernel = both(text, (1, 1, 1), inputs, np.full((60, 50), np.nan, np.float32))
    assert len(conversions(kernel)) == 1
    for load in ops(kernel, Load):
        array_type = load.operands[0].type
        assert touches(load.results[0].layout, array_type) == touches(memory_layout((64, 64), array_type, Threads(32, 4)), array_type)


CONTROL = f"""
kernel @control num_waves=4 weak=[]
^(%a: {array("f32")}, %c: {array("f32")}) {{
  %zero = const type=i64 value=0 : i64
  %one = const type=i64 value=1 : i64
  %three = const type=i64 value=3 : i64
  %z = const type=f32 value=0 : f32
  %rows = arange type=32xi32 : 32xi32
  %rf = cast %rows to=f32 : 32xf32
  %rc = reshape %rf shape=(32,1) : 32x1xf32
  %rb = broadcast %rc shape=(32,32) : 32x32xf32
  %x = load %a [%zero %zero] %z shape=(32,32) : 32x32xf32
  %f = for %zero %three %one [%rb] stages=0 : 32x32xf32
  ^(%i: i64, %t: 32x32xf32) {{
    %tt = transpose %t order=(1,0) : 32x32xf32
    %n = add %tt %x : 32x32xf32
    %even = eq %i %one : bool
    %b = if %even : 32x32xf32
    ^() {{
      %m = mul %n %n : 32x32xf32
      yield [%m]
    }}
    ^() {{
      yield [%rb]
    }}
    yield [%b]
  }}
  %w, %steps = while [%f %zero] : 32x32xf32, i64
  ^(%wt: 32x32xf32, %wi: i64) {{
    %go = lt %wi %three : bool
    yield [%go %wt %wi]
  }}
  ^(%bt: 32x32xf32, %bi: i64) {{
    %more = add %bt %rb : 32x32xf32
    %next = add %bi %one : i64
    yield [%more %next]
  }}
  %flat = reshape %w shape=(1024,) : 1024xf32
  %back = reshape %flat shape=(16,64) : 16x64xf32
  store %c [%zero %zero] %back
  yield []
}}
"""


def test_loops_branches_views() -> None:
    x = np.random.default_rng(2).standard_normal((30, 32)).astype(np.float32)
    both(CONTROL, (1, 1, 1), [x], np.full((16, 64), np.nan, np.float32))


def test_reductions_of_rank_one_and_column_sums() -> None:
    text = f"""
    kernel @sums num_waves=4 weak=[]
    ^(%a: {array("f32")}, %c: {array("f32", 0, ndim=1)}) {{
      %zero = const type=i64 value=0 : i64
      %z = const type=f32 value=0 : f32
      %x = load %a [%zero %zero] %z shape=(64,32) : 64x32xf32
      %s = sum %x axis=0 : 32xf32
      %all = sum %s axis=0 : f32
      %b = splat %all shape=(32,) : 32xf32
      %d = div %s %b : 32xf32
      store %c [%zero] %d
      yield []
    }}
    """
    x = np.random.default_rng(3).standard_normal((60, 31)).astype(np.float32)
    kernel = both(text, (1, 1, 1), [x], np.full(31, np.nan, np.float32))
    assert layouts_of(kernel, Load) == ["64x32/j1.j2.i16.i32/j4.j8.j16.i1.i2/i4.i8"]
    assert conversions(kernel) == []


# ---- anchors -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "waves", "along", "want"),
    [
        ((128, 128), 4, None, (1, 0)),
        ((128, 128), 8, None, (1, 1, 0)),
        ((64, 128), 4, None, (1, 1)),
        ((128, 64), 4, None, (1, 0)),
        ((128, 32), 8, None, (1, 0, 0)),
        ((16, 16), 4, None, (None, None)),
        ((16, 32), 4, None, (1, None)),
        ((64, 64), 4, 0, (0, 0)),
        ((32, 64), 4, 0, (1, 0)),
        ((64, 64), 4, 1, (1, 1)),
        ((128, 128), 7, None, (1, 0)),
    ],
)
def test_waves_are_split(shape: tuple[int, int], waves: int, along: int | None, want: tuple[int | None, ...]) -> None:
    assert split_waves(ROWS[0], *shape, Threads(32, waves), along) == want


def test_a_layout_tells_its_waves() -> None:
    row = ROWS[0]
    assert waves_of(parse("128x128/i2.i4.i8.j16.j32.i16.i32/j1.j2.j4.j8.i1/j64.i64"), row) == (1, 0)
    assert waves_of(parse("128x128/i2.i4.i8.j16.j32.i16.j64/j1.j2.j4.j8.i1/i32.i64"), row) is None
    assert waves_of(parse("32x32/j1.j2.i16/j4.j8.j16.i1.i2/i4.i8"), row) is None


@pytest.mark.parametrize(
    ("shape", "dtype", "k_axis", "waves", "want"),
    [
        ((32, 128), "f16", 0, 4, "32x128/j1.j2.j4.i1.i2/j8.j16.j32.i4.j64/i8.i16"),
        ((32, 64), "f16", 0, 4, "32x64/j1.j2.i1.i2/j4.j8.j16.i4.j32/i8.i16"),
        ((128, 32), "f16", 1, 4, "128x32/j1.j2.j4.i32.i64/j8.j16.i1.i2.i4/i8.i16"),
        ((32, 128), "i8", 0, 4, "32x128/j1.j2.j4.i1.i2/j8.j16.j32.i4.i8/i16.j64"),
    ],
)
def test_staging_layouts(shape: tuple[int, int], dtype: str, k_axis: int, waves: int, want: str) -> None:
    kernel = load_kernel(f"kernel @k num_waves=1 weak=[]\n^(%a: {array(dtype)}) {{\n yield []\n}}")
    array_type = kernel.params[0].type
    assert str(staging_layout(shape, array_type, k_axis, array_type.dtype.bytes, Threads(32, waves))) == want


# ---- the checker -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "find", "replace"),
    [
        ("rule 1", " : 4xf32 #1", " : 4xf32 #0"),
        ("rule 3", "reshape %m shape=(4,1) : 4x1xf32 #2", "reshape %m shape=(4,1) : 4x1xf32 #3"),
        ("rule 4", "max %t axis=1 : 4xf32 #1", "max %t axis=1 : 4xf32 #4"),
        ("rule 2", "exp %d : 4x256xf32 #0", "exp %d : 4x256xf32 #5"),
    ],
)
def test_the_checker_finds(rule: str, find: str, replace: str) -> None:
    text = print_kernel(assigned(softmax(4, 256)))
    extra = "#3 = 4x1//i1.i2.-.-.-/-.-\n#4 = 4//i1.i2.-.-.-/-.-\n#5 = 4x256/j1.j2.j4/j8.j16.j32.j64.j128/i1.i2\n^("
    assert find in text
    text = text.replace(find, replace, 1).replace("\n^(", "\n" + extra, 1)
    with pytest.raises(IRError, match=rule):
        check_layouts(parse_kernel(text, layout=parse), ARCH)
