"""The registers of one wave, as the lifted code sees them.

Between blocks every register lives in memory, in the wave's *state block*; inside a block a register that was read or written is an SSA
value that Python remembers (`WaveState`), so that straight-line code touches memory once per register. Registers kept in memory between
blocks compile several times faster than SSA registers with phis, and a resume point needs nothing saved but its number.

What a block reads before it writes, and what it writes, is observed while its code is built; the lifter turns that into liveness, and
only registers that some later block may read are stored at a block's end (`store_dirty`).

State block, offsets in bytes:

    0      SGPR file, 128 x i32: s0-s105, VCC at 106, TTMP at 108, M0 at 124, EXEC at 126
    512    SCC (i32), then the fields of `Field`
    1024   VGPRs, one row of `wave` i32 each; AGPRs follow

A mask over the lanes (VCC, EXEC, the result of a compare) is one SGPR in wave32 and an aligned pair in wave64. It is remembered both as
`<W x i1>` and as an integer; whichever was written is the truth and the other is derived when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from tessera.llvmtext import Function, Value, const, vector

from .instruction import Base, File, Named, Registers

VCC, TTMP, M0, EXEC = 106, 108, 124, 126
SCC = 128  # the key of SCC among the scalar registers
VGPR_OFFSET = 1024
VGPR_KEY = 1024  # keys of vector registers in use and definition sets: VGPR_KEY + row

# The high halves of the addresses by which flat instructions reach LDS and scratch. No host maps user memory there.
SHARED_APERTURE = 0x0001_0000
PRIVATE_APERTURE = 0x0002_0000


class Field(IntEnum):
    """Offsets of the fields behind the SGPR file (i32 unless stated)."""

    SCC = 512
    RESUME = 516  # number of the resume point
    MODE = 520  # float mode: round (bits 0-3), denormals (4-7), the rest as in the hardware's MODE register
    WAVE = 524  # number of the wave in its workgroup
    STATUS = 528  # scheduler: 0 running, 1 at a barrier, 2 ended
    SCRATCH = 536  # i64: host address of the wave's scratch
    SPILL = 544  # start of free space for hooks, up to 1024


_NAMED_SLOT = {
    Named.VCC: VCC,
    Named.VCC_LO: VCC,
    Named.VCC_HI: VCC + 1,
    Named.EXEC: EXEC,
    Named.EXEC_LO: EXEC,
    Named.EXEC_HI: EXEC + 1,
    Named.M0: M0,
}


def state_size(wave: int, vgprs: int, agprs: int = 0) -> int:
    """Bytes of a state block, a multiple of 64."""
    return VGPR_OFFSET + 4 * wave * (vgprs + agprs)


@dataclass
class BlockUse:
    """What a block does to registers: `used` before written in it, and `written`. Keys: SGPR number, `SCC`, or VGPR_KEY + row."""

    used: set[int] = field(default_factory=set[int])
    written: set[int] = field(default_factory=set[int])


@dataclass
class _Cache:
    """The SSA values that stand for registers in the present block."""

    sgpr: dict[int, Value] = field(default_factory=dict[int, Value])  # i32; SCC as i1
    pair: dict[int, Value] = field(default_factory=dict[int, Value])  # i64 over n, n + 1
    mask: dict[int, Value] = field(default_factory=dict[int, Value])  # <W x i1> over n (wave32) or n, n + 1 (wave64)
    vgpr: dict[int, Value] = field(default_factory=dict[int, Value])  # <W x i32> by row
    dirty: set[int] = field(default_factory=set[int])


class WaveState:
    """Reads and writes of one wave's registers, built into `f` at its present position.

    `wave` is 32 or 64. `pointer` is the state block. `full_exec` says that EXEC is all ones throughout the kernel, so that no write
    needs a mask. Lane vectors are `<W x i32>`; 64-bit lane values are `<W x i64>`.
    """

    def __init__(self, f: Function, wave: int, pointer: Value, *, vgprs: int, agprs: int = 0, full_exec: bool = False) -> None:
        self.f = f
        self.wave = wave
        self.pointer = pointer
        self.vgprs = vgprs
        self.agprs = agprs
        self.full_exec = full_exec
        self.lane_type = vector(wave, "i32")
        self.mask_type = vector(wave, "i1")
        self.mask_bits = f"i{wave}"
        self.use = BlockUse()
        self._cache = _Cache()

    # ---- blocks ---------------------------------------------------------------------------------------------------------------

    def begin_block(self) -> None:
        """Forget every value: the next reads come from memory."""
        self.use = BlockUse()
        self._cache = _Cache()

    def end_block(self) -> _Cache:
        """The block's values, for `store_dirty` once liveness is known."""
        return self._cache

    def store_dirty(self, cache: _Cache, live: set[int] | None = None) -> None:
        """Store what `cache` holds unwritten (and `live`, where given) at the present position."""
        kept, self._cache = self._cache, cache
        wanted = cache.dirty if live is None else cache.dirty & live
        for key in sorted(wanted):
            self._store(key)
        self._cache = kept

    def _store(self, key: int) -> None:
        if key >= VGPR_KEY:
            row = key - VGPR_KEY
            self.f.store(self._cache.vgpr[row], self.row_pointer(row), 64)
        elif key == SCC:
            self.f.store(self.f.cast("zext", self._cache.sgpr[SCC], "i32"), self.field_pointer(Field.SCC), 4)
        else:
            self.f.store(self._read_slot(key), self.field_pointer(4 * key), 4)

    # ---- addresses in the state block -----------------------------------------------------------------------------------------

    def field_pointer(self, offset: int) -> Value:
        """Address of a field of the state block."""
        return self.f.gep(self.pointer, offset)

    def row(self, register: Registers, index: int = 0) -> int:
        """The row of a VGPR or AGPR of an operand."""
        return register.first + index + (self.vgprs if register.file is File.AGPR else 0)

    def row_pointer(self, row: int) -> Value:
        """Address of a vector register's row: `wave` x i32, 64-byte aligned; consecutive registers are consecutive rows."""
        return self.f.gep(self.pointer, VGPR_OFFSET + 4 * self.wave * row)

    def flush(self, rows: Iterable[int]) -> None:
        """Bring rows up to date in memory, for code that reads them there. They count as used."""
        for row in rows:
            key = VGPR_KEY + row
            if key in self._cache.dirty:
                self._store(key)
                self._cache.dirty.discard(key)
            elif key not in self.use.written:
                self.use.used.add(key)

    def written_in_memory(self, rows: Iterable[int], *, partly: bool = False) -> None:
        """Rows were just written in memory, behind our back; `partly` where some lanes or bits kept their old values."""
        for row in rows:
            key = VGPR_KEY + row
            if partly and key not in self.use.written:
                self.use.used.add(key)
            self._cache.vgpr.pop(row, None)
            self._cache.dirty.discard(key)
            self.use.written.add(key)

    def forget_clean(self) -> None:
        """Before a call: drop values that memory holds too, so that they are reloaded and not kept alive over it."""
        cache = self._cache
        cache.vgpr = {row: value for row, value in cache.vgpr.items() if VGPR_KEY + row in cache.dirty}

    # ---- vector registers -----------------------------------------------------------------------------------------------------

    def read_vgpr(self, row: int) -> Value:
        """`<W x i32>`. `row` is a VGPR's number (or `row()` of an AGPR)."""
        known = self._cache.vgpr.get(row)
        if known is None:
            self._check_row(row)
            if VGPR_KEY + row not in self.use.written:
                self.use.used.add(VGPR_KEY + row)
            known = self.f.load(self.lane_type, self.row_pointer(row), 64)
            self._cache.vgpr[row] = known
        return known

    def write_vgpr(self, row: int, value: Value, masked: bool = True) -> None:
        """Write `<W x i32>`; with `masked`, lanes outside EXEC keep what they have."""
        self._check_row(row)
        if masked and not self.full_exec:
            value = self.f.select(self.exec(), value, self.read_vgpr(row))
        self._cache.vgpr[row] = value
        self._cache.dirty.add(VGPR_KEY + row)
        self.use.written.add(VGPR_KEY + row)

    def _check_row(self, row: int) -> None:
        if not 0 <= row < self.vgprs + self.agprs:
            raise ValueError(f"vector register {row} is beyond the {self.vgprs} VGPRs and {self.agprs} AGPRs of the kernel")

    def read_vgpr64(self, row: int) -> Value:
        """`<W x i64>`: the pair `row`, `row + 1`."""
        wide = vector(self.wave, "i64")
        low = self.f.cast("zext", self.read_vgpr(row), wide)
        high = self.f.cast("zext", self.read_vgpr(row + 1), wide)
        return self.f.or_(low, self.f.shl(high, 32))

    def write_vgpr64(self, row: int, value: Value, masked: bool = True) -> None:
        """Write `<W x i64>` to the pair `row`, `row + 1`."""
        self.write_vgpr(row, self.f.cast("trunc", value, self.lane_type), masked)
        self.write_vgpr(row + 1, self.f.cast("trunc", self.f.lshr(value, 32), self.lane_type), masked)

    def read_half(self, row: int, high: bool) -> Value:
        """`<W x i16>`: one half of each lane's register."""
        whole = self.read_vgpr(row)
        return self.f.cast("trunc", self.f.lshr(whole, 16) if high else whole, vector(self.wave, "i16"))

    def write_half(self, row: int, high: bool, value: Value, masked: bool = True) -> None:
        """Write `<W x i16>` to one half; the other half keeps its value."""
        wide = self.f.cast("zext", value, self.lane_type)
        old = self.read_vgpr(row)
        new, kept = (self.f.shl(wide, 16), 0xFFFF) if high else (wide, 0xFFFF0000)
        self.write_vgpr(row, self.f.or_(new, self.f.and_(old, kept)), masked)

    # ---- scalar registers -----------------------------------------------------------------------------------------------------

    def read_sgpr(self, n: int) -> Value:
        """i32: an SGPR by its slot (`VCC`, `TTMP`, `M0` and `EXEC` are slots too)."""
        return self._read_slot(n)

    def _read_slot(self, n: int) -> Value:
        cache = self._cache
        known = cache.sgpr.get(n)
        if known is not None:
            return known
        if n >= EXEC and self.full_exec:
            known = const("i32", -1 if n == EXEC or self.wave == 64 else 0)
        elif (whole := cache.pair.get(n)) is not None:
            known = self.f.cast("trunc", whole, "i32")
        elif (whole := cache.pair.get(n - 1)) is not None:
            known = self.f.cast("trunc", self.f.lshr(whole, 32), "i32")
        elif (mask := cache.mask.get(n)) is not None:
            known = self.f.cast("trunc", self.f.bitcast(mask, self.mask_bits), "i32")
        elif self.wave == 64 and (mask := cache.mask.get(n - 1)) is not None:
            known = self.f.cast("trunc", self.f.lshr(self.f.bitcast(mask, "i64"), 32), "i32")
        else:
            if n not in self.use.written:
                self.use.used.add(n)
            known = self.f.load("i32", self.field_pointer(4 * n), 4)
        cache.sgpr[n] = known
        return known

    def write_sgpr(self, n: int, value: Value) -> None:
        """Write an i32."""
        self._overwrite(n)
        self._cache.sgpr[n] = value

    def _overwrite(self, *slots: int) -> None:
        cache = self._cache
        for n in slots:
            # A wider value that covers this slot still holds the other half: take that half out first.
            for wider in (cache.pair, cache.mask):
                for start in (n - 1, n):
                    if start not in wider or (wider is cache.mask and self.wave == 32 and start != n):
                        continue
                    if wider is cache.pair or self.wave == 64:
                        other = start + 1 if start == n else start
                        if other not in slots:
                            self._read_slot(other)
                    del wider[start]
            cache.sgpr.pop(n, None)
            cache.dirty.add(n)
            self.use.written.add(n)

    def read_sgpr64(self, n: int) -> Value:
        """i64: the pair n, n + 1."""
        known = self._cache.pair.get(n)
        if known is None:
            mask = self._cache.mask.get(n) if self.wave == 64 else None
            if mask is not None:
                known = self.f.bitcast(mask, "i64")
            elif n not in self._cache.sgpr and n + 1 not in self._cache.sgpr and not {n, n + 1} & self._cache.dirty and n < EXEC:
                self.use.used |= {n, n + 1} - self.use.written
                known = self.f.load("i64", self.field_pointer(4 * n), 4)
            else:
                low = self.f.cast("zext", self._read_slot(n), "i64")
                high = self.f.cast("zext", self._read_slot(n + 1), "i64")
                known = self.f.or_(low, self.f.shl(high, const("i64", 32)))
            self._cache.pair[n] = known
        return known

    def write_sgpr64(self, n: int, value: Value) -> None:
        """Write an i64 to the pair n, n + 1."""
        self._overwrite(n, n + 1)
        self._cache.pair[n] = value

    def read_scc(self) -> Value:
        """i1."""
        known = self._cache.sgpr.get(SCC)
        if known is None:
            self.use.used.add(SCC)
            known = self.f.cast("trunc", self.f.load("i32", self.field_pointer(Field.SCC), 4), "i1")
            self._cache.sgpr[SCC] = known
        return known

    def write_scc(self, value: Value) -> None:
        """Write an i1."""
        self._cache.sgpr[SCC] = value
        self._cache.dirty.add(SCC)
        self.use.written.add(SCC)

    def flush_scalars(self, slots: Iterable[int]) -> None:
        """Bring scalar registers up to date in memory, for code that reads them there by a computed number. They count as used."""
        for n in slots:
            if n in self._cache.dirty:
                self._store(n)
                self._cache.dirty.discard(n)
            elif n not in self.use.written:
                self.use.used.add(n)

    def scalars_written_in_memory(self, slots: Iterable[int]) -> None:
        """Some of these scalar registers (after `flush_scalars`) were just written in memory, behind our back."""
        for n in slots:
            self._overwrite(n)
            self._cache.dirty.discard(n)

    # ---- masks over the lanes -------------------------------------------------------------------------------------------------

    def mask_slot(self, base: Base) -> int | None:
        """The slot of a lane mask operand (SGPR, pair, VCC, EXEC); None for NULL."""
        if isinstance(base, Registers) and base.file in (File.SGPR, File.TTMP):
            return base.first + (TTMP if base.file is File.TTMP else 0)
        if isinstance(base, Named):
            if base is Named.NULL:
                return None
            if base in _NAMED_SLOT:
                return _NAMED_SLOT[base]
        raise ValueError(f"{base} is no lane mask")

    def read_mask(self, base: Base) -> Value:
        """`<W x i1>` of a mask operand; NULL reads as no lane."""
        slot = self.mask_slot(base)
        return const(self.mask_type, 0) if slot is None else self.read_mask_slot(slot)

    def read_mask_slot(self, n: int) -> Value:
        """`<W x i1>` of the mask at slot n."""
        if n == EXEC and self.full_exec:
            return const(self.mask_type, 1)
        known = self._cache.mask.get(n)
        if known is None:
            word = self.read_sgpr(n) if self.wave == 32 else self.read_sgpr64(n)
            known = self.f.bitcast(word, self.mask_type) if word.integer is None else const_mask(word, self.wave)
            self._cache.mask[n] = known
        return known

    def write_mask(self, base: Base, value: Value) -> None:
        """Write `<W x i1>` to a mask operand; writes to NULL vanish. The caller has cleared the lanes outside EXEC where that is meant."""
        slot = self.mask_slot(base)
        if slot is not None:
            self.write_mask_slot(slot, value)

    def write_mask_slot(self, n: int, value: Value) -> None:
        """Write `<W x i1>` to the mask at slot n."""
        self._overwrite(*((n,) if self.wave == 32 else (n, n + 1)))
        self._cache.mask[n] = value

    def exec(self) -> Value:
        """`<W x i1>`: the active lanes."""
        return self.read_mask_slot(EXEC)

    # ---- scalar operands ------------------------------------------------------------------------------------------------------

    def read_named(self, name: Named) -> Value:
        """i32; i64 for VCC and EXEC in wave64 code and for the apertures. OFF has no value."""
        if name in (Named.NULL, Named.OFF):
            return const("i32", 0)
        if name in (Named.VCC, Named.EXEC):
            slot = _NAMED_SLOT[name]
            return self.read_sgpr(slot) if self.wave == 32 else self.read_sgpr64(slot)
        if name in _NAMED_SLOT:
            return self.read_sgpr(_NAMED_SLOT[name])
        if name is Named.SCC:
            return self.f.cast("zext", self.read_scc(), "i32")
        if name in (Named.VCCZ, Named.EXECZ):
            return self.f.cast("zext", self.is_zero(VCC if name is Named.VCCZ else EXEC), "i32")
        high = SHARED_APERTURE if name in (Named.SHARED_BASE, Named.SHARED_LIMIT) else PRIVATE_APERTURE
        limit = 0xFFFFFFFF if name in (Named.SHARED_LIMIT, Named.PRIVATE_LIMIT) else 0
        return const("i64", (high << 32) | limit)

    def is_zero(self, slot: int) -> Value:
        """i1: whether the mask at `slot` has no lane set."""
        return self.f.icmp("eq", self.read_sgpr(slot) if self.wave == 32 else self.read_sgpr64(slot), 0)

    def write_named(self, name: Named, value: Value) -> None:
        """Write i32 or i64 as `read_named` gives it; NULL swallows anything."""
        if name is Named.NULL:
            return
        if name is Named.SCC:
            self.write_scc(self.f.icmp("ne", value, 0))
        elif name not in _NAMED_SLOT:
            raise ValueError(f"{name.value} can't be written")
        elif value.type == "i64":
            self.write_sgpr64(_NAMED_SLOT[name], value)
        else:
            self.write_sgpr(_NAMED_SLOT[name], value)

    def read_scalar(self, base: Base, bits: int = 32) -> Value:
        """i32 or i64 of an SGPR, TTMP or named operand (numbers are the caller's: their bits depend on the operand's type)."""
        if isinstance(base, Registers) and base.file in (File.SGPR, File.TTMP):
            slot = base.first + (TTMP if base.file is File.TTMP else 0)
            return self.read_sgpr(slot) if bits == 32 else self.read_sgpr64(slot)
        if isinstance(base, Named):
            if bits == 64 and base in _NAMED_SLOT:
                return self.read_sgpr64(_NAMED_SLOT[base])
            value = self.read_named(base)
            return self.f.cast("zext" if value.type == "i32" else "trunc", value, f"i{bits}")
        raise ValueError(f"{base} is no scalar register")

    def write_scalar(self, base: Base, value: Value) -> None:
        """Write i32 or i64 to an SGPR, TTMP or named operand."""
        if isinstance(base, Registers) and base.file in (File.SGPR, File.TTMP):
            slot = base.first + (TTMP if base.file is File.TTMP else 0)
            (self.write_sgpr if value.type == "i32" else self.write_sgpr64)(slot, value)
        elif isinstance(base, Named):
            if value.type == "i64" and base in _NAMED_SLOT:
                self.write_sgpr64(_NAMED_SLOT[base], value)
            else:
                self.write_named(base, value)
        else:
            raise ValueError(f"{base} is no scalar register")


def const_mask(word: Value, wave: int) -> Value:
    """The `<W x i1>` constant with the bits of an integer constant."""
    known = word.integer
    assert known is not None
    items = ", ".join("i1 true" if known >> lane & 1 else "i1 false" for lane in range(wave))
    return Value(vector(wave, "i1"), f"<{items}>")
