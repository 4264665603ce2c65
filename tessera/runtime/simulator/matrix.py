"""Matrix instructions: where each element of a fragment is, and the helper that multiplies fragments.

The layouts are written from AMD's "RDNA3 Instruction Set Architecture" (7.9, wave matrix multiply accumulate) and agree with AMD's matrix
instruction calculator. They are the simulator's own: the compiler has another table, and the two check each other.

Rows i of A and columns j of B, C and D are the low lane bits. A layout says where the bits of the other coordinate go: k of A and B, row i
of C and D. An entry (lane, bit) is what that bit of the coordinate adds to the lane, and to the bit position in the lane's registers taken
as one little-endian number. Lane groups that no entry reaches hold copies (RDNA3): output elements in lane group q are computed from the
copies of A and B in group q.

The helper `sim.matrix.<mnemonic>.<wave>.<modifiers>` converts A and B to f32 in memory, [k][i] and [k][j], and forms outer products:
blocks of 4 rows, a row of C being one or a few host registers, each k one product with a broadcast element of A. This `fast` arithmetic
adds products to C one by one in order of k, fused where the host can; the hardware rounds differently (`bound`). Integers are exact: their
products are summed in f32, where sums below 2^24 are exact, and then added to C.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ... import llvm
from ...errors import UnsupportedInstructionError
from ...llvmtext import Function, Module, Value, const, vector
from .helpers import builds, helper_function, loop, stack, when
from .instruction import Instruction, Named, Number, Registers
from .semantics.numeric import bfloat_to_float, float_to_bfloat, float_to_half, half_to_float
from .state import WaveState

Basis = tuple[tuple[int, int], ...]
ELEMENT_BITS = {"f16": 16, "bf16": 16, "iu8": 8, "iu4": 4, "f32": 32, "i32": 32}
_BOUND = "sums of products in f32, in order of k, within K + 1 roundings of the exact sum; the hardware adds in another order"
_BOUND_16 = "sums of products in f32, rounded once at the end; the hardware rounds to 16 bits after every second product"


@dataclass(frozen=True)
class MatrixInstruction:
    """One matrix instruction of one wave size. `ab` and `cd` are element types; `k` is the basis of A and B, `rows` that of C and D."""

    mnemonic: str
    wave: int
    m: int
    n: int
    depth: int
    ab: str
    cd: str
    k: Basis
    rows: Basis

    @property
    def ab_registers(self) -> int:
        return max(1, sum(bit for _, bit in self.k) + ELEMENT_BITS[self.ab]) // 32

    @property
    def cd_registers(self) -> int:
        return (sum(bit for _, bit in self.rows) + 32) // 32

    @property
    def groups(self) -> int:
        """Lane groups of `m` lanes."""
        return self.wave // self.m

    def place(self, basis: Basis, index: int) -> tuple[int, int]:
        """(lane, bit position) of a coordinate, beside the low lane bits."""
        chosen = [entry for bit, entry in enumerate(basis) if index >> bit & 1]
        return sum(lane for lane, _ in chosen), sum(bit for _, bit in chosen)

    @property
    def copied(self) -> bool:
        """Whether A and B are held once in each lane group."""
        return self.groups > 1 and all(lane == 0 for lane, _ in self.k)

    def __post_init__(self) -> None:
        if 1 << len(self.k) != self.depth or 1 << len(self.rows) != self.m:
            raise ValueError(f"{self.mnemonic}: the layout doesn't cover K = {self.depth} or M = {self.m}")
        for basis in (self.k, self.rows):
            places = {self.place(basis, index) for index in range(1 << len(basis))}
            if len(places) != 1 << len(basis) or max(lane for lane, _ in places) + self.m > self.wave:
                raise ValueError(f"{self.mnemonic}: two elements in one place, or one beyond the wave")


def _bits(width: int, count: int = 4) -> Basis:
    """Consecutive elements of `width` bits in the lane's registers."""
    return tuple((0, width << bit) for bit in range(count))


# RDNA3: C and D alternate between the lane groups row by row; each row of a group has its register, whatever the element's size.
_ROWS = {32: ((16, 0), (0, 32), (0, 64), (0, 128)), 64: ((16, 0), (32, 0), (0, 32), (0, 64))}
_RDNA3 = (("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16"), ("i32", "iu8"), ("i32", "iu4"))
TABLE: dict[tuple[str, str, int], MatrixInstruction] = {
    ("gfx11", f"v_wmma_{cd}_16x16x16_{ab}", wave): MatrixInstruction(
        f"v_wmma_{cd}_16x16x16_{ab}", wave, 16, 16, 16, ab, cd, _bits(ELEMENT_BITS[ab]), _ROWS[wave]
    )
    for cd, ab in _RDNA3
    for wave in (32, 64)
}


def bound(mnemonic: str) -> str:
    """How a floating-point matrix instruction's results may differ from the hardware's."""
    return _BOUND_16 if mnemonic.startswith(("v_wmma_f16_", "v_wmma_bf16_")) else _BOUND


def is_matrix(mnemonic: str) -> bool:
    """Whether an instruction multiplies matrices."""
    return mnemonic.startswith(("v_wmma_", "v_swmmac_", "v_mfma_", "v_smfmac_"))


# ---- lifting -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Modifiers:
    """neg_lo and neg_hi of A, B, C (bits 0, 1, 2); op_sel of C and D; clamp."""

    neg_lo: int = 0
    neg_hi: int = 0
    high: int = 0
    clamp: int = 0

    def __str__(self) -> str:
        return f"{self.neg_lo}{self.neg_hi}{self.high}{self.clamp}"


def _bits_of(instruction: Instruction, name: str) -> int:
    value = instruction.modifiers.get(name, ())
    return sum(bit << i for i, bit in enumerate(value)) if isinstance(value, tuple) else 0


def emit_matrix(state: WaveState, instruction: Instruction, family: str, arch: str) -> None:
    """Lift a matrix instruction. EXEC doesn't matter to it. Raises UnsupportedInstructionError."""
    row = TABLE.get((family, instruction.mnemonic, state.wave))

    def refuse(why: str) -> UnsupportedInstructionError:
        return UnsupportedInstructionError(
            f"{instruction.mnemonic} at pc 0x{instruction.pc:x} on {arch}, wave{state.wave}: {why}",
            mnemonic=instruction.mnemonic,
            pc=instruction.pc,
        )

    if row is None:
        raise refuse("the simulator doesn't know this matrix instruction")
    unknown = set(instruction.modifiers) - {"neg_lo", "neg_hi", "op_sel", "op_sel_hi", "clamp"}
    if unknown:
        raise refuse(f"unknown modifiers {', '.join(sorted(unknown))}")
    modifiers = Modifiers(
        _bits_of(instruction, "neg_lo"),
        _bits_of(instruction, "neg_hi"),
        _bits_of(instruction, "op_sel") >> 2 & 1,
        int(bool(instruction.modifiers.get("clamp"))),
    )
    if modifiers.clamp and row.cd != "i32":
        raise refuse("clamp on a floating-point matrix instruction")
    d, a, b, c = (operand.base for operand in instruction.operands)
    if not (isinstance(d, Registers) and isinstance(a, Registers) and isinstance(b, Registers)):
        raise refuse("its operands aren't registers")
    if a.count != row.ab_registers or b.count != row.ab_registers or d.count != row.cd_registers:
        raise refuse(f"registers {a.count}, {b.count}, {d.count} don't fit its fragments")
    f = state.f
    inputs = [*range(state.row(a), state.row(a) + a.count), *range(state.row(b), state.row(b) + b.count)]
    results = range(state.row(d), state.row(d) + d.count)
    state.flush(inputs)
    if isinstance(c, Registers):
        first = state.row(c)
        state.flush(range(first, first + c.count))
        c_pointer = state.row_pointer(first)
        if first != results.start and abs(first - results.start) < d.count:
            # D overlaps C at a shift: all of C is read before D is written.
            copy = stack(f, f"[{d.count} x {state.lane_type}]")
            for index in range(d.count):
                f.store(state.read_vgpr(first + index), f.gep(copy, 4 * state.wave * index), 64)
            c_pointer = copy
    else:
        c_pointer = stack(f, f"[{d.count} x {state.lane_type}]")
        value = _constant(c, row.cd)
        if value is None:
            raise refuse("its C operand is neither a register nor a constant of its type")
        for index in range(d.count):
            f.store(const(state.lane_type, value), f.gep(c_pointer, 4 * state.wave * index), 64)
    keeps_half = row.cd in ("f16", "bf16")
    if keeps_half:
        state.flush(results)
    state.forget_clean()
    operands = [state.row_pointer(results.start), state.row_pointer(state.row(a)), state.row_pointer(state.row(b)), c_pointer]
    f.call(f"sim.matrix.{row.mnemonic}.{state.wave}.{modifiers}", "void", operands)
    state.written_in_memory(results, partly=keeps_half)


def _constant(base: object, kind: str) -> int | None:
    """The bits of an inline constant C."""
    if base is Named.NULL:
        return 0
    if not isinstance(base, Number):
        return None
    if base.value == 0:
        return 0
    if kind == "i32" and isinstance(base.value, int):
        return base.value & 0xFFFFFFFF
    if kind == "f32":
        if isinstance(base.value, int):
            return base.value & 0xFFFFFFFF
        return int.from_bytes(struct.pack("<f", base.value), "little")
    return None


# ---- the helper -----------------------------------------------------------------------------------------------------------------------

_BLOCK = 4  # rows of C that are accumulated together


@builds("matrix")
def build_matrix(module: Module, name: str) -> None:
    _, _, mnemonic, wave, modifiers = name.split(".")
    row = next(r for r in TABLE.values() if r.mnemonic == mnemonic and r.wave == int(wave))
    f = helper_function(module, name, "void", [("ptr", "d"), ("ptr", "a"), ("ptr", "b"), ("ptr", "c")])
    lo, hi, high, clamp = (int(digit) for digit in modifiers)
    generator = _Generator(f, row, Modifiers(lo, hi, high, clamp))
    if row.copied:
        # The copies are equal in any sane program; where they aren't, each lane group multiplies its own.
        with when(f, generator.copies_differ(), likely=False):
            for group in range(row.groups):
                generator.multiply_group(group)
            generator.write_result()
            f.ret()
    generator.multiply()
    f.ret()


class _Generator:
    def __init__(self, f: Function, row: MatrixInstruction, modifiers: Modifiers) -> None:
        self.f, self.row, self.modifiers = f, row, modifiers
        self.d, self.a, self.b, self.c = f.arguments
        self.wide_a = stack(f, f"[{row.depth * row.m} x float]")  # [k][i]
        self.wide_b = stack(f, f"[{row.depth * row.n} x float]")  # [k][j]
        self.result = stack(f, f"[{row.m * row.n} x float]")
        self.integer = row.cd == "i32"
        self.columns = min(row.n, max(8, llvm.host().vector_bits // 32))
        self.floats = vector(self.columns, "float")

    def copies_differ(self) -> Value:
        """i1: whether lane groups of A or B hold different data."""
        f, row = self.f, self.row
        piece = vector(row.m, "i32")
        gathered = const(piece, 0)
        for fragment in (self.a, self.b):
            for register in range(row.ab_registers):
                first, *others = (f.load(piece, f.gep(fragment, 4 * (register * row.wave + g * row.m)), 64) for g in range(row.groups))
                for other in others:
                    gathered = f.or_(gathered, f.xor(first, other))
        return f.icmp("ne", f.intrinsic("vector.reduce.or", [gathered], "i32"), 0)

    def _widen(self, fragment: Value, which: int, group: int, target: Value) -> None:
        """Convert a fragment to f32 in memory, [k][lane]."""
        f, row = self.f, self.row
        width = ELEMENT_BITS[row.ab]
        for k in range(row.depth):
            lane, bit = row.place(row.k, k)
            register, low = divmod(bit, 32)
            at = f.gep(fragment, 4 * (register * row.wave + lane + group * row.m))
            words = f.load(vector(row.m, "i32"), at, 64)
            if self.integer:
                signed = self.modifiers.neg_lo >> which & 1
                moved = f.shl(words, 32 - low - width)
                value = f.cast("sitofp", (f.ashr if signed else f.lshr)(moved, 32 - width), vector(row.m, "float"))
            else:
                half = f.cast("trunc", f.lshr(words, low), vector(row.m, "i16"))
                negated = (self.modifiers.neg_hi if low else self.modifiers.neg_lo) >> which & 1
                half = f.xor(half, 0x8000) if negated else half
                value = (half_to_float if row.ab == "f16" else bfloat_to_float)(f, half)
            f.store(value, f.gep(target, 4 * k * row.m), 64)

    def _c_row(self, base: Value, i: int) -> Value:
        lane, bit = self.row.place(self.row.rows, i)
        return self.f.gep(base, 4 * (bit // 32 * self.row.wave + lane))

    def _read_c(self, at: Value) -> Value:
        """Part of a row of C as floats (zeros for integers, which are added at the end)."""
        f, kind = self.f, self.row.cd
        if self.integer:
            return const(self.floats, 0.0)
        words = f.load(vector(self.columns, "i32"), at, 16)
        if kind == "f32":
            value = f.bitcast(words, self.floats)
        else:
            half = f.cast("trunc", f.lshr(words, 16 * self.modifiers.high), vector(self.columns, "i16"))
            value = (half_to_float if kind == "f16" else bfloat_to_float)(f, half)
        if self.modifiers.neg_hi & 4:
            value = f.intrinsic("fabs", [value])
        return f.fneg(value) if self.modifiers.neg_lo & 4 else value

    def _add_product(self, element: Value, across: Value, total: Value) -> Value:
        f = self.f
        down = f.splat(element, self.columns)
        if llvm.host().has_fma:
            return f.intrinsic("fma", [down, across, total])
        return f.binary("fadd", f.binary("fmul", down, across), total)

    def multiply(self) -> None:
        """The product plus C straight to D, which may be where A, B and C are: A and B have been converted by then, and each row of C is
        read before it is written."""
        f, row = self.f, self.row
        self._widen(self.a, 0, 0, self.wide_a)
        self._widen(self.b, 1, 0, self.wide_b)
        for start in range(0, row.m, _BLOCK):
            block = range(start, start + _BLOCK)
            for column in range(0, row.n, self.columns):
                sums = [self._read_c(f.gep(self._c_row(self.c, i), 4 * column)) for i in block]
                for k in range(row.depth):
                    across = f.load(self.floats, f.gep(self.wide_b, 4 * (k * row.n + column)), 16)
                    for index, i in enumerate(block):
                        element = f.load("float", f.gep(self.wide_a, 4 * (k * row.m + i)), 4)
                        sums[index] = self._add_product(element, across, sums[index])
                for i, value in zip(block, sums, strict=True):
                    self._write_row(i, column, value)

    def multiply_group(self, group: int) -> None:
        """The rows that one lane group holds, from its copies of A and B, to `result`. Rare: small rather than quick."""
        f, row = self.f, self.row
        self._widen(self.a, 0, group, self.wide_a)
        self._widen(self.b, 1, group, self.wide_b)
        for i in (i for i in range(row.m) if row.place(row.rows, i)[0] // row.m == group):
            for column in range(0, row.n, self.columns):
                total = stack(f, self.floats)
                f.store(self._read_c(f.gep(self._c_row(self.c, i), 4 * column)), total, 64)
                with loop(f, 0, const("i64", row.depth)) as k:
                    across = f.load(self.floats, f.gep(self.wide_b, f.add(f.mul(k, 4 * row.n), 4 * column)), 16)
                    element = f.load("float", f.gep(self.wide_a, f.add(f.mul(k, 4 * row.m), 4 * i)), 4)
                    f.store(self._add_product(element, across, f.load(self.floats, total, 64)), total, 64)
                f.store(f.load(self.floats, total, 64), f.gep(self.result, 4 * (i * row.n + column)), 16)

    def write_result(self) -> None:
        """`result` to D."""
        f, row = self.f, self.row
        for i in range(row.m):
            for column in range(0, row.n, self.columns):
                self._write_row(i, column, f.load(self.floats, f.gep(self.result, 4 * (i * row.n + column)), 16))

    def _write_row(self, i: int, column: int, value: Value) -> None:
        f, row = self.f, self.row
        words = vector(self.columns, "i32")
        target = f.gep(self._c_row(self.d, i), 4 * column)
        if self.integer:
            total = f.cast("fptosi", value, words)
            old = f.load(words, f.gep(self._c_row(self.c, i), 4 * column), 16)
            f.store(f.intrinsic("sadd.sat", [old, total]) if self.modifiers.clamp else f.add(old, total), target, 16)
        elif row.cd == "f32":
            f.store(value, target, 16)
        else:
            half = f.cast("zext", (float_to_half if row.cd == "f16" else float_to_bfloat)(f, value), words)
            new, kept = (f.shl(half, 16), 0xFFFF) if self.modifiers.high else (half, 0xFFFF0000)
            f.store(f.or_(new, f.and_(f.load(words, target, 16), kept)), target, 16)
