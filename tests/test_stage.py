"""Staging of dot operands through LDS and prefetching of loops: results stay, banks don't collide, loads stand where they should."""

from __future__ import annotations

import numpy as np
import pytest
from rocm_kernels import FLASH, load_kernel, matmul, run, scaled_masked_operands, small_integers

from tessera import dtypes
from tessera.ir.core import Block, Kernel, Op
from tessera.ir.ops.control import For
from tessera.ir.ops.memory import Load
from tessera.ir.text import parse_kernel, print_kernel
from tessera.ir.verify import verify
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.assign import assign
from tessera.targets.rocm.check import check_layouts
from tessera.targets.rocm.lds import conflicts
from tessera.targets.rocm.ops import Barrier, ConvertLayout, LdsAlloc, LdsLoad, LdsStore, ScheduleFence, Wmma
from tessera.targets.rocm.prefetch import prefetch
from tessera.targets.rocm.select import select
from tessera.targets.rocm.stage import stage

ARCH = arch("gfx1151")
CONFIGS = [(32, 32, 32), (64, 64, 32), (128, 64, 32), (128, 128, 32), (64, 64, 64)]


def staged(text: str, *, prefetched: bool = True) -> Kernel:
    kernel = load_kernel(text)
    for step in (select, assign, stage, *([prefetch] if prefetched else [])):
        step(kernel, ARCH)
        verify(kernel)
        if step is not select:
            check_layouts(kernel, ARCH)
    assert print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)
    return kernel


def ops(kernel: Kernel, *kinds: type[Op]) -> list[Op]:
    return [op for op in kernel.body.walk() if isinstance(op, kinds)]


def names(block: Block) -> list[str]:
    return [op.name.removeprefix("rocm.") for op in block.ops]


def loop_of(kernel: Kernel) -> For:
    (loop,) = [op for op in kernel.body.ops if isinstance(op, For)]
    return loop


def inputs(m: int, n: int, k: int, a: str = "f16", b: str | None = None) -> list[np.ndarray]:
    rng = np.random.default_rng(m + n * k)
    return [small_integers(rng, (m, k), a), small_integers(rng, (k, n), b or a), np.zeros(n, np.float32)]


def check(text: str, grid: tuple[int, int, int], arrays: list[np.ndarray], out: np.ndarray) -> Kernel:
    """Run before and after; for values whose sums are exact, the results are equal."""
    kernel = staged(text)
    before, after = (run(k, grid, arrays, out) for k in (load_kernel(text), kernel))
    np.testing.assert_array_equal(before, after)
    return kernel


@pytest.mark.parametrize("waves", range(1, 9))
@pytest.mark.parametrize("config", CONFIGS)
def test_default_configurations(config: tuple[int, int, int], waves: int) -> None:
    kernel = check(matmul(*config, waves=waves), (2, 2, 1), inputs(130, 70, 45), np.full((130, 70), np.nan, np.float32))
    assert not ops(kernel, ConvertLayout)
    for read in ops(kernel, LdsLoad):
        assert conflicts(read.operands[0].layout, _whole(read), ARCH.lds_banks) == 0
    for write in ops(kernel, LdsStore):
        assert conflicts(write.operands[0].layout, write.operands[1].layout, ARCH.lds_banks) == 0


def _whole(read: Op) -> object:
    """The layout of a step along K as one of the whole buffer's shape: constants move all lanes alike."""
    layout, shape = read.results[0].layout, read.operands[0].type.shape
    extra = [(axis, step) for axis in (0, 1) for step in (1 << b for b in range(12)) if layout.shape[axis] <= step < shape[axis]]
    return type(layout)(shape, (*layout.registers, *extra), layout.lanes, layout.waves)


@pytest.mark.parametrize(("dtype", "acc"), [("bf16", "f32"), ("i8", "i32"), ("u8", "i32")])
@pytest.mark.parametrize("axes", [(1, 1), (0, 1), (1, 0), (0, 0), (None, None)])
def test_dtypes_and_orders(dtype: str, acc: str, axes: tuple[int | None, int | None]) -> None:
    out = np.full((70, 90), 77, dtypes.parse(acc).numpy)
    kernel = check(
        matmul(64, 64, 32, dtype=dtype, acc=acc, a_axis=axes[0], b_axis=axes[1]), (2, 2, 1), inputs(70, 90, 50, dtype), out
    )  # fmt: skip
    for read in ops(kernel, LdsLoad):
        assert conflicts(read.operands[0].layout, _whole(read), ARCH.lds_banks) == 0


@pytest.mark.parametrize("config", [(16, 16, 16), (8, 16, 16), (1, 16, 32), (16, 4, 16), (32, 16, 8), (1, 1, 1)])
@pytest.mark.parametrize("waves", [1, 4])
def test_small_tiles(config: tuple[int, int, int], waves: int) -> None:
    grid = (-(-19 // config[0]), -(-17 // config[1]), 1)
    check(matmul(*config, waves=waves), grid, inputs(19, 17, 21), np.full((19, 17), np.nan, np.float32))


@pytest.mark.parametrize("config", [(96, 64, 48), (48, 32, 16), (32, 192, 32)])
def test_extents_that_are_not_powers_of_two(config: tuple[int, int, int]) -> None:
    check(matmul(*config), (2, 2, 1), inputs(100, 70, 60), np.full((100, 70), np.nan, np.float32))


def test_the_loop() -> None:
    kernel = staged(matmul(128, 128, 32))
    loop = loop_of(kernel)
    step = ["lds_load", "lds_load", "wmma"]
    assert names(loop.body) == [
        "add", "lds_store", "lds_store", "barrier", "load", "load", "schedule_fence", *step, *step, "yield",
    ]  # fmt: skip
    allocs = ops(kernel, LdsAlloc)
    assert [op.attrs["purpose"] for op in allocs] == ["dot_operand_b", "dot_operand_a"]
    reads = ops(kernel, LdsLoad)
    assert [(op.operands[0] is allocs[0].results[0], op.attrs["offset"]) for op in reads] == [
        (True, (0, 0)), (False, (0, 0)), (True, (16, 0)), (False, (0, 16)),
    ]  # fmt: skip
    before = kernel.body.ops[: kernel.body.ops.index(loop)]
    assert sum(isinstance(op, Load) for op in before) == 2


@pytest.mark.parametrize("k", [0, 1, 31, 32, 33, 64, 100])
def test_any_number_of_trips(k: int) -> None:
    check(matmul(32, 32, 32), (1, 1, 1), inputs(32, 32, k), np.full((32, 32), np.nan, np.float32))


def test_computed_operands_are_prefetched_raw() -> None:
    text = matmul(64, 32, 32, operand=scaled_masked_operands(64, 32, 32, "f16"), b_dtype="i8")
    kernel = check(text, (2, 2, 1), inputs(80, 60, 50, "f16", "i8"), np.full((80, 60), np.nan, np.float32))
    loop = loop_of(kernel)
    assert [str(p.type) for p in loop.body.params[2:]] == ["64x32xf16", "32x32xi8"]
    order = names(loop.body)
    assert order.index("cast") < order.index("lds_store") < order.index("barrier") < order.index("load") < order.index("wmma")


def test_attention_prefetches_keys_and_values() -> None:
    rng = np.random.default_rng(5)
    arrays = [small_integers(rng, (n, 64), "f16") for n in (70, 45, 45)]
    kernel = staged(FLASH)
    out = np.full((70, 64), np.nan, np.float16)
    before, after = (run(k, (2, 1, 1), arrays, out) for k in (load_kernel(FLASH), kernel))
    np.testing.assert_allclose(before.astype(np.float32), after.astype(np.float32), rtol=2**-10, atol=0)
    loop = loop_of(kernel)
    assert len(loop.body.params) == 6
    assert sum(isinstance(op, ScheduleFence) for op in loop.body.ops) == 2


IN_PLACE = matmul(32, 32, 32).replace("yield [%d]", "store %c [%m0 %n0] %d\n    yield [%d]")


def test_loads_that_a_store_may_change_are_not_moved() -> None:
    kernel = staged(IN_PLACE)
    assert names(loop_of(kernel).body).count("load") == 2  # other arrays, disjoint from c
    aliased = IN_PLACE.replace("%a: array<f16,2,align=16,axis=1,small,disjoint>", "%a: array<f16,2,align=16,axis=1,small>")
    body = loop_of(staged(aliased)).body
    assert names(body).index("load") < names(body).index("lds_store")
    assert len(body.params) == 3  # only b's tile is carried


def test_one_stage_turns_prefetching_off() -> None:
    kernel = staged(matmul(32, 32, 32).replace("stages=0", "stages=1"))
    assert len(loop_of(kernel).body.params) == 2
    assert not ops(kernel, ScheduleFence)


def test_what_does_not_fit_the_registers_is_not_prefetched() -> None:
    assert ops(staged(matmul(64, 64, 32, waves=2)), ScheduleFence)
    kernel = staged(matmul(64, 64, 32, waves=1))  # 128 registers of accumulators, 64 in flight, 48 of operands
    assert names(loop_of(kernel).body)[:5] == ["load", "lds_store", "load", "lds_store", "barrier"]
    assert ops(staged(matmul(64, 64, 32, waves=1, dtype="i8", acc="i32")), ScheduleFence)
    operand = scaled_masked_operands(128, 128, 32, "f16")  # its constants don't count
    assert ops(staged(matmul(128, 128, 32, operand=operand, b_dtype="i8")), ScheduleFence)


def test_an_address_that_is_loaded_is_not_prefetched() -> None:
    text = matmul(32, 32, 32).replace(
        "%x = load %a [%m0 %i]",
        """%it = load %bias [%i] %zf shape=(1,) : 1xf32
    %ii = reshape %it shape=() : f32
    %ij = cast %ii to=i64 : i64
    %x = load %a [%m0 %ij]""",
    )
    kernel = check(
        text, (1, 1, 1), [*inputs(32, 32, 64)[:2], np.arange(64, dtype=np.float32)[::-1].copy()], np.full((32, 32), np.nan, np.float32)
    )
    assert [str(p.type) for p in loop_of(kernel).body.params[2:]] == ["32x32xf16"]


def test_a_shared_operand_is_staged_once() -> None:
    text = matmul(32, 32, 32).replace(
        "%d = dot %x %y %t fallback='' instruction=''",
        "%d0 = dot %x %y %t fallback='' instruction='' : 32x32xf32\n %d = dot %x %y %d0 fallback='' instruction=''",
    )
    kernel = check(text, (1, 1, 1), inputs(32, 32, 40), np.full((32, 32), np.nan, np.float32))
    assert len(ops(kernel, LdsStore)) == 2
    assert len(ops(kernel, Barrier)) == 1
    assert len(ops(kernel, Wmma)) == 4
