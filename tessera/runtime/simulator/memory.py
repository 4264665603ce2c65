"""Lifting memory instructions: operands to addresses, addresses to calls of the helpers in `accesses` and `atomics`.

Spellings of gfx9 and gfx10 (`global_load_dword`, `ds_read_b32`) are brought to those of gfx11 first. What isn't known raises
`UnsupportedInstructionError`; nothing is skipped.

Buffer descriptors (RDNA3 ISA, 9.3 and 9.5): the address of a lane is base + soffset + offset, where offset = stride·index + voffset +
immediate. Only `offset` is compared with NUM_RECORDS: soffset escapes the check. OOB_SELECT says how: 3 (raw) compares offset + size with
NUM_RECORDS; 0 (structured) index with NUM_RECORDS and the offset within the record with the stride; 1 only the index; 2 only asks whether
NUM_RECORDS is 0. Each dword is checked by itself, without wrapping; what is out of range reads as zero and is not written. Swizzled
descriptors are refused when they are used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ...errors import UnsupportedInstructionError
from ...llvmtext import Function, Module, Value, const, vector
from .accesses import LOADS, STORES, Access, checked
from .atomics import ATOMICS
from .helpers import Context, builds, helper_function, loop, stack
from .instruction import Base, Instruction, Named, Number, Operand, Registers
from .state import EXEC, PRIVATE_APERTURE, SHARED_APERTURE, Field, WaveState

# The upper bits of an address that stands for a swizzled descriptor: no buffer is there, and the fault is told apart by them.
SWIZZLED = 0x7D5C

_OLD_SUFFIX = {
    "dword": "b32", "dwordx2": "b64", "dwordx3": "b96", "dwordx4": "b128", "dwordx8": "b256", "dwordx16": "b512",
    "ubyte": "u8", "sbyte": "i8", "ushort": "u16", "sshort": "i16", "byte": "b8", "short": "b16",
    "ubyte_d16": "d16_u8", "ubyte_d16_hi": "d16_hi_u8", "sbyte_d16": "d16_i8", "sbyte_d16_hi": "d16_hi_i8",
    "short_d16": "d16_b16", "short_d16_hi": "d16_hi_b16", "byte_d16_hi": "d16_hi_b8",
    "u8_d16": "d16_u8", "u8_d16_hi": "d16_hi_u8", "i8_d16": "d16_i8", "i8_d16_hi": "d16_hi_i8",
    "u16_d16": "d16_b16", "u16_d16_hi": "d16_hi_b16", "b8_d16_hi": "d16_hi_b8", "b16_d16_hi": "d16_hi_b16",
}  # fmt: skip
_ATOMIC_NAME = {
    "add": "add", "sub": "sub", "smin": "min_i", "umin": "min_u", "smax": "max_i", "umax": "max_u", "and": "and", "or": "or", "xor": "xor",
    "swap": "swap", "cmpswap": "cmpswap", "inc": "inc", "dec": "dec", "fmin": "min_f", "fmax": "max_f",
}  # fmt: skip
_TYPED = re.compile(r"(\w+?)_([ubi])(32|64)")
_FLOAT_ATOMIC = re.compile(r"(add|min|max|min_num|max_num)_f(32|64)")
_PLAIN = re.compile(r"(global|flat|scratch|buffer|ds)_(load|store|read|write)_(\w+)")
_ATOMIC = re.compile(r"(global|flat|buffer)_atomic_(\w+)")
_SCALAR = re.compile(r"s_(buffer_)?load_(\w+)")
_SCALAR_SIZES = {"b32": 4, "b64": 8, "b96": 12, "b128": 16, "b256": 32, "b512": 64}
_IGNORED = frozenset(("offset", "offset0", "offset1", "glc", "slc", "dlc", "offen", "idxen", "sc0", "sc1", "nt", "scope", "th", "nv"))
# LDS atomics of gfx11 by the middle of their mnemonic; exchange and compare-and-store are apart.
_DS_ATOMIC = re.compile(r"ds_(add|sub|inc|dec|min|max|and|or|xor|storexchg|wrxchg|cmpstore|pk_add)(_rtn)?_(u|i|b|f|bf)(16|32|64)")


@dataclass
class Lifting:
    """What the lifting of one instruction has at hand. `g` is the thread's context; `observer` (or None) is told of accesses."""

    state: WaveState
    g: Value
    family: str
    arch: str
    observer: Any = None
    descriptors: dict[tuple[object, ...], Any] = field(default_factory=dict[tuple[object, ...], Any])

    @property
    def f(self) -> Function:
        return self.state.f

    def mask(self) -> Value:
        """The active lanes as an integer."""
        state = self.state
        if state.full_exec:
            return const(state.mask_bits, -1)
        return state.read_sgpr(EXEC) if state.wave == 32 else state.read_sgpr64(EXEC)

    def scalar(self, base: Base, bits: int = 32) -> Value:
        """An integer from an SGPR, a named register or a number."""
        if isinstance(base, Number):
            return const(f"i{bits}", int(base.value))
        if base is Named.OFF:
            return const(f"i{bits}", 0)
        return self.state.read_scalar(base, bits)

    def refuse(self, instruction: Instruction, why: str) -> UnsupportedInstructionError:
        return UnsupportedInstructionError(
            f"{instruction.mnemonic} at pc 0x{instruction.pc:x} on {self.arch}: {why}", mnemonic=instruction.mnemonic, pc=instruction.pc
        )


def canonical(mnemonic: str) -> str:
    """The gfx11 spelling of a memory mnemonic of any generation."""
    if match := _PLAIN.fullmatch(mnemonic):
        space, kind, rest = match.groups()
        kind = {"read": "load", "write": "store"}.get(kind, kind)
        rest = rest.replace("read", "load").replace("read2", "load_2addr")
        return f"{space}_{kind}_{_OLD_SUFFIX.get(rest, rest)}"
    if match := re.fullmatch(r"ds_(read2|write2)(st64)?_(b32|b64)", mnemonic):
        kind = "load" if match[1] == "read2" else "store"
        return f"ds_{kind}_2addr_{'stride64_' if match[2] else ''}{match[3]}"
    if match := _SCALAR.fullmatch(mnemonic):
        return f"s_{match[1] or ''}load_{_OLD_SUFFIX.get(match[2], match[2])}"
    return mnemonic


def is_memory(mnemonic: str) -> bool:
    """Whether `emit_memory` is responsible for a mnemonic (which it may still refuse)."""
    return mnemonic.startswith(("global_", "flat_", "scratch_", "buffer_", "tbuffer_", "ds_", "s_load_", "s_buffer_load_", "image_"))


def emit_memory(e: Lifting, instruction: Instruction) -> None:
    """Lift a memory instruction. Raises UnsupportedInstructionError."""
    name = canonical(instruction.mnemonic)
    unknown = set(instruction.modifiers) - _IGNORED
    if unknown:
        raise e.refuse(instruction, f"unknown modifiers {', '.join(sorted(unknown))}")
    if match := _SCALAR.fullmatch(name):
        _scalar_load(e, instruction, bool(match[1]), match[2])
    elif name.startswith("ds_"):
        _lds(e, instruction, name)
    elif match := _PLAIN.fullmatch(name):
        space, kind, op = match.groups()
        table = LOADS if kind == "load" else STORES
        if op not in table:
            raise e.refuse(instruction, "the simulator doesn't know this memory instruction")
        operands = instruction.operands
        # Loads name the data first, stores second; buffer instructions always first.
        data, address = (operands[0], operands[1:]) if kind == "load" or space == "buffer" else (operands[1], (operands[0], *operands[2:]))
        _move(e, instruction, space, kind, op, data, address)
    elif match := _ATOMIC.fullmatch(name):
        _atomic(e, instruction, match[1], match[2])
    else:
        raise e.refuse(instruction, "the simulator doesn't know this memory instruction")


# ---- addresses ------------------------------------------------------------------------------------------------------------------------


def _offset(instruction: Instruction, name: str = "offset") -> int:
    value = instruction.modifiers.get(name, 0)
    assert isinstance(value, int)
    return int(value)


@dataclass(frozen=True)
class Place:
    """The lanes' addresses in one form of `accesses`, and the lanes that they hold for."""

    form: str
    arguments: tuple[Value, ...]
    mask: Value


def _global(e: Lifting, instruction: Instruction, address: tuple[Operand, ...]) -> Place:
    """`vaddr, saddr` with a signed immediate: a 64-bit address a lane, or a scalar base and an unsigned 32-bit offset a lane."""
    state, f = e.state, e.f
    vaddr = address[0].base
    saddr = address[1].base if len(address) > 1 else Named.OFF
    offset = _offset(instruction)
    if saddr in (Named.OFF, Named.NULL):
        if not isinstance(vaddr, Registers):
            raise e.refuse(instruction, "it has no address")
        wide = state.read_vgpr64(state.row(vaddr))
        return Place("vector", (f.add(wide, const(wide.type, offset)),), e.mask())
    base = f.add(e.scalar(saddr, 64), offset)
    lanes = state.read_vgpr(state.row(vaddr)) if isinstance(vaddr, Registers) else const(state.lane_type, 0)
    return Place("scalar", (base, lanes), e.mask())


def _flat(e: Lifting, instruction: Instruction, address: tuple[Operand, ...]) -> list[Place]:
    """Global, LDS and scratch, told apart by the upper half of the address."""
    state, f = e.state, e.f
    place = _global(e, instruction, address)
    if place.form != "vector":
        raise e.refuse(instruction, "flat addressing with a scalar base")
    addresses = place.arguments[0]
    high = f.cast("trunc", f.lshr(addresses, 32), state.lane_type)
    low = f.cast("trunc", addresses, state.lane_type)
    shared = f.bitcast(f.icmp("eq", high, SHARED_APERTURE), state.mask_bits)
    private = f.bitcast(f.icmp("eq", high, PRIVATE_APERTURE), state.mask_bits)
    rest = f.and_(place.mask, f.not_(f.or_(shared, private)))
    return [
        Place("vector", place.arguments, rest),
        Place("lds", (low, const("i32", 0)), f.and_(place.mask, shared)),
        Place("scratch", (_scratch_base(e), low), f.and_(place.mask, private)),
    ]


def _scratch_base(e: Lifting) -> Value:
    return e.f.load("i64", e.state.field_pointer(Field.SCRATCH), 8)


def _scratch(e: Lifting, instruction: Instruction, address: tuple[Operand, ...]) -> Place:
    """`vaddr|off, saddr|off` with a signed immediate, all added."""
    state, f = e.state, e.f
    lanes = const(state.lane_type, _offset(instruction))
    for operand in address:
        if isinstance(operand.base, Registers) and operand.base.file.value in ("v", "a"):
            lanes = f.add(lanes, state.read_vgpr(state.row(operand.base)))
        elif operand.base not in (Named.OFF, Named.NULL):
            lanes = f.add(lanes, f.splat(e.scalar(operand.base), state.wave))
    return Place("scratch", (_scratch_base(e), lanes), e.mask())


@dataclass(frozen=True)
class _Descriptor:
    """What is computed from a descriptor: `limit` is what offsets are compared with where there is no index (gfx10 and later)."""

    base: Value
    stride: Value
    records: Value
    flags: Value
    limit: Value


def _descriptor(e: Lifting, srsrc: Registers) -> _Descriptor:
    """Computed once a block for the same values of the four SGPRs."""
    f = e.f
    words = [e.scalar(Registers(srsrc.file, srsrc.first + i)) for i in range(4)]
    key = (id(e.state.use), *(word.text for word in words))
    if (known := e.descriptors.get(key)) is not None:
        return known
    base = f.or_(f.cast("zext", words[0], "i64"), f.shl(f.cast("zext", f.and_(words[1], 0xFFFF), "i64"), 32))
    base = f.select(f.icmp("ne", f.lshr(words[1], 30), 0), const("i64", SWIZZLED << 48), base)
    stride, records = f.and_(f.lshr(words[1], 16), 0x3FFF), words[2]
    select = f.and_(f.lshr(words[3], 28), 3)
    unchecked = f.select(f.icmp("eq", select, 0), stride, const("i32", -1))
    limit = f.select(f.icmp("eq", select, 3), records, f.select(f.icmp("eq", records, 0), const("i32", 0), unchecked))
    found = e.descriptors[key] = _Descriptor(base, stride, records, words[3], limit)
    return found


def _buffer(e: Lifting, instruction: Instruction, address: tuple[Operand, ...]) -> Place:
    """`vaddr|off, srsrc, soffset` with an unsigned immediate."""
    state, f = e.state, e.f
    vaddr, srsrc, soffset = (operand.base for operand in address)
    if not isinstance(srsrc, Registers) or srsrc.count != 4:
        raise e.refuse(instruction, "its descriptor isn't four SGPRs")
    d = _descriptor(e, srsrc)
    soffset_value = f.cast("zext", e.scalar(soffset), "i64")
    base, stride, records = f.add(d.base, soffset_value), d.stride, d.records

    registers = [state.row(vaddr, i) for i in range(vaddr.count)] if isinstance(vaddr, Registers) else []
    index = state.read_vgpr(registers.pop(0)) if instruction.modifiers.get("idxen") and registers else None
    inside = const(state.lane_type, _offset(instruction))  # offset within the record
    if instruction.modifiers.get("offen"):
        inside = f.intrinsic("uadd.sat", [inside, state.read_vgpr(registers.pop(0))])
    offset = inside
    if index is not None:
        wide = vector(state.wave, "i64")
        product = f.mul(f.cast("zext", index, wide), f.splat(f.cast("zext", stride, "i64"), state.wave))
        whole = f.intrinsic("umin", [f.add(product, f.cast("zext", inside, wide)), const(wide, 0xFFFFFFFF)])
        offset = f.cast("trunc", whole, state.lane_type)
    check, limit = offset, records
    if e.family in ("gfx9", "gfx90a"):
        # There soffset does count, in raw buffers; records are counted where there is a stride.
        raw = f.intrinsic("usub.sat", [records, f.cast("trunc", soffset_value, "i32")])
        limit = f.select(f.icmp("eq", stride, 0), raw, f.mul(records, stride))
        return Place("buffer", (base, offset, check, limit), e.mask())
    if index is None:
        return Place("buffer", (base, offset, check, d.limit), e.mask())
    everything, select = const("i32", -1), f.and_(f.lshr(d.flags, 28), 3)
    raw, structured = f.icmp("eq", select, 3), f.icmp("eq", select, 0)
    by_index = f.icmp("ult", select, 2)
    beyond = f.icmp("uge", index, f.splat(records, state.wave))
    beyond = f.and_(beyond, f.splat(by_index, state.wave))
    in_record = f.select(f.splat(structured, state.wave), inside, const(state.lane_type, 0))
    check = f.select(f.splat(raw, state.wave), offset, f.select(beyond, const(state.lane_type, -1), in_record))
    empty = f.and_(f.icmp("eq", select, 2), f.icmp("eq", records, 0))
    limit = f.select(raw, records, f.select(empty, const("i32", 0), f.select(structured, stride, everything)))
    return Place("buffer", (base, offset, check, limit), e.mask())


def _places(e: Lifting, instruction: Instruction, space: str, address: tuple[Operand, ...]) -> list[Place]:
    if space == "flat":
        return _flat(e, instruction, address)
    return [{"global": _global, "scratch": _scratch, "buffer": _buffer}[space](e, instruction, address)]


# ---- loads and stores ----------------------------------------------------------------------------------------------------------------


def _move(e: Lifting, instruction: Instruction, space: str, kind: str, op: str, data: Operand, address: tuple[Operand, ...]) -> None:
    _transfer(e, instruction, kind, op, data, 0, _places(e, instruction, space, address))


def _transfer(e: Lifting, instruction: Instruction, kind: str, op: str, data: Operand, skip: int, places: list[Place]) -> None:
    """Call the helpers for one move of data between memory and the registers of `data` from its `skip`-th on."""
    state, f = e.state, e.f
    if not isinstance(data.base, Registers):
        raise e.refuse(instruction, "its data isn't in vector registers")
    op = _true16(op, data.half, kind)
    access = (LOADS if kind == "load" else STORES)[op]
    first = state.row(data.base, skip)
    rows = range(first, first + access.dwords)
    partly = kind == "load" and (not state.full_exec or bool(access.half) or len(places) > 1)
    if kind == "store" or partly:
        state.flush(rows)
    for place in places:
        _tell(e, instruction, place, access, kind == "store")
    state.forget_clean()
    for place in places:
        operands = [e.g, state.row_pointer(first), *place.arguments, place.mask, const("i32", instruction.pc)]
        f.call(f"sim.{kind}.{place.form}.{op}.{state.wave}", "void", operands)
    if kind == "load":
        state.written_in_memory(rows, partly=partly)


def _true16(op: str, half: str, kind: str) -> str:
    """The operation on the half that a true16 operand names (`v1.h`)."""
    if not half:
        return op
    high = half == "h"
    if kind == "store":
        return {"b8": "d16_hi_b8", "b16": "d16_hi_b16"}.get(op, op) if high else op
    return op.replace("d16_", "d16_hi_") if high and "_hi_" not in op else op


def _tell(e: Lifting, instruction: Instruction, place: Place, access: Access, write: bool, atomic: bool = False) -> None:
    if e.observer is not None:
        report = e.observer.on_lds_access if place.form == "lds" else e.observer.on_global_access
        report(e, instruction, place, access, write, atomic)


def _lds(e: Lifting, instruction: Instruction, name: str) -> None:
    operands = instruction.operands
    if instruction.modifiers.get("gds"):
        raise e.refuse(instruction, "global data share")
    if match := re.fullmatch(r"ds_(load|store)_2addr_(stride64_)?(b32|b64)", name):
        kind, op = match[1], match[3]
        access = LOADS[op]
        unit = access.size * (64 if match[2] else 1)
        address = operands[1] if kind == "load" else operands[0]
        lanes = _lds_address(e, instruction, address)
        for which in (0, 1):
            place = Place("lds", (lanes, const("i32", unit * _offset(instruction, f"offset{which}"))), e.mask())
            data, skip = (operands[0], which * access.dwords) if kind == "load" else (operands[1 + which], 0)
            _transfer(e, instruction, kind, op, data, skip, [place])
    elif (match := _PLAIN.fullmatch(name)) and match[3] in (LOADS if match[2] == "load" else STORES):
        kind = match[2]
        data, address = (operands[0], operands[1]) if kind == "load" else (operands[1], operands[0])
        place = Place("lds", (_lds_address(e, instruction, address), const("i32", _offset(instruction))), e.mask())
        _transfer(e, instruction, kind, match[3], data, 0, [place])
    elif name in ("ds_bpermute_b32", "ds_permute_b32"):
        _permute(e, instruction, name[3:-4])
    elif name == "ds_swizzle_b32":
        _swizzle(e, instruction)
    elif match := _DS_ATOMIC.fullmatch(name):
        _lds_atomic(e, instruction, match)
    elif name != "ds_nop":
        raise e.refuse(instruction, "the simulator doesn't know this LDS instruction")


def _lds_address(e: Lifting, instruction: Instruction, operand: Operand) -> Value:
    if not isinstance(operand.base, Registers):
        raise e.refuse(instruction, "its address isn't a vector register")
    return e.state.read_vgpr(e.state.row(operand.base))


# ---- lane exchange --------------------------------------------------------------------------------------------------------------------


def _permute(e: Lifting, instruction: Instruction, kind: str) -> None:
    """ds_permute and ds_bpermute reach over the whole wave, except in wave64 of RDNA: over 32 lanes each."""
    state, f = e.state, e.f
    target, address, data = (operand.base for operand in instruction.operands[:3])
    if not (isinstance(target, Registers) and isinstance(address, Registers) and isinstance(data, Registers)):
        raise e.refuse(instruction, "its operands aren't vector registers")
    lanes = f.add(state.read_vgpr(state.row(address)), const(state.lane_type, _offset(instruction)))
    values = state.read_vgpr(state.row(data))
    row = state.row(target)
    if not state.full_exec:
        state.flush([row])
    state.forget_clean()
    group = 64 if state.wave == 64 and e.family in ("gfx9", "gfx90a") else 32
    f.call(f"sim.{kind}.{state.wave}.{group}", "void", [state.row_pointer(row), lanes, values, e.mask()])
    state.written_in_memory([row], partly=not state.full_exec)


def swizzle_sources(pattern: int) -> list[int]:
    """The source lane of each of 32 lanes for the 16-bit pattern of ds_swizzle_b32 (RDNA3 ISA, "DS_SWIZZLE_B32")."""
    if pattern >= 0xE000:
        raise ValueError("FFT mode")
    if pattern >= 0xC000:  # rotation, within groups that the mask keeps apart
        keep, amount, left = pattern & 0x1F, pattern >> 5 & 0x1F, not pattern >> 10 & 1
        return [(i & keep) | ((i + (amount if left else -amount)) & ~keep & 0x1F) for i in range(32)]
    if pattern & 0x8000:
        return [(i & ~3) | (pattern >> 2 * (i & 3) & 3) for i in range(32)]
    and_mask, or_mask, xor_mask = pattern & 0x1F, pattern >> 5 & 0x1F, pattern >> 10 & 0x1F
    return [((i & and_mask) | or_mask) ^ xor_mask for i in range(32)]


def _swizzle(e: Lifting, instruction: Instruction) -> None:
    state, f = e.state, e.f
    target, data = (operand.base for operand in instruction.operands[:2])
    if not (isinstance(target, Registers) and isinstance(data, Registers)):
        raise e.refuse(instruction, "its operands aren't vector registers")
    try:
        sources = swizzle_sources(instruction.words[0] & 0xFFFF)
    except ValueError as error:
        raise e.refuse(instruction, f"its {error} is not supported") from None
    order = [base + source for base in range(0, state.wave, 32) for source in sources]
    values = state.read_vgpr(state.row(data))
    if not state.full_exec:
        values = f.select(state.exec(), values, const(state.lane_type, 0))
    state.write_vgpr(state.row(target), f.shuffle(values, None, order))


# ---- atomics --------------------------------------------------------------------------------------------------------------------------


def _atomic_op(name: str) -> str | None:
    """The key in ATOMICS of what follows `global_atomic_`."""
    if name in ATOMICS:
        return name
    if match := _FLOAT_ATOMIC.fullmatch(name):
        return f"{match[1].removesuffix('_num')}_f{match[2]}"
    if match := _TYPED.fullmatch(name):
        operation, kind, size = match.groups()
        key = f"{operation}_{kind}{size}" if operation in ("min", "max") else f"{operation}{size}"
        return key if key in ATOMICS else None
    wide = name.endswith("_x2")
    operation = _ATOMIC_NAME.get(name.removesuffix("_x2"))
    key = f"{operation}{64 if wide else 32}"
    return key if key in ATOMICS else None


def _atomic(e: Lifting, instruction: Instruction, space: str, name: str) -> None:
    op = _atomic_op(name)
    if op is None:
        raise e.refuse(instruction, "the simulator doesn't know this atomic")
    operands = instruction.operands
    if space == "buffer":
        wants_old = bool(instruction.modifiers.get("glc") or instruction.modifiers.get("sc0") or _returns(instruction))
        result, data, address = (operands[0] if wants_old else None), operands[0], operands[1:]
    else:
        # vdst, vaddr, vdata, saddr with the old value, vaddr, vdata, saddr without. Flat instructions have no saddr.
        wants_old = len(operands) == (3 if space == "flat" else 4)
        result = operands[0] if wants_old else None
        rest = operands[1:] if wants_old else operands
        data, address = rest[1], (rest[0], *rest[2:])
    _do_atomic(e, instruction, op, result, [data], _places(e, instruction, space, address))


def _returns(instruction: Instruction) -> bool:
    """gfx12 says so by a temporal hint."""
    return "RETURN" in str(instruction.modifiers.get("th", ""))


def _do_atomic(e: Lifting, instruction: Instruction, op: str, result: Operand | None, data: list[Operand], places: list[Place]) -> None:
    """Call the helper. `data` are the operand's registers: one range, or two of LDS instructions, which are put together first."""
    state, f = e.state, e.f
    atomic = ATOMICS[op]
    dwords = 2 if atomic.type_ in ("i64", "double") else 1
    count = dwords * (1 if atomic.rmw else 2)
    if any(place.form == "scratch" for place in places):
        places = [place for place in places if place.form != "scratch"]  # nobody else sees scratch; such addresses fault as global ones
        places[0] = Place("vector", places[0].arguments, f.and_(e.mask(), f.not_(places[1].mask)))
    registers = [operand.base for operand in data]
    if not all(isinstance(base, Registers) for base in registers):
        raise e.refuse(instruction, "its data isn't in vector registers")
    sources = [state.row(base, i) for base in registers if isinstance(base, Registers) for i in range(dwords if len(data) > 1 else count)]
    if sources == list(range(sources[0], sources[0] + count)):
        state.flush(sources)
        pointer = state.row_pointer(sources[0])
    else:
        pointer = stack(f, f"[{count} x {state.lane_type}]")
        for index, row in enumerate(sources):
            f.store(state.read_vgpr(row), f.gep(pointer, 4 * state.wave * index), 64)
    target, rows = Value("ptr", "null"), range(0)
    partly = not state.full_exec or len(places) > 1
    if result is not None:
        if not isinstance(result.base, Registers):
            raise e.refuse(instruction, "its result isn't a vector register")
        first = state.row(result.base)
        rows = range(first, first + dwords)
        if partly:
            state.flush(rows)
        target = state.row_pointer(first)
    for place in places:
        _tell(e, instruction, place, Access(4 * dwords, dwords), write=True, atomic=True)
    state.forget_clean()
    for place in places:
        operands = [e.g, target, pointer, *place.arguments, place.mask, const("i32", instruction.pc)]
        f.call(f"sim.atomic.{place.form}.{op}.{state.wave}", "void", operands)
    state.written_in_memory(rows, partly=partly)


def _lds_atomic(e: Lifting, instruction: Instruction, match: re.Match[str]) -> None:
    operation, returning, kind, size = match.groups()
    operands = list(instruction.operands)
    result = operands.pop(0) if returning else None
    address, data = operands[0], operands[1:]
    if operation in ("storexchg", "wrxchg"):
        op = f"swap{size}"
    elif operation == "cmpstore":
        op = f"cmpswap{size}"
    elif kind in ("f", "bf"):
        op = f"{operation}_{kind}{size}"
    else:
        op = f"{operation}_{kind}{size}" if operation in ("min", "max") else f"{operation}{size}"
    if op not in ATOMICS:
        raise e.refuse(instruction, "the simulator doesn't know this LDS atomic")
    place = Place("lds", (_lds_address(e, instruction, address), const("i32", _offset(instruction))), e.mask())
    _do_atomic(e, instruction, op, result, data, [place])


# ---- scalar loads ------------------------------------------------------------------------------------------------------------------------


@builds("scalar")
def build_scalar(module: Module, name: str) -> None:
    """`ptr sim.scalar.<bytes>(g, address, pc)`: where to read; zeros after a fault."""
    f = helper_function(module, name, "ptr", [("ptr", "g"), ("i64", "address"), ("i32", "pc")])
    g, address, pc = f.arguments
    good = checked(f, g, address, int(name.split(".")[2]), False, const("i64", 0), pc)
    f.ret(f.select(good, f.emit("ptr", f"inttoptr {address} to ptr"), f.gep(g, int(Context.ZEROS))))


@builds("scalar_buffer")
def build_scalar_buffer(module: Module, name: str) -> None:
    """`ptr sim.scalar_buffer.<bytes>(g, base, offset, limit, pc)`: a copy of the dwords; those past the limit are zero."""
    f = helper_function(module, name, "ptr", [("ptr", "g"), ("i64", "base"), ("i64", "offset"), ("i64", "limit"), ("i32", "pc")])
    g, base, offset, limit, pc = f.arguments
    copy = f.gep(g, int(Context.TEMP))
    with loop(f, 0, const("i64", int(name.split(".")[2])), 4) as at:
        here = f.add(offset, at)
        inside, beyond, join = f.label("inside"), f.label("beyond"), f.label("next")
        f.branch_if(f.icmp("ule", f.add(here, 4), limit), inside, beyond)
        f.position(inside)
        address = f.add(base, here)
        good = checked(f, g, address, 4, False, const("i64", 0), pc)
        source = f.select(good, f.emit("ptr", f"inttoptr {address} to ptr"), f.gep(g, int(Context.ZEROS)))
        f.store(f.load("i32", source, 4), f.gep(copy, at), 4)
        f.branch(join)
        f.position(beyond)
        f.store(const("i32", 0), f.gep(copy, at), 4)
        f.branch(join)
        f.position(join)
    f.ret(copy)


def _scalar_load(e: Lifting, instruction: Instruction, is_buffer: bool, op: str) -> None:
    state, f = e.state, e.f
    if op not in _SCALAR_SIZES:
        raise e.refuse(instruction, "the simulator doesn't know this scalar load")
    target, base, *rest = (operand.base for operand in instruction.operands)
    size = _SCALAR_SIZES[op]
    offset = const("i64", _offset(instruction))
    for each in rest:
        if isinstance(each, Number):
            offset = f.add(offset, int(each.value))
        elif each not in (Named.NULL, Named.OFF):
            offset = f.add(offset, f.cast("zext", e.scalar(each), "i64"))
    pc = const("i32", instruction.pc)
    if is_buffer:
        if not isinstance(base, Registers) or base.count != 4:
            raise e.refuse(instruction, "its descriptor isn't four SGPRs")
        words = [e.scalar(Registers(base.file, base.first + i)) for i in range(4)]
        start = f.or_(f.cast("zext", words[0], "i64"), f.shl(f.cast("zext", f.and_(words[1], 0xFFFF), "i64"), 32))
        stride = f.and_(f.lshr(words[1], 16), 0x3FFF)
        unit = f.select(f.icmp("eq", stride, 0), const("i32", 1), stride)
        limit = f.mul(f.cast("zext", words[2], "i64"), f.cast("zext", unit, "i64"))
        pointer = f.call(f"sim.scalar_buffer.{size}", "ptr", [e.g, start, f.and_(offset, -4), limit, pc])
    else:
        address = f.and_(f.add(e.scalar(base, 64), offset), -4)
        if e.observer is not None:
            e.observer.on_scalar_access(e, instruction, address, size)
        pointer = f.call(f"sim.scalar.{size}", "ptr", [e.g, address, pc])
    state.forget_clean()
    values = [f.load("i32", f.gep(pointer, 4 * i), 4) for i in range(size // 4)]
    if isinstance(target, Registers):
        for i, value in enumerate(values):
            state.write_scalar(Registers(target.file, target.first + i), value)
    elif target in (Named.VCC, Named.VCC_LO, Named.VCC_HI, Named.M0):
        slot = state.mask_slot(target)
        assert slot is not None
        for i, value in enumerate(values):
            state.write_sgpr(slot + i, value)
    elif target is not Named.NULL:
        raise e.refuse(instruction, "its destination isn't a scalar register")


assert set(_OLD_SUFFIX.values()) <= set(LOADS) | set(STORES) | set(_SCALAR_SIZES)
