"""Instructions that are no function of their operands' values: register-indirect moves and swaps.

They read and write the state block, where a register's number may be computed at run time. A number past the last register means register 0
of the move's file, as on hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tessera.errors import UnsupportedInstructionError
from tessera.llvmtext import Value, const

from .instruction import File, Instruction, Number, Registers
from .state import M0, VGPR_OFFSET, WaveState

Handler: TypeAlias = Callable[[WaveState, Instruction], None]

_SGPRS = range(106)  # those that a computed number can reach


def _unsupported(instruction: Instruction, what: str) -> UnsupportedInstructionError:
    text = instruction.text or instruction.mnemonic
    return UnsupportedInstructionError(f"the simulator does not support {what}: {text!r}", mnemonic=instruction.mnemonic, pc=instruction.pc)


def _registers(instruction: Instruction, index: int, file: File = File.VGPR) -> Registers:
    base = instruction.operands[index].base
    if not isinstance(base, Registers) or base.file is not file:
        raise _unsupported(instruction, f"operand {base}")
    return base


# ---- vector registers by a computed number ---------------------------------------------------------------------------------------


def _row(state: WaveState, first: int, offset: Value) -> Value:
    """The address of row first + offset, or of row 0 where there is no such row."""
    f = state.f
    number = f.add(offset, first)
    number = f.select(f.icmp("ult", number, state.vgprs), number, const("i32", 0))
    return f.gep(state.pointer, f.add(f.mul(number, 4 * state.wave), VGPR_OFFSET))


def _read_row(state: WaveState, first: int, offset: Value) -> Value:
    state.flush(range(state.vgprs))
    return state.f.load(state.lane_type, _row(state, first, offset), 64)


def _write_row(state: WaveState, first: int, offset: Value, value: Value) -> None:
    f, rows = state.f, range(state.vgprs)
    state.flush(rows)
    pointer = _row(state, first, offset)
    if not state.full_exec:
        value = f.select(state.exec(), value, f.load(state.lane_type, pointer, 64))
    f.store(value, pointer, 64)
    state.written_in_memory(rows, partly=True)


def _lane_source(state: WaveState, instruction: Instruction, index: int) -> Value:
    operand = instruction.operands[index]
    if isinstance(operand.base, Number):
        return const(state.lane_type, int(operand.base.value))
    if isinstance(operand.base, Registers) and operand.base.file is File.VGPR:
        return state.read_vgpr(state.row(operand.base))
    return state.f.splat(state.read_scalar(operand.base), state.wave)


def _halves_of_m0(state: WaveState) -> tuple[Value, Value]:
    """The offsets of source and destination: 10 bits each, the destination's from bit 16 on."""
    m0 = state.read_sgpr(M0)
    return state.f.and_(m0, 0x3FF), state.f.and_(state.f.lshr(m0, 16), 0x3FF)


def _move_from(state: WaveState, instruction: Instruction) -> None:
    value = _read_row(state, _registers(instruction, 1).first, state.read_sgpr(M0))
    state.write_vgpr(_registers(instruction, 0).first, value)


def _move_to(state: WaveState, instruction: Instruction) -> None:
    value = _lane_source(state, instruction, 1)
    _write_row(state, _registers(instruction, 0).first, state.read_sgpr(M0), value)


def _move_both(state: WaveState, instruction: Instruction) -> None:
    m0 = state.read_sgpr(M0)
    value = _read_row(state, _registers(instruction, 1).first, m0)
    _write_row(state, _registers(instruction, 0).first, m0, value)


def _move_both_apart(state: WaveState, instruction: Instruction) -> None:
    source, destination = _halves_of_m0(state)
    value = _read_row(state, _registers(instruction, 1).first, source)
    _write_row(state, _registers(instruction, 0).first, destination, value)


def _swap_relative(state: WaveState, instruction: Instruction) -> None:
    source, destination = _halves_of_m0(state)
    first, second = _registers(instruction, 0).first, _registers(instruction, 1).first
    x, y = _read_row(state, first, destination), _read_row(state, second, source)
    _write_row(state, first, destination, y)
    _write_row(state, second, source, x)


def _swap(state: WaveState, instruction: Instruction) -> None:
    rows = [state.row(_registers(instruction, i)) for i in (0, 1)]
    x, y = (state.read_vgpr(row) for row in rows)
    state.write_vgpr(rows[0], y)
    state.write_vgpr(rows[1], x)


def _swap_halves(state: WaveState, instruction: Instruction) -> None:
    places = [(state.row(_registers(instruction, i)), instruction.operands[i].half == "h") for i in (0, 1)]
    x, y = (state.read_half(*place) for place in places)
    state.write_half(*places[0], y)
    state.write_half(*places[1], x)


# ---- scalar registers by a computed number ---------------------------------------------------------------------------------------


def _slot(state: WaveState, first: int, count: int) -> Value:
    f = state.f
    number = f.add(state.read_sgpr(M0), first)
    number = f.select(f.icmp("ule", number, _SGPRS.stop - count), number, const("i32", 0))
    return f.gep(state.pointer, f.shl(number, 2))


def _scalar_from(state: WaveState, instruction: Instruction) -> None:
    source = _registers(instruction, 1, File.SGPR)
    type_ = "i64" if instruction.mnemonic.endswith("b64") else "i32"
    state.flush_scalars(_SGPRS)
    value = state.f.load(type_, _slot(state, source.first, source.count), 4)
    state.write_scalar(instruction.operands[0].base, value)


def _scalar_to(state: WaveState, instruction: Instruction) -> None:
    wide = instruction.mnemonic.endswith("b64")
    base = instruction.operands[1].base
    number = isinstance(base, Number)
    value = const("i64" if wide else "i32", int(base.value)) if number else state.read_scalar(base, 64 if wide else 32)
    target = _registers(instruction, 0, File.SGPR)
    state.flush_scalars(_SGPRS)
    state.f.store(value, _slot(state, target.first, target.count), 4)
    state.scalars_written_in_memory(_SGPRS)


HANDLERS: dict[str, Handler] = {
    "v_movrels_b32": _move_from,
    "v_movreld_b32": _move_to,
    "v_movrelsd_b32": _move_both,
    "v_movrelsd_2_b32": _move_both_apart,
    "v_swaprel_b32": _swap_relative,
    "v_swap_b32": _swap,
    "v_swap_b16": _swap_halves,
    "s_movrels_b32": _scalar_from,
    "s_movrels_b64": _scalar_from,
    "s_movreld_b32": _scalar_to,
    "s_movreld_b64": _scalar_to,
    "v_nop": lambda state, instruction: None,
    "v_pipeflush": lambda state, instruction: None,
}
