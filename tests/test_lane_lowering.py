"""Conversions, reductions and LDS accesses lowered to LLVM IR, run by a small interpreter of that IR over whole waves.

The interpreter knows the lane intrinsics by their ISA definitions; nothing in it looks at layouts. LDS begins poisoned, lanes begin with
the registers that the source layout says, and the result must be what the target layout says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import dtypes, llvm
from tessera.dtypes import DType, Kind
from tessera.ir.core import Block, Kernel, Op
from tessera.ir.core import Value as IRValue
from tessera.ir.ops.control import Yield
from tessera.ir.ops.shape import Max, Min, Reduce, Sum
from tessera.ir.types import Tile
from tessera.llvmtext import Function, Module, Value, vector
from tessera.targets.rocm import layout as lo
from tessera.targets.rocm import lds as ld
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.layout import Layout, Movement
from tessera.targets.rocm.lowering import convert as convert  # registers the lowerings
from tessera.targets.rocm.lowering import reduce as reduce
from tessera.targets.rocm.lowering.context import LOWERINGS, Context
from tessera.targets.rocm.ops import Barrier, ConvertLayout, LdsAlloc, LdsLoad, LdsStore

law = settings(deadline=None, max_examples=60)

# ---- an interpreter of straight LLVM IR with uniform branches ----------------------------------------------------------------

NUMPY: dict[str, Any] = {"i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64}
NUMPY |= {"half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64, "ptr addrspace(3)": np.uint32}
WAVE = 32
TYPE = r"(<\d+ x \w+>|ptr addrspace\(\d\)|\w+)"


def shape_of(type_: str) -> tuple[int | None, Any]:
    found = re.fullmatch(r"<(\d+) x (\w+)>", type_)
    return (int(found[1]), NUMPY[found[2]]) if found else (None, NUMPY[type_])


def signed(x: np.ndarray) -> np.ndarray:
    return x.view(np.dtype(f"i{x.dtype.itemsize}"))


class Wave:
    def __init__(self, number: int, inputs: dict[str, np.ndarray], memory: np.ndarray) -> None:
        self.number, self.values, self.memory = number, dict(inputs), memory

    def const(self, type_: str, text: str) -> np.ndarray:
        count, dtype = shape_of(type_)
        size = (WAVE,) if count is None else (WAVE, count)
        if text in ("zeroinitializer", "poison"):
            return np.zeros(size, dtype) if text[0] == "z" else np.full(size, 0x5A, np.uint8).astype(dtype)
        if text.startswith("splat"):
            inner, value = re.fullmatch(r"splat \((\S+) (\S+)\)", text).groups()  # type: ignore[union-attr]
            return np.broadcast_to(self.const(inner, value)[:, None], size).copy()
        if text.startswith("<"):
            return np.stack([self.const(*item.split(" ")) for item in text[1:-1].split(", ")], 1)
        if text in ("true", "false"):
            return np.full(size, text == "true")
        if text.startswith("0xH"):
            return np.full(size, np.uint16(int(text[3:], 16)).view(np.float16))
        if text.startswith("0x"):
            return np.full(size, np.uint64(int(text, 16)).view(np.float64)).astype(dtype)
        if dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
            return np.full(size, float(text), dtype)
        return np.full(size, int(text) % (1 << 8 * np.dtype(dtype).itemsize), dtype)

    def get(self, type_: str, text: str) -> np.ndarray:
        if text == "@tessera.lds":
            return np.zeros(WAVE, np.uint32)
        return self.values[text] if text[0] == "%" else self.const(type_, text)

    def run(self, blocks: dict[str, list[str]]) -> Iterator[None]:
        label = "entry"
        while True:
            for line in blocks[label]:
                if line == "ret void":
                    return
                if line.startswith("br label"):
                    label = line.split("%")[1]
                    break
                if line.startswith("br i1"):
                    cond, yes, no = re.fullmatch(r"br i1 (\S+), label %(\S+), label %(\S+)", line).groups()  # type: ignore[union-attr]
                    mask = self.get("i1", cond)
                    assert mask.all() or not mask.any(), "a branch diverges"
                    label = yes if mask.all() else no
                    break
                if "s.barrier" in line:
                    yield
                elif not line.startswith(("fence", "call void asm")):
                    self.step(line)

    def step(self, line: str) -> None:
        if line.startswith("store"):
            type_, text, pointer, align = re.fullmatch(rf"store {TYPE} (.+), ptr addrspace\(3\) (\S+), align (\d+)", line).groups()  # type: ignore[union-attr]
            data, at = self.get(type_, text), self.get("ptr addrspace(3)", pointer)
            raw = np.ascontiguousarray(data).view(np.uint8).reshape(WAVE, -1)
            assert (at % int(align) == 0).all()
            for lane in range(WAVE):
                self.memory[int(at[lane]) : int(at[lane]) + raw.shape[1]] = raw[lane]
            return
        name, text = line.split(" = ", 1)
        self.values[name] = self.evaluate(text)

    def evaluate(self, text: str) -> np.ndarray:
        op = text.split(" ")[0]
        if op == "call":
            return self.call(text)
        rest = text[len(op) + 1 :]
        if op == "extractelement":
            type_, v, index = re.fullmatch(rf"{TYPE} (.+), i32 (\d+)", rest).groups()  # type: ignore[union-attr]
            return self.get(type_, v)[:, int(index)]
        if op == "insertelement":
            type_, v, kind, item, index = re.fullmatch(rf"{TYPE} (.+), {TYPE} (\S+), i32 (\d+)", rest).groups()  # type: ignore[union-attr]
            whole = self.get(type_, v).copy()
            whole[:, int(index)] = self.get(kind, item)
            return whole
        if op == "shufflevector":
            type_, x, _, y, mask = re.fullmatch(rf"{TYPE} (\S+), {TYPE} (\S+), <\d+ x i32> (.+)", rest).groups()  # type: ignore[union-attr]
            both = np.concatenate([self.get(type_, x), self.get(type_, y)], 1)
            if mask == "zeroinitializer":
                return np.repeat(both[:, :1], both.shape[1] // 2, 1)
            picks = [0 if "poison" in w else int(w.split(" ")[1]) for w in mask[1:-1].split(", ")]
            return both[:, picks]
        if op == "select":
            kind, c, type_, x, _, y = re.fullmatch(rf"{TYPE} (\S+), {TYPE} (.+), {TYPE} (.+)", rest).groups()  # type: ignore[union-attr]
            cond, a, b = self.get(kind, c), self.get(type_, x), self.get(type_, y)
            return np.where(cond if cond.ndim == a.ndim else cond[:, None], a, b)
        if op in ("icmp", "fcmp"):
            predicate, type_, x, y = re.fullmatch(rf"(\w+) {TYPE} (.+), (\S.*)", rest).groups()  # type: ignore[union-attr]
            a, b = self.get(type_, x), self.get(type_, y)
            tests: dict[str, Callable[[], Any]] = {"eq": lambda: a == b, "ne": lambda: a != b, "uno": lambda: np.isnan(a) | np.isnan(b)}
            return tests[predicate]()
        if op in ("zext", "sext", "trunc", "bitcast", "fpext", "fptrunc"):
            type_, x, to = re.fullmatch(rf"{TYPE} (.+) to {TYPE}", rest).groups()  # type: ignore[union-attr]
            return self.convert(op, self.get(type_, x), to)
        if op == "getelementptr":
            pointer, type_, at = re.fullmatch(rf"i8, ptr addrspace\(3\) (\S+), {TYPE} (\S+)", rest).groups()  # type: ignore[union-attr]
            return self.get("ptr addrspace(3)", pointer) + self.get(type_, at).astype(np.uint32)
        if op == "load":
            type_, pointer, align = re.fullmatch(rf"{TYPE}, ptr addrspace\(3\) (\S+), align (\d+)", rest).groups()  # type: ignore[union-attr]
            count, dtype = shape_of(type_)
            at, size = self.get("ptr addrspace(3)", pointer), (count or 1) * np.dtype(dtype).itemsize
            assert (at % int(align) == 0).all()
            raw = np.stack([self.memory[int(a) : int(a) + size] for a in at])
            return raw.view(dtype) if count else raw.view(dtype)[:, 0]
        type_, x, y = re.fullmatch(rf"{TYPE} (.+), (\S.*)", rest).groups()  # type: ignore[union-attr]
        a, b = self.get(type_, x), self.get(type_, y)
        operations: dict[str, Callable[[Any, Any], Any]] = {
            "add": np.add, "fadd": np.add, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
            "shl": np.left_shift, "lshr": np.right_shift,
        }  # fmt: skip
        with np.errstate(all="ignore"):
            return operations[op](a, b)

    @staticmethod
    def convert(op: str, x: np.ndarray, to: str) -> np.ndarray:
        count, dtype = shape_of(to)
        if op == "bitcast":
            cells = np.ascontiguousarray(x)
            if cells.dtype == np.bool_ or dtype == np.bool_:
                assert cells.dtype == dtype
                return cells
            cells = cells[:, None] if cells.ndim == 1 else cells
            out = cells.view(dtype)
            return out if count is not None else out[:, 0]
        if op == "sext":
            return signed(x).astype(np.dtype(f"i{np.dtype(dtype).itemsize}")).view(dtype)
        if op == "trunc" and dtype is np.bool_:
            return (x & 1).astype(np.bool_)
        with np.errstate(all="ignore"):
            return x.astype(dtype)

    def call(self, text: str) -> np.ndarray:
        _, name, operands = re.fullmatch(rf"call (?:nnan )?{TYPE} @llvm\.(\S+)\((.*)\)", text).groups()  # type: ignore[union-attr]
        typed = [re.fullmatch(rf"{TYPE} (.+)", o).groups() for o in re.split(r", (?![^<]*>)", operands) if o]  # type: ignore[union-attr]
        args = [self.get(*t) for t in typed]
        lane = np.arange(WAVE)
        if name == "amdgcn.workitem.id.x":
            return (lane + WAVE * self.number).astype(np.uint32)
        if name == "amdgcn.mbcnt.lo":
            return lane.astype(np.uint32)
        if name.startswith("amdgcn.readfirstlane"):
            return np.full_like(args[0], args[0][0])
        if name.startswith("amdgcn.readlane"):
            assert (args[1] == args[1][0]).all(), "readlane's lane is divergent"
            return np.full_like(args[0], args[0][int(args[1][0]) & 31])
        if name.startswith("amdgcn.update.dpp"):
            control = int(args[2][0])
            assert 0x160 < control < 0x170
            return args[1][lane ^ (control - 0x160)]
        if name.startswith("amdgcn.permlane"):
            table = [int(args[2 + (n >> 3)][0]) >> 4 * (n & 7) & 15 for n in range(16)]
            row = (lane & 16) ^ (16 if "permlanex16" in name else 0)
            return args[1][row | np.array(table)[lane & 15]]
        if name == "amdgcn.ds.bpermute":
            return args[1][(args[0] >> 2) & 31]
        if name == "amdgcn.perm":
            table = np.stack([(args[1] >> 8 * i) & 255 for i in range(4)] + [(args[0] >> 8 * i) & 255 for i in range(4)], 1)
            assert (args[2] & 0xF8F8F8F8 == 0).all()
            picked = [table[lane, (args[2] >> 8 * i) & 7] << 8 * i for i in range(4)]
            return (picked[0] | picked[1] | picked[2] | picked[3]).astype(np.uint32)
        a, b = args
        kind = name.split(".")[0]
        if kind in ("smax", "smin"):
            return (np.maximum if kind == "smax" else np.minimum)(signed(a), signed(b)).view(a.dtype)
        if kind in ("maxnum", "minnum"):  # called with `nnan` only: a NaN operand gives rubbish
            found = (np.maximum if kind == "maxnum" else np.minimum)(a, b)
            zero = (a == 0) & (b == 0)
            found = np.where(zero, np.where(np.signbit(a) == (kind == "minnum"), a, b), found)
            return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(12345), found).astype(a.dtype)
        if kind in ("maximum", "minimum"):
            found = (np.maximum if kind == "maximum" else np.minimum)(a, b)
            return np.where((a == 0) & (b == 0), np.where(np.signbit(a) == (kind == "minimum"), a, b), found).astype(a.dtype)
        return {"umax": np.maximum, "umin": np.minimum}[kind](a, b)


def run(module: Module, f: Function, num_waves: int, inputs: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Run all waves, barrier by barrier, later waves first. `inputs` have the axes (wave, lane, register)."""
    blocks: dict[str, list[str]] = {}
    label = ""
    for line in str(f).splitlines()[1:-1]:
        if line.endswith(":"):
            label = line[:-1]
            blocks[label] = []
        else:
            blocks[label].append(re.sub(r", !\S+( !\d+)?$", "", line.strip()))
    memory = np.full(1 << 20, 0xA5, np.uint8)
    waves = [Wave(w, {name: x[w] for name, x in inputs.items()}, memory) for w in range(num_waves)]
    running = [wave.run(blocks) for wave in reversed(waves)]
    while running:
        running = [r for r in running if next(r, "end") is None]
    return [w.values for w in waves]


# ---- building --------------------------------------------------------------------------------------------------------------------


class Bench:
    """One function in which ops are lowered one after the other; `%in` holds the registers of the first operand."""

    def __init__(self, source: Tile, layout: Layout, num_waves: int) -> None:
        self.module = Module(llvm.AMDGPU_TRIPLE)
        self.type = vector(layout.count, source.dtype.llvm)
        self.f = Function(self.module, "k", "void", [(self.type, "in")])
        kernel = Kernel("k", Block([], [Yield(())]), num_waves=num_waves)
        self.cx = Context(kernel, arch("gfx1151"), num_waves, self.module, self.f)
        self.f.position("entry")
        self.scope = self.cx.scope("entry")
        self.scope.__enter__()
        self.f.position("body")
        self.value = IRValue(source, layout=layout)
        self.cx.values[self.value] = Value(self.type, "%in")
        self.num_waves = num_waves

    def lower(self, op: Op) -> None:
        LOWERINGS[type(op)](self.cx, op)

    def finish(self, tile: np.ndarray, layout: Layout, result: IRValue) -> np.ndarray:
        """The registers of `result` (wave, lane, register; scalars: wave, lane), given the elements of the first operand."""
        name = self.cx.get(result)
        self.f.ret()
        self.scope.__exit__(None, None, None)
        self.f.position("entry")
        self.f.branch("body")
        elements = layout.elements()
        held = tile.ravel()[elements[np.arange(self.num_waves) % layout.num_waves]]
        if tile.dtype.kind == "i":
            held = held.view(np.dtype(f"u{held.dtype.itemsize}"))
        values = run(self.module, self.f, self.num_waves, {"%in": held})
        wave = Wave(0, {}, np.zeros(0, np.uint8))
        raw = np.stack([v.get(name.text, None) if name.text[0] == "%" else wave.const(*name) for v in values])  # type: ignore[arg-type]
        return raw.view(result.tile.dtype.numpy) if result.tile.dtype.kind is not Kind.BOOL else raw


def unique(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> np.ndarray:
    """Different values wherever the dtype has enough of them."""
    count = int(np.prod(shape))
    if dtype.kind is Kind.BOOL:
        return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        return (np.arange(count) - count // 3 + 0.5).astype(dtype.numpy).reshape(shape)
    return (np.arange(count) * 3 - 100).astype(dtype.numpy).reshape(shape)


def expected(tile: np.ndarray, layout: Layout, num_waves: int) -> np.ndarray:
    return tile.ravel()[layout.elements()[np.arange(num_waves) % layout.num_waves]]


def same(x: np.ndarray, y: np.ndarray) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()


EXTENTS = [1, 2, 4, 8, 16, 3]


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...], waves: int, freeze: tuple[lo.Basis, ...] | None = None) -> Layout:
    """Any layout of 32 lanes; `freeze` are the wave bases to use."""
    bases = [(a, 1 << b) for a, extent in enumerate(shape) for b in range(lo.bits_of(extent // lo.odd_part(extent)))]
    free = [b for b in draw(st.permutations(bases)) if freeze is None or b not in freeze]
    if freeze is None:
        count = draw(st.integers(0, min(waves, len(free))))
        freeze = tuple(draw(st.permutations([*free[:count], *[None] * (waves - count)])))
        free = free[count:]
    count = draw(st.integers(0, min(5, len(free))))
    lanes = draw(st.permutations([*free[:count], *[None] * (5 - count)]))
    return Layout(shape, tuple(free[count:]), tuple(lanes), freeze)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3)))


# ---- conversions -----------------------------------------------------------------------------------------------------------------


def check_conversion(source: Layout, target: Layout, dtype: DType, num_waves: int) -> None:
    bench = Bench(Tile(source.shape, dtype), source, num_waves)
    op = ConvertLayout(bench.value)
    op.result.layout = target
    bench.lower(op)
    tile = unique(source.shape, dtype)
    assert same(bench.finish(tile, source, op.result), expected(tile, target, num_waves))


@law
@given(shapes(), st.sampled_from(dtypes.ALL), st.sampled_from([1, 2, 3, 4]), st.data())
def test_conversions_within_waves(shape: tuple[int, ...], dtype: DType, num_waves: int, data: st.DataObject) -> None:
    source = data.draw(layouts(shape, lo.bits_of(num_waves)))
    target = data.draw(layouts(shape, lo.bits_of(num_waves), source.waves))
    if lo.movement(source, target) is not Movement.LDS:
        check_conversion(source, target, dtype, num_waves)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.int8, dtypes.float64, dtypes.bool_, dtypes.float32])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("16x16/j1.j2.j4/j8.i1.i2.i4.i8/", "16x16/i1.j2.j4/j8.j1.i2.i4.i8/"),  # exchange a register and a lane bit
        ("16x16/j1.j2.j4/j8.i1.i2.i4.i8/", "16x16/j1.j2.i8/j8.i1.i2.i4.j4/"),  # across the two rows of 16 lanes
        ("16x16/j1.j2.j4/j8.i1.i2.i4.i8/", "16x16/j1.j2.j4/i1.j8.i2.i4.i8/"),  # lanes change places
        ("16x16/j1.j2.j4/j8.i1.i2.i4.i8/", "16x16/j4.j2.i8/i4.j1.i2.j8.i1/"),  # all of it
        ("16x16/i2.i4.i8/j1.j2.j4.j8.i1/", "16x16/i1.i2.i4.i8/j1.j2.j4.j8.-/"),  # accumulator to operand B: replicated over lane bit 4
        ("16x16/i1.i2.i4.i8/j1.j2.j4.j8.-/", "16x16/i2.i4.i8/j1.j2.j4.j8.i1/"),
        ("4//i1.i2.-.-.-/", "4/i1.i2/-.-.-.-.-/"),  # everybody gets everything: reads of one lane
        ("4/i1.i2/-.-.-.-.-/", "4//-.-.i2.i1.-/"),
        ("8/i4/i1.i2.-.-.-/", "8//-.-.i1.i4.i2/"),  # lanes that hold copies carry the choice of a register
        ("12x4/j2/i1.j1.-.-.i2/", "12x4/i2/-.j2.i1.-.j1/"),  # repeats
    ],
)
def test_conversion_examples(source: str, target: str, dtype: DType) -> None:
    a, b = lo.parse(source), lo.parse(target)
    assert lo.movement(a, b) is Movement.LANES
    check_conversion(a, b, dtype, 1)


def test_waves_choose_their_registers() -> None:
    check_conversion(lo.parse("8x4/j1.j2/i1.-.-.-.i4/-.i2"), lo.parse("8x4/j1/i1.-.i4.-.-/j2.i2"), dtypes.float16, 4)
    check_conversion(lo.parse("8x4/j1.j2/i1.i2.i4.-.-/-"), lo.parse("8x4/j1.j2/i1.i2.-.-.-/i4"), dtypes.int32, 2)


def assembly(bench: Bench, result: Value) -> str:
    """The machine code of the bench's function as a kernel that loads its operand and stores its result."""
    place = "%place = getelementptr i8, ptr addrspace(1) %p, i32 %far"
    head = f"""define amdgpu_kernel void @k(ptr addrspace(1) %p) {{
entry:
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %far = mul i32 %id, 4096
  {place}
  %in = load {bench.type}, ptr addrspace(1) %place
"""
    body = (
        str(bench.f).split("entry:\n")[1].replace("  ret void", f"  store {result.type} {result.text}, ptr addrspace(1) %place\n  ret void")
    )
    bench.module.declare("llvm.amdgcn.workitem.id.x", "i32", [])
    bench.module.functions.clear()
    return llvm.device_assembly(f"{bench.module}\n{head}{body}", "gfx1151")


@pytest.mark.parametrize(
    ("source", "target", "wanted", "unwanted"),
    [
        ("16x16/i1.i2.i4.i8/j1.j2.j4.j8.-/", "16x16/i2.i4.i8/j1.j2.j4.j8.i1/", "cndmask_b32", "v_permlane"),
        ("16x16/i2.i4.i8/j1.j2.j4.j8.i1/", "16x16/i1.i2.i4.i8/j1.j2.j4.j8.-/", "v_permlanex16", "ds_bpermute"),
        ("16x16/j1.j2.j4/j8.i1.i2.i4.i8/", "16x16/i1.j2.j4/j8.j1.i2.i4.i8/", "row_xmask:2", "ds_bpermute"),
        ("32//i1.i2.i4.i8.i16/", "32/i1.i2.i4.i8.i16/-.-.-.-.-/", "v_readlane", "ds_bpermute"),
        ("4//i1.i2.-.-.-/", "4/i1.i2/-.-.-.-.-/", "v_permlane16", "ds_bpermute"),
        ("16x16/j1.j2.j4/j8.i1.i2.i4.i8/", "16x16/j1.j2.j4/j8.i1.i2.i8.i4/", "ds_bpermute", "v_permlane"),
    ],
)
def test_the_cheapest_means_is_used(source: str, target: str, wanted: str, unwanted: str) -> None:
    layout = lo.parse(source)
    bench = Bench(Tile(layout.shape, dtypes.float32), layout, 1)
    op = ConvertLayout(bench.value)
    op.result.layout = lo.parse(target)
    bench.lower(op)
    bench.finish(unique(layout.shape, dtypes.float32), layout, op.result)
    text = assembly(bench, bench.cx.get(op.result))
    assert wanted in text
    assert unwanted not in text


# ---- reductions ------------------------------------------------------------------------------------------------------------------


def reference(op: type[Reduce], tile: np.ndarray, axis: int, dtype: DType) -> np.ndarray:
    return np.asarray(op(IRValue(Tile(tile.shape, dtype)), axis=axis).evaluate([tile], None)[0])  # type: ignore[arg-type]


def check_reduction(op_class: type[Reduce], tile: np.ndarray, layout: Layout, axis: int, dtype: DType, num_waves: int) -> np.ndarray:
    bench = Bench(Tile(layout.shape, dtype), layout, num_waves)
    op = op_class(bench.value, axis=axis)
    target = lo.slice_axis(layout, axis)
    if op.result.tile.shape:
        op.result.layout = target
    bench.lower(op)
    got = bench.finish(tile, layout, op.result)
    want = reference(op_class, tile, axis, dtype)
    want = expected(want, target, num_waves) if want.shape else np.broadcast_to(want, got.shape)
    nan = np.isnan(want.astype(np.float64)) if dtype.is_float else np.zeros(want.shape, bool)
    assert got.shape == want.shape
    assert (np.isnan(got.astype(np.float64)) == nan).all() if dtype.is_float else True
    assert same(np.where(nan, 0, got).astype(got.dtype), np.where(nan, 0, want).astype(want.dtype)), (got, want)
    return got


@law
@given(shapes(), st.sampled_from(dtypes.ALL), st.sampled_from([Sum, Max, Min]), st.sampled_from([1, 2, 3]), st.data())
def test_reductions(shape: tuple[int, ...], dtype: DType, op: type[Reduce], num_waves: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    layout = data.draw(layouts(shape, lo.bits_of(num_waves)))
    if (op is Sum and dtype.kind is Kind.BOOL) or any(b is not None and b[0] == axis for b in layout.waves):
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    if dtype.kind is Kind.BOOL:
        tile = rng.integers(0, 2, shape).astype(bool)
    elif dtype.is_float:
        tile = rng.integers(-8, 8, shape).astype(dtype.numpy)  # sums are exact in any order
        if op is not Sum:
            tile = np.where(rng.random(shape) < 0.05, np.nan, np.where(rng.random(shape) < 0.2, -0.0, tile)).astype(dtype.numpy)
    else:
        info = np.iinfo(dtype.numpy)
        tile = rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
    check_reduction(op, tile, layout, axis, dtype, num_waves)


def test_replicated_lanes_are_not_counted_twice() -> None:
    layout = lo.parse("8/i4/i1.-.i2.-.-/-")
    got = check_reduction(Sum, np.arange(8, dtype=np.int32), layout, 0, dtypes.int32, 3)
    assert (got == 28).all()


def test_halves_round_once() -> None:
    tile = np.array([2048, *[1] * 63], np.float16).reshape(1, 64)  # adding ones to 2048 in float16 one by one stays at 2048
    layout = lo.parse("1x64/j1.j2.j4/j8.j16.j32.-.-/")
    got = check_reduction(Sum, tile, layout, 1, dtypes.float16, 1)
    assert (got == np.float16(2111)).all()


def test_sums_are_equal_in_all_lanes() -> None:
    tile = np.random.default_rng(3).standard_normal((2, 256)).astype(np.float32)
    layout = lo.blocked((2, 256), vector=4)
    bench = Bench(Tile(layout.shape, dtypes.float32), layout, 1)
    op = Sum(bench.value, axis=1)
    op.result.layout = lo.slice_axis(layout, 1)
    bench.lower(op)
    got = bench.finish(tile, layout, op.result)
    assert len(np.unique(got.view(np.uint32))) == 2
    exact = tile.astype(np.float64).sum(1)
    assert (abs(got[0, 0] - exact) <= 255 * 2.0**-24 * abs(tile.astype(np.float64)).sum(1)).all()


def test_row_maxima_fuse_with_dpp_and_use_three_operands() -> None:
    layout = lo.blocked((1, 512), vector=4)
    bench = Bench(Tile(layout.shape, dtypes.float32), layout, 1)
    op = Max(bench.value, axis=1)
    op.result.layout = lo.slice_axis(layout, 1)
    bench.lower(op)
    bench.finish(unique(layout.shape, dtypes.float32), layout, op.result)
    text = assembly(bench, bench.cx.get(op.result))
    assert "v_max3_f32" in text
    assert "v_permlanex16" in text
    assert "row_xmask:8" in text


# ---- LDS -------------------------------------------------------------------------------------------------------------------------


def check_lds(source: Layout, target: Layout, held: ld.LdsLayout, dtype: DType, num_waves: int, offset: int = 0) -> str:
    bench = Bench(Tile(source.shape, dtype), source, num_waves)
    alloc = LdsAlloc(shape=held.shape, dtype=dtype, offset=offset)
    alloc.result.layout = held
    corner = tuple(extent - used for extent, used in zip(held.shape, source.shape, strict=True))
    load = LdsLoad(alloc.result, offset=corner, shape=source.shape)
    load.result.layout = target
    for op in (alloc, LdsStore(alloc.result, bench.value, offset=corner), Barrier(), load):
        bench.lower(op)
    tile = unique(source.shape, dtype)
    assert same(bench.finish(tile, source, load.result), expected(tile, target, num_waves))
    return str(bench.f)


@law
@given(shapes(), st.sampled_from(dtypes.ALL), st.sampled_from([1, 2, 3, 4, 5, 8]), st.booleans(), st.data())
def test_through_lds(shape: tuple[int, ...], dtype: DType, num_waves: int, larger: bool, data: st.DataObject) -> None:
    source, target = (data.draw(layouts(shape, lo.bits_of(num_waves))) for _ in range(2))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    pads = data.draw(st.sampled_from([(), ((1, 16), (3, -16)), ((0, 8),)]))
    if pads and any(lo.odd_part(shape[a]) > 1 for a in order[1:-1]):
        pads = ()
    held = tuple(2 * extent for extent in shape) if larger else shape
    check_lds(source, target, ld.LdsLayout(held, order, dtype.bytes, pads), dtype, num_waves, data.draw(st.sampled_from([0, 48])))


@pytest.mark.parametrize(
    ("dtype", "source", "perms"),
    [
        (dtypes.float16, "32x64/j1.j2.j4.i1.i2/j8.j16.j32.i4.i8/i16", 16),  # 4 rows of 8 halves: two a word, two words a column
        (dtypes.int8, "32x64/j1.j2.j4.i1.i2/j8.j16.j32.i4.i8/i16", 16),  # 4 rows of 8 bytes: two steps for each of 8 words
        (dtypes.float32, "32x64/j1.j2.i1.i2.i8/j4.j8.j16.j32.i4/i16", 0),
    ],
)
def test_transposes_on_the_way_into_lds(dtype: DType, source: str, perms: int) -> None:
    held = ld.LdsLayout((32, 64), (0, 1), dtype.bytes, ((1, 16), (3, -16)))
    text = check_lds(lo.parse(source), lo.parse("32x64/i1.i2.i4.i8.j16/j1.j2.j4.j8.i16/j32"), held, dtype, 2)
    assert text.count("@llvm.amdgcn.perm(") == perms


def test_surplus_and_copying_waves_do_not_store() -> None:
    source, target = lo.parse("16/i16/i1.i2.i4.i8.-/-".replace("16/i16", "16/")), lo.parse("16/i1/i2.i4.i8.-.-/-")
    text = check_lds(source, target, ld.LdsLayout((16,), (0,), 4), dtypes.int32, 3)
    assert "br i1" in text
    text = check_lds(lo.parse("16//i1.i2.i4.-.-/i8"), target, ld.LdsLayout((16,), (0,), 4), dtypes.int32, 2)
    assert "br i1" not in text


def test_barriers_are_fenced_for_lds_only() -> None:
    text = check_lds(lo.parse("16//i1.i2.i4.-.-/i8"), lo.parse("16/i1/i2.i4.i8.-.-/-"), ld.LdsLayout((16,), (0,), 4), dtypes.int32, 2)
    lines = [line.strip() for line in text.splitlines()]
    at = next(i for i, line in enumerate(lines) if "s.barrier" in line)
    assert re.fullmatch(r'fence syncscope\("workgroup"\) release, !mmra !\d+', lines[at - 1])
    assert re.fullmatch(r'fence syncscope\("workgroup"\) acquire, !mmra !\d+', lines[at + 1])
