"""Conversions and reductions across waves, LDS allocation and barriers: meaning kept, memory shared, no race, no barrier too many.

Races are looked for by running the kernel and comparing, between one barrier and the next, the bytes that each wave really touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from rocm_kernels import FLASH, load_kernel, matmul, run, softmax

from tessera import dtypes
from tessera.ir.core import Block, Kernel, Op, Value
from tessera.ir.interp import run_kernel
from tessera.ir.ops.arith import Const
from tessera.ir.ops.control import For, If, While, Yield
from tessera.ir.ops.shape import Max, Min, Reduce, Reshape, Sum
from tessera.ir.types import INDEX, TRUTH, Tile
from tessera.ir.verify import verify
from tessera.targets.rocm import layout as lo
from tessera.targets.rocm.allocate import LdsOverflowError, allocate, lds_bytes
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.barriers import barriers
from tessera.targets.rocm.check import check_layouts
from tessera.targets.rocm.expand import expand
from tessera.targets.rocm.layout import Layout, Movement, movement
from tessera.targets.rocm.lds import LdsLayout
from tessera.targets.rocm.ops import Barrier, ConvertLayout, LdsAlloc, LdsLoad, LdsStore
from tessera.targets.rocm.pipeline import ROCM_PASSES
from tessera.targets.rocm.select import select

ARCH = arch("gfx1151")


def ops(kernel: Kernel, *kinds: type[Op]) -> list[Op]:
    return [op for op in kernel.body.walk() if isinstance(op, kinds)]


# ---- an oracle for races -----------------------------------------------------------------------------------------------------


def touched(op: LdsLoad | LdsStore, num_waves: int) -> dict[int, frozenset[int]]:
    """The bytes that each wave touches; of waves that hold copies only the lowest stores."""
    tile: Value = op.source if isinstance(op, LdsStore) else op.result
    held: LdsLayout = op.buffer.layout
    layout: Layout = tile.layout
    alloc = op.buffer.owner
    assert isinstance(alloc, LdsAlloc)
    points = np.stack(np.unravel_index(layout.elements(), layout.shape), -1) + np.array(op.offset)
    at = np.asarray(held.address([points[..., axis] for axis in range(layout.rank)])) + alloc.offset
    found: dict[int, frozenset[int]] = {}
    for wave in range(num_waves):
        if isinstance(op, LdsStore) and (wave >= layout.num_waves or wave & layout.replicated_waves):
            continue
        first = np.unique(at[wave % layout.num_waves])
        found[wave] = frozenset(int(a) + b for a in first for b in range(held.element_bytes))
    return found


@contextmanager
def traced() -> Iterator[list[Op]]:
    """Records the LDS ops and barriers that an interpreter executes."""
    trace: list[Op] = []
    kinds: tuple[type[Op], ...] = (LdsLoad, LdsStore, Barrier)
    kept = {kind: kind.evaluate for kind in kinds}

    def recorder(kind: type[Op]) -> Callable[..., object]:
        def evaluate(self: Op, *args: object) -> object:
            trace.append(self)
            return kept[kind](self, *args)  # type: ignore[arg-type]

        return evaluate

    try:
        for kind in kinds:
            kind.evaluate = recorder(kind)  # type: ignore[assignment]
        yield trace
    finally:
        for kind in kinds:
            kind.evaluate = kept[kind]


def races(trace: list[Op], num_waves: int) -> list[str]:
    """Pairs of accesses by different waves to one byte without a barrier between them, one of them writing."""
    cache: dict[Op, dict[int, frozenset[int]]] = {}
    found: list[str] = []
    pending: list[LdsLoad | LdsStore] = []
    for op in trace:
        if isinstance(op, Barrier):
            pending = []
            continue
        assert isinstance(op, (LdsLoad, LdsStore))
        mine = cache.setdefault(op, touched(op, num_waves))
        for other in pending:
            if isinstance(op, LdsLoad) and isinstance(other, LdsLoad):
                continue
            theirs = cache[other]
            if any(v != w and theirs[v] & mine[w] for v in theirs for w in mine):
                found.append(f"{other.name} and {op.name}")
        if op not in pending:
            pending.append(op)
    return found


def lowered(text: str) -> Kernel:
    kernel = load_kernel(text)
    for step in ROCM_PASSES:
        step(kernel, ARCH)
        verify(kernel)
        if step is not select:
            check_layouts(kernel, ARCH)
    return kernel


def check_races(kernel: Kernel, grid: tuple[int, int, int], arrays: list[np.ndarray]) -> None:
    """No race; and without any one of the barriers there is one."""
    with traced() as trace:
        run_kernel(kernel, grid, arrays)
    assert any(isinstance(op, LdsStore) for op in trace)
    assert races(trace, kernel.num_waves) == []
    for barrier in ops(kernel, Barrier):
        assert races([op for op in trace if op is not barrier], kernel.num_waves), "a barrier that nothing needs"


def no_crossings(kernel: Kernel) -> None:
    for op in kernel.body.walk():
        if isinstance(op, ConvertLayout):
            assert movement(op.source.layout, op.result.layout) is not Movement.LDS
        if isinstance(op, Reduce):
            assert all(b is None or b[0] != op.axis for b in op.source.layout.waves)


# ---- whole kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waves", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(("rows", "columns"), [(1, 2048), (4, 256), (64, 16)])
def test_softmax(rows: int, columns: int, waves: int) -> None:
    text = softmax(rows, columns, waves)
    kernel = lowered(text)
    no_crossings(kernel)
    x = np.random.default_rng(0).standard_normal((2 * rows, columns)).astype(np.float32)
    before, after = (run(k, (2, 1, 1), [x], np.zeros_like(x)) for k in (load_kernel(text), kernel))
    np.testing.assert_allclose(after, before, rtol=2.0**-20)
    if ops(kernel, LdsStore) and waves > 1:
        check_races(kernel, (1, 1, 1), [x, np.zeros_like(x)])
    if waves == 1:
        assert not ops(kernel, Barrier)
    if rows == 1 and waves > 1:
        assert len(ops(kernel, LdsStore)) == 2  # the maximum, the sum
        assert len(ops(kernel, Barrier)) == 3  # behind each store, and before the second where it takes the first's memory


@pytest.mark.parametrize("waves", [1, 2, 4, 8])
@pytest.mark.parametrize("tile", [(32, 32, 32), (64, 64, 32), (128, 128, 32)])
def test_matmul_loops_need_two_barriers(tile: tuple[int, int, int], waves: int) -> None:
    kernel = lowered(matmul(*tile, waves=waves))
    no_crossings(kernel)
    m, n, k = tile
    a, b, bias = np.ones((m, 2 * k), np.float16), np.ones((2 * k, n), np.float16), np.zeros(n, np.float32)
    loops = [op for op in kernel.body.ops if isinstance(op, For)]
    count = sum(isinstance(op, Barrier) for loop in loops for op in loop.body.ops)
    assert count == (2 if waves > 1 and ops(kernel, LdsStore) else 0) or waves == 1
    if waves > 1:
        check_races(kernel, (1, 1, 1), [a, b, bias, np.zeros((m, n), np.float32)])


def test_attention() -> None:
    kernel = lowered(FLASH)
    no_crossings(kernel)
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float16) for n in (64, 96, 96))
    before, after = (run(x, (1, 1, 1), [q, k, v], np.zeros((64, 64), np.float16)) for x in (load_kernel(FLASH), kernel))
    np.testing.assert_allclose(after.astype(np.float64), before.astype(np.float64), rtol=2.0**-9, atol=2.0**-9)
    with traced() as trace:
        run_kernel(kernel, (1, 1, 1), [q, k, v, np.zeros((64, 64), np.float16)])
    assert races(trace, kernel.num_waves) == []


# ---- single reductions and conversions ---------------------------------------------------------------------------------------


class Draft:
    """A kernel made op by op, with layouts, that reads one array and stores nothing: results are looked at in the interpreter."""

    def __init__(self, num_waves: int) -> None:
        self.kernel = Kernel("draft", Block([], [Yield(())]), num_waves=num_waves)
        self.results: list[np.ndarray] = []

    def add(self, op: Op, layout: object = None) -> Value:
        self.kernel.body.ops.insert(-1, op)
        if op.results:
            op.results[0].layout = layout
        return op.results[0] if op.results else Value(INDEX)

    def source(self, tile: Tile, layout: Layout) -> Value:
        value = Value(tile, layout=layout)
        self.kernel.body.params.append(value)
        return value


def evaluate(kernel: Kernel, result: Callable[[], Value], tile: np.ndarray) -> np.ndarray:
    env: dict[Value, np.ndarray] = {kernel.params[0]: tile}
    for op in kernel.body.ops[:-1]:
        env.update(zip(op.results, op.evaluate([env[v] for v in op.operands], None), strict=True))  # type: ignore[arg-type]
    return env[result()]


@pytest.mark.parametrize("op_class", [Sum, Max, Min])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.int8, dtypes.bfloat16])
@pytest.mark.parametrize(
    ("layout", "axis"),
    [
        ("64x32/j1.j2.j4.i8/j8.j16.i1.i2.i4/i16.i32", 0),  # waves at the top of the axis
        ("64x32/j1.j2.j4.i8/j8.j16.i4.i16.i32/i1.i2", 0),  # at the bottom
        ("64x32/j1.j2.j4.i8/j8.j16.i2.i16.i32/i1.i4", 0),  # in two places
        ("64x32/j1.j2.j4.i8/j8.j16.i2.i16.i32/i1.i4", 1),  # along the other axis: stays
        ("64x32/j1.j2.j4.i8/j8.i1.i2.i16.i32/i4.j16", 1),  # one of two wave bits
        ("64x32/j1.j2.j4.i8.i32/j8.j16.i1.i2.i4/i16.-", 0),
        ("48x8/j1.i8/j2.j4.i4.-.-/i2.i1", 0),  # an extent that isn't a power of two, outermost
        ("8x48/j1/j2.i1.i2.i4.-/j8.j4", 1),  # not outermost
        ("2048/i1.i2.i4.i256/i8.i16.i32.i64.i128/i512.i1024", 0),  # to a scalar
    ],
)
def test_reductions_across_waves(layout: str, axis: int, dtype: dtypes.DType, op_class: type[Reduce]) -> None:
    source = lo.parse(layout)
    draft = Draft(4)
    value = draft.source(Tile(source.shape, dtype), source)
    op = op_class(value, axis=axis)
    draft.add(op, lo.slice_axis(source, axis) if op.result.tile.shape else None)
    draft.add(Reshape(op.result, shape=op.result.tile.shape), op.result.layout)  # a use that must be redirected
    crosses = any(b is not None and b[0] == axis for b in source.waves)
    expand(draft.kernel, ARCH)
    verify(draft.kernel)
    check_layouts(draft.kernel, ARCH)
    no_crossings(draft.kernel)
    assert bool(ops(draft.kernel, LdsStore)) == crosses
    tile = np.random.default_rng(5).integers(-20, 20, source.shape).astype(dtype.numpy)
    got = evaluate(draft.kernel, lambda: draft.kernel.body.ops[-2].results[0], tile)
    want = op.evaluate([tile], None)[0]  # type: ignore[arg-type]
    assert got.dtype == want.dtype
    assert (got == want).all()


def test_partial_sums_of_halves_stay_wide() -> None:
    source = lo.parse("256/i1/i2.i4.i8.i16.i32/i64.i128")
    draft = Draft(4)
    value = draft.source(Tile((256,), dtypes.float16), source)
    draft.add(Sum(value, axis=0))
    expand(draft.kernel, ARCH)
    assert {op.dtype.name for op in ops(draft.kernel, LdsAlloc)} == {"float32"}  # type: ignore[attr-defined]
    tile = np.full(256, 1.0, np.float16)
    tile[0] = 2048.0
    assert evaluate(draft.kernel, lambda: draft.kernel.body.ops[-2].results[0], tile) == np.float16(2303)


def converted(source: str, target: str, dtype: dtypes.DType, waves: int) -> Kernel:
    layout = lo.parse(source)
    draft = Draft(waves)
    value = draft.source(Tile(layout.shape, dtype), layout)
    draft.add(ConvertLayout(value), lo.parse(target))
    expand(draft.kernel, ARCH)
    verify(draft.kernel)
    check_layouts(draft.kernel, ARCH)
    return draft.kernel


def test_conversions_take_the_cheaper_way() -> None:
    # One word across the rows of 16 lanes: shuffles. Sixty-four of them by bpermute: LDS. Across waves: LDS always.
    few = converted("16x2/j1/i1.i2.i4.i8.-/", "16x2//i1.i2.i4.i8.j1/", dtypes.float32, 1)
    assert ops(few, ConvertLayout)
    registers = ".".join(f"j{1 << b}" for b in range(8))
    many = converted(f"32x256/{registers}/i1.i2.i4.i8.i16/", f"32x256/{registers}/i2.i16.i8.i4.i1/", dtypes.float32, 1)
    assert not ops(many, ConvertLayout)
    assert len(ops(many, LdsStore, LdsLoad)) == 2
    waves = converted("16x4/j1/i1.i2.i4.i8.-/j2", "16x4/j1/j2.i2.i4.i8.-/i1", dtypes.float32, 2)
    assert not ops(waves, ConvertLayout)
    same = converted("16x4/j1.j2/i1.i2.i4.i8.-/", "16x4/j2.j1/i1.i2.i4.i8.-/", dtypes.float32, 1)
    assert ops(same, ConvertLayout)


# ---- allocation --------------------------------------------------------------------------------------------------------------


def buffer(draft: Draft | None, rows: int, purpose: str = "", into: list[Op] | None = None) -> LdsAlloc:
    alloc = LdsAlloc(shape=(rows, 32), dtype=dtypes.float32, purpose=purpose, offset=-1)
    alloc.result.layout = LdsLayout((rows, 32), (1, 0), 4)
    if into is not None:
        into.append(alloc)
    elif draft is not None:
        draft.add(alloc, alloc.result.layout)
    return alloc


def access(alloc: LdsAlloc, layout: Layout | None = None, waves: int = 4) -> tuple[LdsStore, LdsLoad]:
    """A store and a load of the whole buffer. The value stored is a constant."""
    shape = alloc.shape
    layout = layout or lo.blocked(shape, num_waves=waves)
    value = Const(type=Tile(shape, dtypes.float32), value=0.0)
    value.result.layout = layout
    load = LdsLoad(alloc.result, offset=(0, 0), shape=shape)
    load.result.layout = lo.blocked(shape, order=(0, 1), num_waves=waves)
    store = LdsStore(alloc.result, value.result, offset=(0, 0))
    return store, load


def const_of(store: LdsStore) -> Op:
    owner = store.source.owner
    assert isinstance(owner, Op)
    return owner


def place(draft: Draft, *accesses: Op) -> None:
    for op in accesses:
        if isinstance(op, LdsStore):
            draft.kernel.body.ops.insert(-1, const_of(op))
        draft.kernel.body.ops.insert(-1, op)


def test_buffers_share_memory_over_time() -> None:
    draft = Draft(4)
    x, y, z = (buffer(draft, rows) for rows in (8, 64, 16))
    (sx, lx), (sy, ly), (sz, lz) = (access(b) for b in (x, y, z))
    place(draft, sx, lx, sy, sz, ly, lz)  # y and z are in use together, x before them
    allocate(draft.kernel, ARCH)
    assert (y.offset, x.offset, z.offset) == (0, 0, 64 * 128)
    assert lds_bytes(draft.kernel) == 80 * 128


def loop(body: list[Op], params: int = 0) -> For:
    bounds = [Const(type=INDEX, value=v) for v in (0, 3, 1)]
    made = For(*(b.result for b in bounds), (), body=Block([Value(INDEX)], [*body, Yield(())]))
    return made


def add_loop(draft: Draft, made: For) -> None:
    for bound in (made.start, made.stop, made.step):
        owner = bound.owner
        assert isinstance(owner, Op)
        draft.kernel.body.ops.insert(-1, owner)
    draft.kernel.body.ops.insert(-1, made)


def test_buffers_from_outside_a_loop_live_through_it() -> None:
    draft = Draft(4)
    x, y = buffer(draft, 8), buffer(draft, 8)
    (sx, lx), (sy, ly) = access(x), access(y)
    add_loop(draft, loop([const_of(sx), sx, lx, const_of(sy), sy, ly]))
    allocate(draft.kernel, ARCH)
    assert sorted((x.offset, y.offset)) == [0, 1024]
    # Inside, each iteration has its own.
    draft = Draft(4)
    body: list[Op] = []
    x, y = buffer(None, 8, into=body), buffer(None, 8, into=body)
    (sx, lx), (sy, ly) = access(x), access(y)
    add_loop(draft, loop([*body, const_of(sx), sx, lx, const_of(sy), sy, ly]))
    allocate(draft.kernel, ARCH)
    assert (x.offset, y.offset) == (0, 0)


def test_too_much_lds_names_each_buffer() -> None:
    draft = Draft(4)
    x, y, z = buffer(draft, 400, "dot operand a"), buffer(draft, 200, "layout conversion"), buffer(draft, 300, "earlier")
    (sx, lx), (sy, ly), (sz, lz) = (access(b) for b in (x, y, z))
    place(draft, sz, lz, sx, sy, lx, ly)
    with pytest.raises(LdsOverflowError) as e:
        allocate(draft.kernel, ARCH)
    text = str(e.value)
    assert "needs 76,800 bytes of LDS; a workgroup on gfx1151 has at most 65,536" in text
    assert "51,200 bytes: 400x32 float32 (dot operand a)" in text
    assert "25,600 bytes: 200x32 float32 (layout conversion)" in text
    assert (e.value.need, e.value.limit) == (76800, 65536)
    assert [b.bytes for b in e.value.buffers][:2] == [51200, 25600]


# ---- barriers ----------------------------------------------------------------------------------------------------------------


def names(block: Block) -> str:
    """The LDS ops of a block: s, l, | for a barrier, ( ) around nested blocks."""
    words: list[str] = []
    for op in block.ops:
        words += {LdsStore: ["s"], LdsLoad: ["l"], Barrier: ["|"]}.get(type(op), [])
        words += [f"({names(nested)})" for nested in op.blocks]
    return "".join(words)


def placed(draft: Draft) -> str:
    allocate(draft.kernel, ARCH)
    barriers(draft.kernel, ARCH)
    return names(draft.kernel.body)


def test_a_barrier_stands_between_a_store_and_a_load() -> None:
    draft = Draft(4)
    x = buffer(draft, 8)
    s, l1 = access(x)
    place(draft, s, l1, access(x)[1])
    assert placed(draft) == "s|ll"


def test_one_wave_needs_none() -> None:
    draft = Draft(1)
    s, load = access(buffer(draft, 8), waves=1)
    place(draft, s, load)
    assert placed(draft) == "sl"


def test_waves_that_read_what_they_wrote_need_none() -> None:
    layout = lo.parse("8x32/j1.j2.i1/j4.j8.j16.i2.-/i4.-".replace("i4.-", "i4"))
    draft = Draft(2)
    x = buffer(draft, 8)
    s, load = access(x, layout, waves=2)
    load.result.layout = lo.parse("8x32/j1.j4.i2/j2.j8.j16.i1.-/i4")  # another layout, but the same waves
    place(draft, s, load)
    assert placed(draft) == "sl"
    draft = Draft(3)  # a surplus wave reads what another wrote
    x = buffer(draft, 8)
    s, load = access(x, layout, waves=2)
    load.result.layout = layout
    place(draft, s, load)
    assert placed(draft) == "s|l"


def test_memory_that_is_taken_over_is_guarded() -> None:
    draft = Draft(4)
    x, y = buffer(draft, 8), buffer(draft, 8)
    (sx, lx), (sy, ly) = access(x), access(y)
    place(draft, sx, lx, sy, ly)
    assert placed(draft) == "s|l|s|l"
    draft = Draft(4)
    x, y = buffer(draft, 8), buffer(draft, 8)
    (sx, lx), (sy, ly) = access(x), access(y)
    place(draft, sx, sy, lx, ly)
    assert placed(draft) == "ss|ll"


def test_loops_guard_the_next_iteration() -> None:
    draft = Draft(4)
    x = buffer(draft, 8)
    s, load = access(x)
    add_loop(draft, loop([const_of(s), s, load]))
    assert placed(draft) == "(|s|l)"


def test_what_only_came_before_a_loop_is_guarded_in_front_of_it() -> None:
    draft = Draft(4)
    x = buffer(draft, 8)
    s, load = access(x)
    place(draft, s)
    add_loop(draft, loop([load]))
    assert placed(draft) == "s|(l)"
    draft = Draft(4)
    x = buffer(draft, 8)
    s, load = access(x)
    place(draft, s)
    inner = loop([load])
    outer: list[Op] = []
    for bound in (inner.start, inner.stop, inner.step):
        assert isinstance(bound.owner, Op)
        outer.append(bound.owner)
    add_loop(draft, loop([*outer, inner]))
    assert placed(draft) == "s|((l))"


def test_branches_and_while() -> None:
    draft = Draft(4)
    x = buffer(draft, 8)
    s, load = access(x)
    again, after = access(x)
    condition = Const(type=TRUTH, value=True)
    draft.add(condition)
    place(draft, s)
    draft.add(If(condition.result, then=Block([], [load, Yield(())]), orelse=Block([], [Yield(())])))
    place(draft, after)
    assert placed(draft) == "s(|l)()|l"
    draft = Draft(4)
    x = buffer(draft, 8)
    s, load = access(x)
    condition = Const(type=TRUTH, value=False)
    place(draft, s)
    draft.add(While((), cond=Block([], [condition, load, Yield((condition.result,))]), body=Block([], [const_of(again), again, Yield(())])))
    place(draft, after)
    again.buffer = x.result
    assert placed(draft) == "s(|l)(|s)l"
