"""Data-parallel primitives: a modifier that lets a vector instruction read its first source from another lane."""

from __future__ import annotations

from tessera.errors import UnsupportedInstructionError
from tessera.llvmtext import Value, const, lanes, vector_const

from .instruction import Instruction
from .state import WaveState

_CONTROLS = (
    "quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_share", "row_newbcast", "row_xmask", "row_bcast",
    "wave_shl", "wave_shr", "wave_rol", "wave_ror", "dpp8",
)  # fmt: skip


def is_permuted(instruction: Instruction) -> bool:
    """Whether the instruction has a DPP control."""
    return "dpp" in instruction.suffix or any(key in instruction.modifiers for key in _CONTROLS)


def source_lane(control: str, value: int | tuple[int, ...], lane: int, wave: int) -> int:
    """The lane that `lane` reads, or -1 where that is outside. `value` is the control's argument.

    Rows are 16 lanes, banks and quads 4. "shl" reads from higher lanes, "shr" from lower ones: data moves to lower and to higher lanes.
    """
    row, at = lane & ~15, lane & 15
    if isinstance(value, tuple):
        return (lane & ~3) + value[lane & 3] if control == "quad_perm" else (lane & ~7) + value[lane & 7]
    match control:
        case "row_shl":
            return lane + value if at + value < 16 else -1
        case "row_shr":
            return lane - value if at >= value else -1
        case "row_ror":
            return row + (at - value) % 16
        case "row_mirror":
            return row + 15 - at
        case "row_half_mirror":
            return (lane & ~7) + 7 - (lane & 7)
        case "row_share" | "row_newbcast":
            return row + value
        case "row_xmask":
            return row + (at ^ value)
        case "row_bcast":  # the last lane of a row (15) or of two (31) into the next
            below = row - 1 if value == 15 else (lane & ~31) - 1
            return below if below >= 0 and (value == 31 or lane >= 16) else -1
        case "wave_shl":
            return lane + 1 if lane + 1 < wave else -1
        case "wave_shr":
            return lane - 1
        case "wave_rol":
            return (lane + 1) % wave
        case "wave_ror":
            return (lane - 1) % wave
        case _:
            raise ValueError(f"no DPP control {control!r}")


def permute(state: WaveState, instruction: Instruction, value: Value) -> tuple[Value, Value | None]:
    """The source moved, and which lanes the instruction may write (None: all).

    A lane whose source lies outside its row, or is inactive and `fi` unset, reads zero under bound_ctrl and is not written without;
    under dpp8 it reads zero. Lanes outside row_mask and bank_mask are not written.
    """
    f, wave, modifiers = state.f, state.wave, instruction.modifiers
    control = next((key for key in _CONTROLS if key in modifiers), None)
    if control is None:
        raise UnsupportedInstructionError(
            f"the simulator does not know the DPP control of {instruction.text!r}", mnemonic=instruction.mnemonic, pc=instruction.pc
        )
    argument = modifiers[control]
    if isinstance(argument, str):
        raise UnsupportedInstructionError(f"DPP control {control}:{argument}", mnemonic=instruction.mnemonic, pc=instruction.pc)
    sources = [source_lane(control, argument, lane, wave) for lane in range(wave)]
    moved = f.shuffle(value, None, [s if s >= 0 else lane for lane, s in enumerate(sources)])
    valid: Value | None = None
    if any(s < 0 for s in sources):
        valid = vector_const("i1", [s >= 0 for s in sources])
    if not modifiers.get("fi") and not state.full_exec:
        active = f.shuffle(state.exec(), None, [s if s >= 0 else lane for lane, s in enumerate(sources)])
        valid = active if valid is None else f.and_(valid, active)
    writable: Value | None = None
    if valid is not None:
        if control == "dpp8" or modifiers.get("bound_ctrl"):
            moved = f.select(valid, moved, const(value.type, 0))
        else:
            writable = valid
    row_mask, bank_mask = int(str(modifiers.get("row_mask", 15))), int(str(modifiers.get("bank_mask", 15)))
    if row_mask != 15 or bank_mask != 15:
        named = vector_const("i1", [row_mask >> (lane >> 4) & 1 & bank_mask >> (lane >> 2 & 3) for lane in range(lanes(value.type))])
        writable = named if writable is None else f.and_(writable, named)
    return moved, writable
