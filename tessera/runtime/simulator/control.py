"""Instructions that steer a wave: what ends a block, what has no effect on results, and the hardware registers.

Waits, cache control, priorities and scheduling hints change timing only, and are passed over outside the checking mode. Everything else
that isn't listed here is somebody else's, or unknown and refused.
"""

from __future__ import annotations

from ...llvmtext import const
from .helpers import Context
from .instruction import Instruction, Number
from .memory import Lifting
from .state import Field

_IGNORED_PREFIXES = (
    "s_wait",
    "s_dcache_",
    "s_gl1_",
    "s_icache_",
    "s_prefetch_",
    "buffer_gl0_",
    "buffer_gl1_",
    "buffer_wb",
    "buffer_inv",
    "global_wb",
    "global_inv",
)
_IGNORED = frozenset((
    "s_nop", "s_delay_alu", "s_clause", "s_setprio", "s_inst_prefetch", "s_set_inst_prefetch_distance", "s_wakeup", "s_ttracedata",
    "s_ttracedata_imm", "s_version", "s_barrier_signal", "v_nop",
))  # fmt: skip
_MODE, _SHADER_CYCLES = 1, 29  # hardware registers
_DEALLOC_VGPRS = 3
_RETURN_REALTIME = 0x83


def is_ignored(mnemonic: str) -> bool:
    """Whether an instruction has no effect on results."""
    return mnemonic in _IGNORED or mnemonic.startswith(_IGNORED_PREFIXES)


def ends_block(instruction: Instruction) -> bool | None:
    """None if the wave goes on with the next instruction in the same block; else whether the next instruction may follow at all."""
    name = instruction.mnemonic
    if name.startswith("s_cbranch_") or name in ("s_barrier", "s_barrier_wait", "s_sleep"):
        return True
    if name in ("s_branch", "s_endpgm", "s_endpgm_saved", "s_trap") or (name == "s_setpc_b64" and instruction.target is not None):
        return False
    return None


def trap_number(instruction: Instruction) -> int:
    """The number of s_trap; -1 for other ends."""
    base = instruction.operands[0].base if instruction.operands else None
    return int(base.value) if instruction.mnemonic == "s_trap" and isinstance(base, Number) else -1


def changes_denormals(instruction: Instruction) -> bool:
    """Whether an instruction may change the float mode."""
    return instruction.mnemonic in ("s_setreg_b32", "s_setreg_imm32_b32", "s_denorm_mode", "s_round_mode")


def emit_control(e: Lifting, instruction: Instruction) -> bool:
    """Lift an instruction that isn't a terminator. Returns False for those that are not control instructions."""
    name = instruction.mnemonic
    if is_ignored(name):
        return True
    f, state = e.f, e.state
    if name in ("s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_rfe_b64", "s_subvector_loop_begin", "s_subvector_loop_end"):
        raise e.refuse(instruction, "calls and computed jumps are not supported: kernels must be fully inlined")
    if name == "s_getpc_b64":
        base = f.load("i64", f.gep(e.g, int(Context.CODE_BASE)), 8)
        state.write_scalar(instruction.operands[0].base, f.add(base, instruction.next_pc))
    elif name in ("s_setreg_b32", "s_setreg_imm32_b32"):
        _set_register(e, instruction)
    elif name == "s_getreg_b32":
        _get_register(e, instruction)
    elif name == "s_denorm_mode":
        _set_mode(e, 4, 4, _immediate(instruction) & 15)
    elif name == "s_round_mode":
        if _immediate(instruction) & 15:
            raise e.refuse(instruction, "rounding modes other than to nearest even are not supported")
    elif name in ("s_sendmsg", "s_sendmsghalt"):
        if _immediate(instruction) != _DEALLOC_VGPRS:
            raise e.refuse(instruction, f"message {_immediate(instruction)} is not supported")
    elif name in ("s_memtime", "s_memrealtime") or (name == "s_sendmsg_rtn_b64" and _immediate(instruction, 1) == _RETURN_REALTIME):
        state.write_scalar(instruction.operands[0].base, f.call("llvm.readcyclecounter", "i64", []))
    else:
        return False
    return True


def _immediate(instruction: Instruction, index: int = 0) -> int:
    base = instruction.operands[index].base
    assert isinstance(base, Number)
    return int(base.value)


def _set_mode(e: Lifting, offset: int, size: int, value: int) -> None:
    f, place = e.f, e.state.field_pointer(Field.MODE)
    kept = ~(((1 << size) - 1) << offset)
    f.store(f.or_(f.and_(f.load("i32", place, 4), kept), value << offset), place, 4)


def _register(e: Lifting, instruction: Instruction, operand: int) -> tuple[int, int, int]:
    """(register, first bit, bits) of hwreg(...)."""
    code = _immediate(instruction, operand)
    return code & 63, code >> 6 & 31, (code >> 11 & 31) + 1


def _set_register(e: Lifting, instruction: Instruction) -> None:
    f = e.f
    register, offset, size = _register(e, instruction, 0)
    source = instruction.operands[1].base
    if register != _MODE:
        raise e.refuse(instruction, f"hardware register {register} is not supported; MODE (1) is")
    if offset + size > 8:
        raise e.refuse(instruction, "only the rounding and denormal bits of MODE (0 to 7) can be written")
    known = int(source.value) if isinstance(source, Number) else None
    if offset < 4 and (known is None or known & ((1 << min(size, 4 - offset)) - 1)):
        raise e.refuse(instruction, "rounding modes other than to nearest even are not supported")
    value = e.scalar(source)
    field = ((1 << size) - 1) << offset
    place = e.state.field_pointer(Field.MODE)
    new = f.and_(f.shl(value, const("i32", offset)), field)
    f.store(f.or_(f.and_(f.load("i32", place, 4), ~field), new), place, 4)


def _get_register(e: Lifting, instruction: Instruction) -> None:
    f = e.f
    register, offset, size = _register(e, instruction, 1)
    if register == _MODE:
        value = f.load("i32", e.state.field_pointer(Field.MODE), 4)
    elif register == _SHADER_CYCLES:
        value = f.cast("trunc", f.call("llvm.readcyclecounter", "i64", []), "i32")
    else:
        raise e.refuse(instruction, f"hardware register {register} is not supported; MODE (1) and SHADER_CYCLES (29) are")
    result = f.and_(f.lshr(value, const("i32", offset)), (1 << size) - 1)
    e.state.write_scalar(instruction.operands[0].base, result)
