"""Undefined elements in matrix instructions: an element of D is undefined where its C is, or anything in its row of A or column of B."""

from __future__ import annotations

from ....llvmtext import Value, vector
from ..instruction import Instruction, Operand, Registers
from ..matrix import TABLE, MatrixInstruction
from .shadow import ShadowState, any_bit, is_zero, zero


def propagate_matrix(shadow: ShadowState, instruction: Instruction, family: str) -> None:
    """Write the shadow of D. The instruction is one that `emit_matrix` takes."""
    row = TABLE[family, instruction.mnemonic, shadow.wave]
    d, a, b, c = instruction.operands
    assert isinstance(d.base, Registers)
    lines = _any_register(shadow, a), _any_register(shadow, b)
    first = shadow.row(d.base)
    f, wave = shadow.f, shadow.wave
    results: list[Value] = []
    for index in range(d.base.count):
        old = zero(shadow.lane_type)
        if isinstance(c.base, Registers):
            old = shadow.read_vgpr(shadow.row(c.base, index))
        wrong = _line(shadow, row, lines[0], index) if not is_zero(lines[0]) else lines[0]
        column = _columns(shadow, row, lines[1]) if not is_zero(lines[1]) else lines[1]
        if is_zero(wrong) and is_zero(column):
            results.append(old)
            continue
        either = column if is_zero(wrong) else wrong if is_zero(column) else f.or_(wrong, column)
        whole = f.cast("sext", either, vector(wave, "i32"))
        results.append(whole if is_zero(old) else f.or_(whole, old))
    for index, value in enumerate(results):
        if row.cd in ("f16", "bf16"):  # one half of each register is written, the other kept
            op_sel = instruction.modifiers.get("op_sel", ())
            high = isinstance(op_sel, tuple) and len(op_sel) > 2 and bool(op_sel[2])
            half = zero(vector(wave, "i16")) if is_zero(value) else f.cast("trunc", f.lshr(value, 16 * high), vector(wave, "i16"))
            shadow.write_half(first + index, high, half, masked=False)
        else:
            shadow.write_vgpr(first + index, value, masked=False)


def _any_register(shadow: ShadowState, operand: Operand) -> Value:
    """Per lane: whether any of an operand's registers has an undefined bit."""
    base = operand.base
    assert isinstance(base, Registers)
    parts = [shadow.read_vgpr(shadow.row(base, index)) for index in range(base.count)]
    parts = [part for part in parts if not is_zero(part)]
    if not parts:
        return zero(shadow.mask_type)
    whole = parts[0]
    for part in parts[1:]:
        whole = shadow.f.or_(whole, part)
    return any_bit(shadow, whole)


def _sources(row: MatrixInstruction, index: int, lane: int) -> list[int]:
    """The lanes that hold row or column `index` for a result in `lane`: one where each lane group has a copy, else one in each."""
    groups = {place for place, _ in (row.place(row.k, k) for k in range(row.depth))}
    group = lane // row.m * row.m if row.copied else 0
    return sorted(group + place + index for place in groups)


def _gather(shadow: ShadowState, flags: Value, sources: list[list[int]]) -> Value:
    """Per lane, whether the flag of any of its source lanes is set."""
    found: Value | None = None
    for which in range(len(sources[0])):
        moved = shadow.f.shuffle(flags, None, [lanes[which] for lanes in sources])
        found = moved if found is None else shadow.f.or_(found, moved)
    assert found is not None
    return found


def _line(shadow: ShadowState, row: MatrixInstruction, flags: Value, register: int) -> Value:
    """Per lane: whether the row of A that this register of D belongs to has something undefined. Registers of 16-bit results hold one row
    too, in one half."""
    rows: dict[int, int] = {}
    for index in range(row.m):
        lane, bit = row.place(row.rows, index)
        if bit // 32 == register:
            rows[lane // row.m] = index
    sources = [_sources(row, rows[lane // row.m], lane) for lane in range(shadow.wave)]
    return _gather(shadow, flags, sources)


def _columns(shadow: ShadowState, row: MatrixInstruction, flags: Value) -> Value:
    """Per lane: whether its column of B has something undefined."""
    return _gather(shadow, flags, [_sources(row, lane % row.m, lane) for lane in range(shadow.wave)])
