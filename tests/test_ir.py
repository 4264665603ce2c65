"""Tile IR: text round trips, verifier rules, the meaning of ops, and passes that keep it."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import dtypes
from tessera.errors import CompilerBug
from tessera.ir import numerics, passes
from tessera.ir.core import OPS, Block, IRError, Kernel, Op, Trait, Value
from tessera.ir.interp import run_kernel
from tessera.ir.ops import arith, control, memory, shape
from tessera.ir.passes.cse import cse
from tessera.ir.passes.dce import dce
from tessera.ir.passes.fold import fold
from tessera.ir.passes.licm import licm
from tessera.ir.passes.narrow import narrow
from tessera.ir.text import parse_kernel, print_kernel
from tessera.ir.types import INDEX, ArrayType, LdsType, Tile, type_from_text
from tessera.ir.verify import verify

MATMUL = """\
kernel @mm num_waves=4 weak=[n]
^(%a: array<f16,2,align=16,axis=1,small,disjoint>, %b: array<f16,2,align=2,small>, %c: array<f32,2,align=16,axis=1>, %n: i64) {
  %0 = const type=16x16xf32 value=0.0 : 16x16xf32
  %1 = const type=i64 value=0 : i64
  %2 = const type=i64 value=1 : i64
  %other = const type=f16 value=0.0 : f16
  %3 = const type=i64 value=16 : i64
  %4 = const type=i64 value=15 : i64
  %5 = extent %a axis=1 : i64
  %6 = add %5 %4 : i64
  %7 = floordiv %6 %3 : i64
  %8 = program_id axis=0 : i64
  %9 = mul %8 %3 : i64
  %acc = for %1 %7 %2 [%0] stages=0 : 16x16xf32
  ^(%i: i64, %x: 16x16xf32) {
    %10 = mul %i %3 : i64
    %11 = load %a [%9 %10] %other shape=(16,16) : 16x16xf16
    %12 = load %b [%10 %1] %other shape=(16,16) : 16x16xf16
    %13 = dot %11 %12 %x fallback='' instruction='' : 16x16xf32
    yield [%13]
  }
  store %c [%9 %1] %acc
  yield []
}
"""


def matmul_arrays() -> list[object]:
    rng = np.random.default_rng(3)
    a = rng.standard_normal((29, 37)).astype(np.float16)
    b = rng.standard_normal((37, 9)).astype(np.float16)
    return [a, b, np.full((29, 9), np.nan, np.float32), 5]


def test_text_round_trip_and_meaning():
    kernel = parse_kernel(MATMUL)
    verify(kernel)
    assert print_kernel(kernel) == MATMUL
    args = matmul_arrays()
    run_kernel(kernel, (2, 1, 1), args)
    a, b, c = (np.asarray(x, np.float64) for x in args[:3])
    np.testing.assert_allclose(c, a @ b, rtol=0, atol=40 * 2.0**-24 * (abs(a) @ abs(b)).max())


@pytest.mark.parametrize("step", [*passes.TILE_PASSES, passes.run], ids=lambda p: p.__name__)
def test_passes_keep_a_matmul(step, monkeypatch):
    monkeypatch.setenv("TESSERA_DEBUG", "1")
    want, got = matmul_arrays(), matmul_arrays()
    kernel = parse_kernel(MATMUL)
    run_kernel(kernel, (2, 1, 1), want)
    step(kernel)
    verify(kernel)
    assert print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)
    run_kernel(kernel, (2, 1, 1), got)
    np.testing.assert_array_equal(want[2], got[2])


def test_layouts_are_printed_as_aliases_and_read_back():
    kernel = parse_kernel(MATMUL)
    tiles = [r for op in kernel.body.walk() for r in op.results if r.type == Tile((16, 16), dtypes.float16)]
    tiles[0].layout, tiles[1].layout = "16x16/i1/j1/-", "other"
    text = print_kernel(kernel)
    assert "#0 = 16x16/i1/j1/-\n#1 = other\n" in text
    assert ": 16x16xf16 #0" in text
    assert print_kernel(parse_kernel(text)) == text


@pytest.mark.parametrize(
    "type_",
    [
        Tile((), dtypes.bool_),
        Tile((3, 1, 64), dtypes.bfloat16),
        ArrayType(dtypes.float16, 2, 16, 1, True, False),
        ArrayType(dtypes.uint64, 0, 8, None, False, True),
        LdsType((32, 8), dtypes.int8),
    ],
)
def test_type_text(type_):
    assert type_from_text(str(type_)) == type_


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("add %5 %4 : i64", "add %5 %other : i64", "operand types differ: i64 and f16"),
        ("extent %a axis=1", "extent %a axis=2", "axis 2"),
        ("extent %a axis=1", "extent %n axis=1", "takes an array, not i64"),
        ("program_id axis=0", "program_id axis=3", "axes 0, 1 and 2"),
        ("dot %11 %12 %x fallback", "dot %11 %12 %11 fallback", "differ from the inferred"),
        ("load %a [%9 %10]", "load %a [%9]", "gets 1 offsets"),
        ("load %a [%9 %10] %other", "load %a [%9 %10] %1", "`other` is i64"),
        ("store %c [%9 %1] %acc", "store %b [%9 %1] %acc", "a tile of f32 into an array of f16"),
        ("yield [%13]\n", "yield []\n", "the body yields"),
        ("for %1 %7 %2 [%0]", "for %1 %7 %other [%0]", "integer scalars of one dtype"),
        ("%i: i64, %x", "%i: i32, %x", "operand types differ"),
        ("= floordiv", "= floorfiv", "unknown op 'floorfiv'"),
        ("floordiv %6 %3", "floordiv %6 %99", "unknown value %99"),
        ("floordiv %6 %3 : i64", "floordiv %6 %3 : i32", "differ from the inferred"),
        ("const type=i64 value=16", "const type=i65 value=16", "malformed const"),
        ("kernel @mm", "karnel @mm", "expected 'kernel"),
    ],
)
def test_parser_and_type_rules_refuse(old, new, message):
    assert old in MATMUL
    with pytest.raises(IRError, match=message):
        verify(parse_kernel(MATMUL.replace(old, new)))


def simple() -> tuple[Kernel, arith.Const, arith.Add]:
    one = arith.Const(type=INDEX, value=1)
    two = arith.Add(one.result, one.result)
    return Kernel("k", Block([], [one, two, control.Yield(())])), one, two


def broken_kernels():
    kernel, _, _ = simple()
    kernel.body.ops.pop()
    yield "rule 1", kernel
    kernel, _, _ = simple()
    kernel.body.ops = []
    yield "rule 1", kernel
    kernel, _, _ = simple()
    kernel.body.ops.insert(0, control.Yield(()))
    yield "rule 1", kernel
    kernel, one, two = simple()
    kernel.body.ops[:2] = [two, one]
    yield "rule 2", kernel
    kernel, one, _ = simple()
    one.type = Tile((), dtypes.int32)
    yield "rule 3", kernel
    kernel, one, _ = simple()
    kernel.body.ops.insert(1, one)
    yield "rule 4", kernel
    kernel, one, _ = simple()
    kernel.body.ops[-1] = control.Yield((one.result,))
    yield "rule 5", kernel
    tile = arith.Const(type=Tile((4,), dtypes.int32), value=1)
    other = arith.Const(type=Tile((4,), dtypes.int32), value=2)
    total = arith.Add(tile.result, other.result)
    tile.result.layout, other.result.layout, total.result.layout = "x", "y", "x"
    yield "rule 6", Kernel("k", Block([], [tile, other, total, control.Yield(())]))
    empty = arith.Const(type=Tile((0,), dtypes.int32), value=1)
    yield "rule 6", Kernel("k", Block([], [empty, control.Yield(())]))


@pytest.mark.parametrize(("rule", "kernel"), list(broken_kernels()))
def test_verifier_rules(rule, kernel):
    with pytest.raises(IRError, match=rule):
        verify(kernel)


def test_a_pass_that_breaks_the_ir_is_named(monkeypatch):
    def vandal(kernel: Kernel) -> None:
        kernel.body.ops.pop()

    monkeypatch.setenv("TESSERA_DEBUG", "1")
    monkeypatch.setattr(passes, "TILE_PASSES", (fold, vandal))
    with pytest.raises(CompilerBug, match=r"pass vandal broke the IR: rule 1(.|\n)*before it:\nkernel @k"):
        passes.run(simple()[0])


def test_an_op_name_is_taken_once():
    with pytest.raises(TypeError, match="'add' is defined twice"):

        class Again(Op, name="add"):
            pass

    assert OPS["add"] is arith.Add


# ---- numerics ----------------------------------------------------------------------------------------------------------------

EDGES = [
    0.0,
    -0.0,
    1.5,
    -1.5,
    2.5,
    127.4,
    127.5,
    128.0,
    -128.9,
    -129.0,
    255.9,
    256.0,
    -0.9,
    -1.0,
    2.0**31,
    -(2.0**31),
    2.0**63,
    1e300,
    np.inf,
    -np.inf,
    np.nan,
]


@pytest.mark.parametrize("to", [d for d in dtypes.ALL if d.is_integer], ids=str)
@pytest.mark.parametrize("source", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64], ids=str)
def test_float_to_integer_saturates(source, to):
    with np.errstate(all="ignore"):
        x = np.array(EDGES).astype(source.numpy)
    got = numerics.cast_array(x, source, to)
    info = np.iinfo(to.numpy)
    for value, result in zip(x.astype(np.float64), got, strict=True):
        want = (
            0
            if np.isnan(value)
            else info.max
            if value == np.inf
            else info.min
            if value == -np.inf
            else min(max(int(value), info.min), info.max)
        )
        assert int(result) == want


def test_narrowing_to_bfloat16():
    words = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F7F7FFF, 0x7F800001, 0xFF800000, 0x00000001], np.uint32)
    got = numerics.cast_array(words.view(np.float32), dtypes.float32, dtypes.bfloat16).view(np.uint16)
    assert [hex(w) for w in got[[0, 1, 2, 3, 4, 6, 7]]] == ["0x3f80", "0x3f82", "0x3f81", "0x7f80", "0x7f7f", "0xff80", "0x0"]
    assert np.isnan(got[5:6].view(ml_dtypes.bfloat16)[0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64], ids=lambda d: np.dtype(d).name)
def test_division_and_shifts_follow_numpy(dtype):
    info = np.iinfo(dtype)
    values = np.array(
        sorted({info.min, info.min + 1, info.max, 0, 1, 2, 3, 7, info.max // 2} | ({-1, -2, -7} if info.min else set())), dtype
    )
    x, y = (np.array(v, dtype) for v in zip(*itertools.product(values, values), strict=True))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(numerics.floor_divide(x, y), np.floor_divide(x, y))
        np.testing.assert_array_equal(numerics.remainder(x, y), np.remainder(x, y))
    assert (numerics.floor_divide(x, y)[y == 0] == 0).all()
    assert (numerics.remainder(x, y)[y == 0] == 0).all()
    bits = np.dtype(dtype).itemsize * 8
    for a, count in zip(x.tolist(), y.tolist(), strict=True):
        left, right = (int(f(np.array(a, dtype), np.array(count, dtype))) for f in (numerics.shift_left, numerics.shift_right))
        outside = not 0 <= count < bits
        assert left == (0 if outside else int(np.array(a << count & (2**bits - 1), np.uint64).astype(dtype)))
        assert right == ((-1 if a < 0 else 0) if outside else a >> count)


def test_maximum_orders_zeros_and_keeps_nan():
    x, y = np.array([0.0, -0.0, np.nan, 1.0, -np.inf], np.float32), np.array([-0.0, 0.0, 1.0, np.nan, 2.0], np.float32)
    high, low = numerics.maximum(x, y), numerics.minimum(x, y)
    assert [str(v) for v in high] == ["0.0", "0.0", "nan", "nan", "2.0"]
    assert [str(v) for v in low] == ["-0.0", "-0.0", "nan", "nan", "-inf"]


def test_tiles_at_the_edges():
    x = np.arange(12.0).reshape(3, 4)
    got = numerics.load_tile(x, (-1, 2), (2, 4), np.array(-7.0))
    assert got.tolist() == [[-7, -7, -7, -7], [2, 3, -7, -7]]
    assert (numerics.load_tile(x, (0, 9), (2, 4), np.array(-7.0)) == -7).all()
    numerics.store_tile(x, (2, -2), np.full((4, 4), 50.0))
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [50, 50, 10, 11]]


def test_integer_matmul_is_exact_modulo_2_to_the_32():
    a = np.full((2, 70000), -128, np.int8)
    b = np.full((70000, 1), -128, np.int8)
    acc = np.array([[2**31 - 1], [5]], np.int32)
    got = numerics.matmul(a, b, acc, Tile((2, 1), dtypes.int32))
    assert got.ravel().tolist() == [(70000 * 16384 + 2**31 - 1 + 2**31) % 2**32 - 2**31, 70000 * 16384 + 5]


# ---- passes ------------------------------------------------------------------------------------------------------------------


def kernel_of(body: str, params: str = "%a: array<i64,1,align=8,axis=0,small,disjoint>, %n: i64") -> Kernel:
    return parse_kernel(f"kernel @k num_waves=1 weak=[n]\n^({params}) {{\n{body}\n  yield []\n}}\n")


def names(kernel: Kernel) -> list[str]:
    return [op.name for op in kernel.body.walk()]


def test_fold_decides_an_if_and_splats_scalars():
    kernel = kernel_of("""
      %c = const type=bool value=True : bool
      %r = if %c : i64
      ^() {
        %x = add %n %n : i64
        yield [%x]
      }
      ^() {
        yield [%n]
      }
      %s = splat %r shape=(4,) : 4xi64
      %t = const type=4xi64 value=3 : 4xi64
      %u = mul %s %t : 4xi64
      %z = const type=i64 value=0 : i64
      store %a [%z] %u
    """)
    fold(kernel)
    dce(kernel)
    verify(kernel)
    assert names(kernel) == ["add", "const", "mul", "splat", "const", "store", "yield"]


@pytest.mark.parametrize(("op", "folds"), [("add", False), ("mul", False), ("sub", False)])
def test_floats_have_no_neutral_elements(op, folds):
    """-0.0 + 0.0 is 0.0, and signalling NaNs must not pass: only integers drop neutral operands."""
    kernel = kernel_of(
        f"%z = const type=f32 value={'1.0' if op == 'mul' else '0.0'} : f32\n%x = {op} %v %z : f32\n%i = const type=i64 value=0 : i64\n"
        "%t = splat %x shape=(4,) : 4xf32\nstore %a [%i] %t",
        "%a: array<f32,1,align=4,axis=0,small,disjoint>, %v: f32",
    )
    fold(kernel)
    assert (op in names(kernel)) is not folds


def test_cse_tells_zeros_and_types_apart():
    kernel = kernel_of("""
      %p = const type=f64 value=0.0 : f64
      %q = const type=f64 value=-0.0 : f64
      %r = const type=f64 value=0.0 : f64
      %s = const type=f32 value=0.0 : f32
      %x = add %n %n : i64
      %y = add %n %n : i64
      %d = sub %x %y : i64
    """)
    cse(kernel)
    assert names(kernel) == ["const", "const", "const", "add", "sub", "yield"]


def test_cse_does_not_look_into_a_branch_from_outside():
    kernel = kernel_of("""
      %z = const type=i64 value=0 : i64
      %c = lt %n %z : bool
      %r = if %c : i64
      ^() {
        %x = add %n %n : i64
        yield [%x]
      }
      ^() {
        %y = add %n %n : i64
        yield [%y]
      }
      %w = add %n %n : i64
    """)
    cse(kernel)
    verify(kernel)
    assert names(kernel).count("add") == 3


def test_licm_moves_loads_only_out_of_loops_without_stores():
    loop = """
      %z = const type=i64 value=0 : i64
      %o = const type=i64 value=1 : i64
      for %z %n %o [] stages=0
      ^(%i: i64) {{
        %v = load %a [%z] %z shape=(4,) : 4xi64
        {0}
        yield []
      }}
    """
    quiet, busy = kernel_of(loop.format("")), kernel_of(loop.format("store %a [%i] %v"))
    for kernel, moved in ((quiet, True), (busy, False)):
        licm(kernel)
        verify(kernel)
        assert (kernel.body.ops[2].name == "load") is moved


def test_dce_drops_a_carried_value_that_only_feeds_itself():
    kernel = kernel_of("""
      %z = const type=i64 value=0 : i64
      %o = const type=i64 value=1 : i64
      %r, %dead = for %z %n %o [%z %o] stages=0 : i64, i64
      ^(%i: i64, %x: i64, %y: i64) {
        %x2 = add %x %i : i64
        %y2 = mul %y %y : i64
        yield [%x2 %y2]
      }
      %s = splat %r shape=(4,) : 4xi64
      store %a [%z] %s
    """)
    dce(kernel)
    verify(kernel)
    assert "mul" not in names(kernel)
    a = np.zeros(4, np.int64)
    run_kernel(kernel, (1, 1, 1), [a, 5])
    assert a.tolist() == [10] * 4


def test_narrow_counts_in_32_bits_only_where_proven():
    loop = """
      %z = const type=i64 value=0 : i64
      %o = const type=i64 value=1 : i64
      %e = extent %a axis=0 : i64
      for %z {} %o [] stages=0
      ^(%i: i64) {{
        %s = splat %i shape=(1,) : 1xi64
        store %a [%i] %s
        yield []
      }}
    """
    proven, unknown = kernel_of(loop.format("%e")), kernel_of(loop.format("%n"))
    for kernel, width in ((proven, 32), (unknown, 64)):
        narrow(kernel)
        verify(kernel)
        counter = next(op for op in kernel.body.walk() if isinstance(op, control.For)).body.params[0]
        assert counter.tile.dtype.bits == width
        a = np.zeros(6, np.int64)
        run_kernel(kernel, (1, 1, 1), [a, 6])
        assert a.tolist() == [0, 1, 2, 3, 4, 5]


BINARY = [
    arith.Add,
    arith.Sub,
    arith.Mul,
    arith.FloorDiv,
    arith.Mod,
    arith.Minimum,
    arith.Maximum,
    arith.And,
    arith.Or,
    arith.Xor,
    arith.Shl,
    arith.Shr,
]
CONSTANTS = [0, 1, -1, 2, 3, 16, 31, 32, 33, 63, 64, 2**31 - 1, -(2**31), 2**31, 2**40, 2**63 - 1, -(2**63)]


@st.composite
def programs(draw):
    """Kernels of random int64 scalar arithmetic with branches and loops, each storing its values."""
    array = Value(ArrayType(dtypes.int64, 1, 8, 0, True, True), None, "a")
    n = Value(INDEX, None, "n")
    zero = arith.Const(type=INDEX, value=0)
    body: list[Op] = [zero]
    pool = [n, zero.result]

    def grow(ops: list[Op], pool: list[Value], depth: int) -> None:
        for _ in range(draw(st.integers(1, 5))):
            match draw(st.integers(0, 6 if depth < 2 else 3)):
                case 0:
                    new = [arith.Const(type=INDEX, value=draw(st.sampled_from(CONSTANTS)))]
                case 1:
                    new = [draw(st.sampled_from([memory.ProgramId(axis=0), memory.NumPrograms(axis=0), memory.Extent(array, axis=0)]))]
                case 2 | 3:
                    new = [draw(st.sampled_from(BINARY))(draw(st.sampled_from(pool)), draw(st.sampled_from(pool)))]
                case 4:
                    low = arith.Less(draw(st.sampled_from(pool)), draw(st.sampled_from(pool)))
                    blocks = []
                    for _ in range(2):
                        inner: list[Op] = []
                        mine = list(pool)
                        grow(inner, mine, depth + 1)
                        blocks.append(Block([], [*inner, control.Yield((mine[-1],))]))
                    new = [low, control.If(low.result, then=blocks[0], orelse=blocks[1])]
                case _:
                    bounds = [arith.Const(type=INDEX, value=draw(st.integers(-3, 3))) for _ in range(3)]
                    if draw(st.booleans()):
                        bounds[1] = memory.Extent(array, axis=0)
                    inner = []
                    params = [Value(INDEX), Value(INDEX)]
                    mine = [*pool, *params]
                    grow(inner, mine, depth + 1)
                    block = Block(params, [*inner, control.Yield((mine[-1],))])
                    for p in params:
                        p.owner = block
                    new = [*bounds, control.For(*(b.result for b in bounds), (draw(st.sampled_from(pool)),), body=block)]
            ops += new
            pool += [r for op in new for r in op.results if r.type == INDEX]

    grow(body, pool, 0)
    for index, value in enumerate(pool[:12]):
        where = arith.Const(type=INDEX, value=index)
        tile = shape.Splat(value, shape=(1,))
        body += [where, tile, memory.Store(array, (where.result,), tile.result)]
    kernel = Kernel("random", Block([array, n], [*body, control.Yield(())]), frozenset({"n"}))
    for p in kernel.params:
        p.owner = kernel.body
    return print_kernel(kernel)


@settings(max_examples=150, deadline=None)
@given(programs(), st.sampled_from(CONSTANTS))
def test_passes_keep_the_meaning(text, n):
    kernel = parse_kernel(text)
    verify(kernel)
    assert print_kernel(parse_kernel(text)) == text
    want = np.zeros(12, np.int64)
    run_kernel(kernel, (2, 1, 1), [want, n])
    for step in (*passes.TILE_PASSES, *passes.TILE_PASSES):
        step(kernel)
        verify(kernel)
        got = np.zeros(12, np.int64)
        run_kernel(kernel, (2, 1, 1), [got, n])
        np.testing.assert_array_equal(got, want, err_msg=f"after {step.__name__}\n{text}")


def test_every_op_states_its_traits():
    for op in OPS.values():
        assert isinstance(op.traits, Trait)
        assert op.__doc__
