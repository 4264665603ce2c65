"""The plumbing of vector and scalar ALU instructions: operands in, modifiers, meaning, results out under EXEC.

`emit` is the entry point. What an instruction means is its row in `semantics/`; which values go in and where results go is decided here by
the kinds of the row's signature, once for all instructions. Lane values are vectors over the wave, so that nothing loops over lanes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from tessera.errors import UnsupportedInstructionError
from tessera.llvmtext import Function, Value, const, element, lanes, like, vector, vector_const

from . import dpp
from .indirect import HANDLERS
from .instruction import File, Instruction, Named, Number, Operand, Registers
from .semantics import FloatMode, Generation, Semantic, lookup
from .semantics.numeric import (
    as_float,
    bfloat_to_float,
    bits_of,
    float_to_bfloat,
    float_to_half,
    flush,
    half_to_float,
    narrow_to_odd,
)
from .semantics.table import IMPLIED_INPUTS, IMPLIED_OUTPUTS
from .state import EXEC, M0, VCC, Field, WaveState, const_mask

WIDTH = {
    kind: width
    for width, kinds in {16: "f16 h16 bf16 i16 u16 b16", 32: "f32 i32 u32 b32", 64: "f64 i64 u64 b64"}.items()
    for kind in kinds.split()
}
_FLOATS = frozenset(("f16", "h16", "bf16", "f32", "f64"))
_UNTYPED = frozenset(("b16", "b32", "b64"))
HALVES = {"2f16": "f16", "2h16": "h16", "2bf16": "bf16", "2i16": "i16", "2u16": "u16", "2f32": "f32"}
PARTS = {"4x8": (4, 8), "4u8": (4, 8), "4i8": (4, 8), "8x4": (8, 4), "8u4": (8, 4), "8i4": (8, 4)}
_OMOD = {"mul:2": 2.0, "mul:4": 4.0, "div:2": 0.5}
# 1/(2 pi) as an inline constant: its spelling has too few digits for the wider types.
_INV_TWO_PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}
_PERMUTE_SCRATCH = 768  # in the free part of the state block


def known(instruction: Instruction, generation: Generation) -> bool:
    """Whether `emit` would take this instruction."""
    if instruction.mnemonic in HANDLERS:
        return True
    second = instruction.second
    return lookup(instruction.mnemonic, generation) is not None and (second is None or lookup(second.mnemonic, generation) is not None)


def emit(state: WaveState, instruction: Instruction, generation: Generation = Generation.GFX11, mode: FloatMode | None = None) -> bool:
    """Build the effect of a vector or scalar ALU instruction. Returns False, having built nothing, for any other.

    `mode` is the float mode of the kernel's descriptor (by default IEEE, DX10 clamp, subnormals kept). Raises UnsupportedInstructionError
    where the mnemonic is known but an operand or modifier isn't.
    """
    if (handler := HANDLERS.get(instruction.mnemonic)) is not None:
        handler(state, instruction)
        return True
    semantic = lookup(instruction.mnemonic, generation)
    if semantic is None:
        return False
    template = Template(state, instruction, semantic, generation, mode or FloatMode())
    if instruction.second is None:
        template.write(template.evaluate())
        return True
    other = lookup(instruction.second.mnemonic, generation)
    if other is None:
        return False
    second = Template(state, instruction.second, other, generation, mode or FloatMode())
    results, more = template.evaluate(), second.evaluate()
    template.write(results)
    second.write(more)
    return True


def number_bits(number: Number, width: int, kind: str) -> int:
    """The bits that a constant operand stands for in an operand of `kind`, `width` bits wide.

    A literal dword is the value of a 32-bit operand, the high half of an f64, and extended (by sign for i64) to other 64-bit operands. An
    inline integer is extended by sign, an inline float has the operand's width: f16 in 16-bit operands, f64 in any of 64 bits.
    """
    value = number.value
    if isinstance(value, float):
        if number.text.startswith("0.15915494"):
            return _INV_TWO_PI[width] if kind not in ("bf16", "2bf16") else 0x3E23
        if kind in ("bf16", "2bf16"):
            return int.from_bytes(struct.pack("<f", value), "little") >> 16
        return int.from_bytes(struct.pack({16: "<e", 32: "<f", 64: "<d"}[width], value), "little")
    if number.literal and width == 64 and -(1 << 32) < value < 1 << 32:
        value &= 0xFFFFFFFF
        if kind == "f64":
            return value << 32
        return value - (1 << 32) & (1 << 64) - 1 if kind == "i64" and value >> 31 else value
    return value & ((1 << width) - 1)


def _half(value: Any, half: int) -> Any:
    """The half of a packed value; what isn't packed is the same for both."""
    return value[half] if isinstance(value, Pair) else value


class Pair(NamedTuple):
    """A packed value taken apart."""

    low: Value
    high: Value


@dataclass(slots=True)
class Template:
    """One instruction (or half of a dual-issue one) being built."""

    state: WaveState
    instruction: Instruction
    semantic: Semantic
    generation: Generation
    mode: FloatMode
    valid: Value | None = None  # lanes that a DPP read leaves writable, where that isn't all
    permuted: int = -1  # the operand that DPP moves

    @property
    def f(self) -> Function:
        return self.state.f

    def unsupported(self, what: str) -> UnsupportedInstructionError:
        text = self.instruction.text or self.instruction.mnemonic
        return UnsupportedInstructionError(
            f"the simulator does not support {what} in {text!r} on {self.generation.value}",
            mnemonic=self.instruction.mnemonic,
            pc=self.instruction.pc,
        )

    # ---- evaluation ---------------------------------------------------------------------------------------------------------------

    def plan(self) -> list[tuple[str, Operand | None, int]]:
        """The row's inputs: kind, operand (None where implied), and its number among sources (-1: the destination's old value)."""
        semantic, operands = self.semantic, self.instruction.operands
        explicit = sum(kind not in IMPLIED_OUTPUTS for kind in semantic.outputs)
        sources = operands[explicit:]
        planned: list[tuple[str, Operand | None, int]] = []
        at = 0
        for index, kind in enumerate(semantic.inputs):
            if kind in IMPLIED_INPUTS:
                planned.append((kind, None, -1))
            elif index == semantic.reads_destination:
                planned.append((kind, operands[0], -1))
            elif at < len(sources):
                planned.append((kind, sources[at], at))
                at += 1
            elif kind == "mask":
                planned.append((kind, None, -1))
            else:
                raise self.unsupported(f"{len(operands)} operands")
        if at != len(sources):
            raise self.unsupported(f"{len(operands)} operands")
        return planned

    def inputs(self) -> list[Any]:
        """The values of the row's inputs."""
        if dpp.is_permuted(self.instruction):
            self.permuted = 0
        return [
            self.fetch(operand, kind, index)
            if operand is not None
            else self.state.read_mask_slot(VCC)
            if kind == "mask"
            else self.implied(kind)
            for kind, operand, index in self.plan()
        ]

    def evaluate(self) -> tuple[Value, ...]:
        """The values of the row's outputs, by kind; nothing is written."""
        semantic = self.semantic
        inputs = self.inputs()
        body = cast("Callable[..., Any]", semantic.emit)
        modifiers = self.instruction.modifiers
        if modifiers.get("clamp"):
            if semantic.clamp is not None:
                body = cast("Callable[..., Any]", semantic.clamp)
            elif not any(kind in _FLOATS or kind in HALVES or kind in ("f16hi", "mask", "execmask") for kind in semantic.outputs):
                raise self.unsupported("clamp")
        if semantic.outputs[0] in HALVES:
            low, high = (body(self.f, *(_half(x, half) for x in inputs)) for half in (0, 1))
            return (self.join(low, high, semantic.outputs[0]),)
        result: Value | tuple[Value, ...] = body(self.f, *inputs)
        return (result,) if isinstance(result, Value) else result

    def implied(self, kind: str) -> object:
        state = self.state
        match kind:
            case "scc":
                return state.read_scc()
            case "exec32":
                return state.read_sgpr(EXEC)
            case "exec64":
                return state.read_sgpr64(EXEC)
            case "active":
                return state.exec()
            case "m0":
                return state.read_sgpr(M0)
            case "lane":
                return vector_const("i32", list(range(state.wave)))
            case "mode":
                return self.mode
            case "op_sel":
                bits = self.numbers("op_sel")
                return (*bits, *(0,) * (4 - len(bits)))
            case _:
                return state.field_pointer(_PERMUTE_SCRATCH)

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list modifier; empty where absent."""
        value = self.instruction.modifiers.get(key, ())
        return value if isinstance(value, tuple) else ()

    def flag(self, key: str, index: int, default: int = 0) -> int:
        bits = self.numbers(key)
        return bits[index] if 0 <= index < len(bits) else default

    # ---- sources ------------------------------------------------------------------------------------------------------------------

    def fetch(self, operand: Operand, kind: str, index: int) -> object:
        """An operand's value as the semantic wants it. `index` counts sources; -1 is the destination's old value."""
        if kind == "mask":
            base = operand.base
            if isinstance(base, Number):
                return const_mask(const(self.state.mask_bits, int(base.value)), self.state.wave)
            return self.state.read_mask(base)
        if kind in ("s32", "s64", "simm", "uimm"):
            return self.scalar_bits(operand, 64 if kind == "s64" else 32, "u64" if kind == "s64" else "u32")
        if kind in HALVES:
            return self.pair(operand, kind, index)
        if kind in PARTS:
            return self.parts(operand, kind, index)
        if kind == "mix":
            kind = "f16" if self.flag("op_sel_hi", index) else "f32"
        raw = self.raw(operand, WIDTH[kind], kind, index)
        return self.typed(raw, kind, operand, bool(self.flag("neg_lo", index)), bool(self.flag("neg_hi", index)))

    def typed(self, raw: Value, kind: str, operand: Operand, neg: bool = False, absolute: bool = False) -> Value:
        """Bits as a value of `kind`, with the sign modifiers applied: those of the operand and, of mixed and dot instructions, `neg_lo` (a
        negation) and `neg_hi` (an absolute value)."""
        neg, absolute = neg != operand.neg, absolute or operand.abs
        if (neg or absolute) and kind not in _FLOATS and kind not in _UNTYPED:
            raise self.unsupported("a sign modifier of an integer")
        f = self.f
        if neg or absolute:
            width = WIDTH[kind]
            sign = 1 << (width - 1)
            if absolute:
                raw = f.and_(raw, sign - 1)
            if neg:
                raw = f.xor(raw, sign)
        match kind:
            case "f16":
                return self.flushed(half_to_float(f, raw), kind)
            case "bf16":
                return bfloat_to_float(f, raw)
            case "f32" | "f64" | "h16":
                return self.flushed(raw if kind == "h16" else as_float(f, raw), kind)
            case _:
                return raw

    def flushed(self, x: Value, kind: str) -> Value:
        """Subnormals to zero where the mode says so."""
        mode, f = self.mode, self.f
        single = kind == "f32"
        if mode.dynamic:
            register = f.load("i32", self.state.field_pointer(Field.MODE), 4)
            when = f.icmp("eq", f.and_(register, 0x30 if single else 0xC0), 0)
        elif mode.flush32 if single else mode.flush64:
            when = None
        else:
            return x
        if kind == "h16":
            subnormal = f.icmp("eq", f.and_(x, 0x7C00), 0)
            if when is not None:
                subnormal = f.and_(subnormal, f.splat(when, lanes(x.type)) if x.type[0] == "<" else when)
            return f.select(subnormal, f.and_(x, 0x8000), x)
        if kind != "f16":
            return flush(f, x, when)
        # An f16 in float is subnormal below 2^-14: scaled down so far, float's own subnormals are those.
        scaled = flush(f, f.binary("fmul", x, const(x.type, 2.0**-112)), when)
        return f.binary("fmul", scaled, const(x.type, 2.0**112))

    def raw(self, operand: Operand, width: int, kind: str, index: int) -> Value:
        """The bits of a source, per lane for vector instructions, after DPP and SDWA moved or selected them."""
        if self.semantic.scalar:
            return self.scalar_bits(operand, width, kind)
        state, f = self.state, self.f
        select = self.instruction.modifiers.get(f"src{index}_sel")
        if isinstance(select, str) and index >= 0:
            whole = self.lane_bits(operand, 32, kind, False)
            return f.cast("trunc", self.part_of(whole, select, operand.sext), vector(state.wave, f"i{width}"))
        high = operand.half == "h" or (width == 16 and not operand.half and bool(self.flag("op_sel", index)))
        if index < 0 and width == 16 and not operand.half:
            high = self.destination_high()
        return self.moved(operand, self.lane_bits(operand, width, kind, high), index)

    def moved(self, operand: Operand, value: Value, index: int) -> Value:
        """What DPP makes of a source."""
        if index != self.permuted or index < 0:
            return value
        if not isinstance(operand.base, Registers) or operand.base.file is not File.VGPR:
            raise self.unsupported("DPP of a scalar source")
        value, self.valid = dpp.permute(self.state, self.instruction, value)
        return value

    def lane_bits(self, operand: Operand, width: int, kind: str, high: bool) -> Value:
        base, state, f = operand.base, self.state, self.f
        if isinstance(base, Registers) and base.file in (File.VGPR, File.AGPR):
            row = state.row(base)
            if width == 64:
                return state.read_vgpr64(row)
            return state.read_half(row, high) if width == 16 else state.read_vgpr(row)
        if width == 16 and high and not isinstance(base, Number):
            word = f.lshr(self.scalar_bits(operand, 32, "u32"), 16)
            return f.splat(f.cast("trunc", word, "i16"), state.wave)
        return f.splat(self.scalar_bits(operand, width, kind), state.wave)

    def scalar_bits(self, operand: Operand, width: int, kind: str) -> Value:
        base, state, f = operand.base, self.state, self.f
        if isinstance(base, Number):
            return const(f"i{width}", number_bits(base, width, kind))
        if isinstance(base, Named) or (isinstance(base, Registers) and base.file in (File.SGPR, File.TTMP)):
            if width == 64:
                return state.read_scalar(base, 64)
            word = state.read_scalar(base, 32)
            return word if width == 32 else f.cast("trunc", word, f"i{width}")
        raise self.unsupported(f"operand {base}")

    def part_of(self, whole: Value, select: str, signed: bool) -> Value:
        """SDWA's selection of a byte or word."""
        f = self.f
        if select == "DWORD":
            return whole
        size, number = (8, int(select[-1])) if select.startswith("BYTE") else (16, int(select[-1]))
        at = size * number
        top = f.shl(whole, 32 - size - at)
        return f.ashr(top, 32 - size) if signed else f.lshr(top, 32 - size)

    def pair(self, operand: Operand, kind: str, index: int) -> Pair:
        """The halves that op_sel and op_sel_hi choose for the low and the high result."""
        half = HALVES[kind]
        low_from, high_from = self.flag("op_sel", index), self.flag("op_sel_hi", index, 1)
        negations = (self.flag("neg_lo", index), self.flag("neg_hi", index))
        if operand.abs or operand.neg:
            raise self.unsupported("a sign modifier of a packed operand")
        halves = self.pair_of_words(operand) if kind == "2f32" else self.pair_of_halves(operand, kind, index)
        plain = Operand(operand.base)
        chosen = (halves[low_from], halves[high_from])
        low, high = (self.typed(bits, half, plain, bool(n)) for bits, n in zip(chosen, negations, strict=True))
        return Pair(low, high)

    def pair_of_halves(self, operand: Operand, kind: str, index: int) -> tuple[Value, Value]:
        base = operand.base
        if isinstance(base, Number):
            if isinstance(base.value, float) and kind in ("2f16", "2h16", "2bf16"):
                word = number_bits(base, 16, kind)  # an inline float fills the low half only
            else:
                word = number_bits(base, 32, kind)
            type_ = vector(self.state.wave, "i16")
            return const(type_, word & 0xFFFF), const(type_, word >> 16)
        halves = (self.moved(operand, self.lane_bits(operand, 16, kind, high), index) for high in (False, True))
        return next(halves), next(halves)

    def pair_of_words(self, operand: Operand) -> tuple[Value, Value]:
        base, state = operand.base, self.state
        if not isinstance(base, Registers) or base.count != 2:
            raise self.unsupported("a packed f32 operand that is no register pair")
        if base.file in (File.VGPR, File.AGPR):
            return state.read_vgpr(state.row(base)), state.read_vgpr(state.row(base, 1))
        words = (state.read_sgpr(base.first), state.read_sgpr(base.first + 1))
        return self.f.splat(words[0], state.wave), self.f.splat(words[1], state.wave)

    def parts(self, operand: Operand, kind: str, index: int) -> list[Value]:
        """Bytes or nibbles as i32, low ones first."""
        f = self.f
        count, size = PARTS[kind]
        signed = kind[1] == "i" or (kind[1] == "x" and bool(self.flag("neg_lo", index)))
        whole = self.moved(operand, self.lane_bits(operand, 32, "u32", False), index)
        tops = [f.shl(whole, 32 - size * (i + 1)) for i in range(count)]
        return [f.ashr(top, 32 - size) if signed else f.lshr(top, 32 - size) for top in tops]

    # ---- results ------------------------------------------------------------------------------------------------------------------

    def join(self, low: Value, high: Value, kind: str) -> Value:
        """Two halves, with modifiers applied, as the bits of a register (or pair)."""
        f = self.f
        low, high = self.bits(low, HALVES[kind]), self.bits(high, HALVES[kind])
        wide, shift = ("i64", 32) if kind == "2f32" else ("i32", 16)
        to = like(low.type, wide)
        return f.or_(f.cast("zext", low, to), f.shl(f.cast("zext", high, to), shift))

    def bits(self, value: Value, kind: str) -> Value:
        """A result's bits: omod, clamp and rounding to the kind's width."""
        f = self.f
        modifiers = self.instruction.modifiers
        if kind in _FLOATS:
            if omod := modifiers.get("omod"):
                if kind == "h16":
                    raise self.unsupported("an output multiplier")
                value = f.binary("fmul", value, const(value.type, _OMOD[str(omod)]))
            if modifiers.get("clamp"):
                value = self.clamped16(value) if kind == "h16" else self.clamped(value)
        match kind:
            case "f16" | "bf16":
                if element(value.type) == "double":
                    value = narrow_to_odd(f, value)
                return float_to_half(f, self.flushed(value, kind)) if kind == "f16" else float_to_bfloat(f, value)
            case "f32" | "f64":
                return bits_of(f, self.flushed(value, kind))
            case _:
                return value

    def clamped(self, x: Value) -> Value:
        """To [0, 1]; NaN gives 0 under DX10_CLAMP, which hardware from gfx12 on always has."""
        f = self.f
        zero, one = const(x.type, 0.0), const(x.type, 1.0)
        inside = f.select(f.fcmp("ogt", x, zero), x, zero)
        inside = f.select(f.fcmp("olt", inside, one), inside, one)
        return inside if self.mode.dx10_clamp else f.select(f.fcmp("uno", x, x), x, inside)

    def clamped16(self, x: Value) -> Value:
        f = self.f
        above = f.select(f.icmp("sgt", x, 0x3C00), const(x.type, 0x3C00), x)
        nan = f.icmp("sgt", f.and_(x, 0x7FFF), 0x7C00)
        inside = f.select(f.icmp("slt", above, 0), const(x.type, 0), above)
        return f.select(nan, const(x.type, 0) if self.mode.dx10_clamp else x, inside)

    def write(self, results: Sequence[Value]) -> None:
        """Write what `evaluate` gave."""
        operands = iter(self.instruction.operands)
        for kind, value in zip(self.semantic.outputs, results, strict=True):
            if kind in IMPLIED_OUTPUTS:
                self.write_implied(kind, value)
            else:
                self.write_operand(next(operands), kind, value)

    def write_implied(self, kind: str, value: Value) -> None:
        state = self.state
        match kind:
            case "scc":
                state.write_scc(value)
            case "exec32":
                state.write_sgpr(EXEC, value)
            case "exec64":
                state.write_sgpr64(EXEC, value)
            case "m0":
                state.write_sgpr(M0, value)
            case _:
                state.write_mask_slot(EXEC, self.active_only(value))

    def active_only(self, mask: Value) -> Value:
        f, state = self.f, self.state
        if self.valid is not None:
            mask = f.and_(mask, self.valid)
        return mask if state.full_exec else f.and_(mask, state.exec())

    def write_operand(self, operand: Operand, kind: str, value: Value) -> None:
        state, f = self.state, self.f
        if kind == "mask":
            state.write_mask(operand.base, self.active_only(value))
            return
        if self.semantic.scalar or kind == "s32":
            bits = value if kind == "s32" else self.bits(value, kind)
            if bits.type not in ("i32", "i64"):
                bits = f.cast("zext", bits, "i32")
            state.write_scalar(operand.base, bits)
            return
        base = operand.base
        if not isinstance(base, Registers) or base.file not in (File.VGPR, File.AGPR):
            raise self.unsupported(f"destination {base}")
        row = state.row(base)
        if kind == "row":
            state.write_vgpr(row, value, masked=False)
            return
        high = kind == "f16hi"
        bits = value if kind in HALVES else self.bits(value, "f16" if high else kind)
        width = element(bits.type)
        if "dst_sel" in self.instruction.modifiers:
            bits, width = self.placed(row, bits), "i32"
        if width == "i16":
            self.write_half(row, high or operand.half == "h" or (not operand.half and self.destination_high()), bits, kind)
        elif width == "i64":
            self.write_row(row, f.cast("trunc", bits, state.lane_type))
            self.write_row(row + 1, f.cast("trunc", f.lshr(bits, 32), state.lane_type))
        else:
            self.write_row(row, bits)

    def destination_high(self) -> bool:
        """Whether op_sel's last bit, that of the destination, is set."""
        op_sel = self.numbers("op_sel")
        explicit = sum(kind not in IMPLIED_OUTPUTS for kind in self.semantic.outputs)
        count = len(self.instruction.operands) - explicit
        return len(op_sel) > count and bool(op_sel[count])

    def write_half(self, row: int, high: bool, bits: Value, kind: str) -> None:
        """A 16-bit result leaves the other half alone, but for CDNA's that zero the upper."""
        state, f = self.state, self.f
        wide = f.cast("zext", bits, state.lane_type)
        if self.generation is Generation.GFX9 and not high and kind != "f16hi" and not self.numbers("op_sel"):
            self.write_row(row, wide)
            return
        if self.valid is None:
            state.write_half(row, high, bits)
            return
        old = state.read_vgpr(row)
        new, kept = (f.shl(wide, 16), 0xFFFF) if high else (wide, 0xFFFF0000)
        self.write_row(row, f.or_(new, f.and_(old, kept)))

    def write_row(self, row: int, value: Value) -> None:
        if self.valid is not None:
            value = self.f.select(self.valid, value, self.state.read_vgpr(row))
        self.state.write_vgpr(row, value)

    def placed(self, row: int, bits: Value) -> Value:
        """SDWA's destination: a byte or word of the register, the rest zero, sign or kept."""
        f, state = self.f, self.state
        select = str(self.instruction.modifiers["dst_sel"])
        unused = str(self.instruction.modifiers.get("dst_unused", "UNUSED_PAD"))
        whole = f.cast("zext", bits, state.lane_type)
        if select == "DWORD":
            return whole
        size, number = (8, int(select[-1])) if select.startswith("BYTE") else (16, int(select[-1]))
        at, ones = size * number, (1 << size) - 1
        placed = f.shl(f.and_(whole, ones), at)
        if unused == "UNUSED_PRESERVE":
            return f.or_(placed, f.and_(state.read_vgpr(row), ~(ones << at)))
        if unused == "UNUSED_SEXT":
            return f.ashr(f.shl(whole, 32 - size), 32 - size - at)
        return placed
