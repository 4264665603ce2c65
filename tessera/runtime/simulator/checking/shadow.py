"""Which bits of a wave's registers are undefined: a second register file of the same shape, a set bit for each undefined one.

It is a `WaveState` of its own on a second state block behind the first, so that everything that moves registers moves shadows by the same
code. What differs: EXEC is the real one, and can't be undefined (whoever writes it is checked); a register that is known to be defined is
the constant zero and costs nothing, neither code nor memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....llvmtext import Value, const, element, like
from ..instruction import Named
from ..state import EXEC, M0, SCC, VCC, VGPR_KEY, WaveState

_SLOTS = frozenset((Named.VCC, Named.VCC_LO, Named.VCC_HI, Named.M0))


def is_zero(value: Value) -> bool:
    """Whether a shadow is known to be all zeros."""
    return value.text in ("zeroinitializer", "0", "false")


def zero(type_: str) -> Value:
    """The shadow of something defined."""
    return const(type_, 0)


class ShadowState(WaveState):
    """The shadow of `real`. Values of `<W x i1>` and i1 (masks and SCC) are shadows too: set where the bit is undefined."""

    def __init__(self, real: WaveState, pointer: Value) -> None:
        super().__init__(real.f, real.wave, pointer, vgprs=real.vgprs, agprs=real.agprs, full_exec=real.full_exec)
        self.real = real
        self.real_m0 = False  # while a register-indirect move is built
        self.exec_writes: list[Value] = []  # shadows that were to be written to EXEC

    # ---- blocks -----------------------------------------------------------------------------------------------------------------------

    def begin(self, defined: Iterable[int]) -> None:
        """Begin a block in which these registers (keys of `Effects`) are defined."""
        self.begin_block()
        known = set(defined)
        for key in known:
            if key >= VGPR_KEY:
                if key & 1 == 0 and key + 1 in known:
                    self._cache.vgpr[(key - VGPR_KEY) // 2] = zero(self.lane_type)
            elif key < EXEC:
                self._cache.sgpr[key] = zero("i32")
            elif key == SCC:
                self._cache.sgpr[SCC] = zero("i1")

    def finish(self, defined_after: Iterable[frozenset[int]], live: frozenset[int]) -> None:
        """End a block: store what a later block may read and doesn't know to be defined."""
        following = list(defined_after)
        cache = self._cache
        known = {n for n, value in cache.sgpr.items() if is_zero(value)}
        rows = {row for row, value in cache.vgpr.items() if is_zero(value)}
        for key in sorted(cache.dirty | known | {VGPR_KEY + row for row in rows}):
            if key >= VGPR_KEY:
                row = key - VGPR_KEY
                keys = {VGPR_KEY + 2 * row, VGPR_KEY + 2 * row + 1}
                constant = row in rows
            else:
                keys, constant = {key}, key in known
            if not keys & live or (constant and all(keys <= defined for defined in following)):
                continue
            self._store(key)

    # ---- vector registers ---------------------------------------------------------------------------------------------------------------

    def forget_clean(self) -> None:
        cache = self._cache
        cache.vgpr = {row: value for row, value in cache.vgpr.items() if VGPR_KEY + row in cache.dirty or is_zero(value)}

    def flush(self, rows: Iterable[int]) -> None:
        rows = list(rows)
        for row in rows:
            if row in self._cache.vgpr and is_zero(self._cache.vgpr[row]):
                self._cache.dirty.add(VGPR_KEY + row)  # memory may not know it
        super().flush(rows)

    def row_is_zero(self, row: int) -> bool:
        """Whether a row is known to be defined."""
        return row in self._cache.vgpr and is_zero(self._cache.vgpr[row])

    def write_vgpr(self, row: int, value: Value, masked: bool = True) -> None:
        old = self._cache.vgpr.get(row)
        if masked and not self.full_exec and old is not None and is_zero(old) and is_zero(value):
            return
        super().write_vgpr(row, value, masked)

    def read_half(self, row: int, high: bool) -> Value:
        if self.row_is_zero(row):
            return zero(like(self.lane_type, "i16"))
        return super().read_half(row, high)

    def write_half(self, row: int, high: bool, value: Value, masked: bool = True) -> None:
        if is_zero(value):
            if self.row_is_zero(row):
                return
            kept = self.f.and_(self.read_vgpr(row), 0xFFFF if high else 0xFFFF0000)
            self.write_vgpr(row, kept, masked)
            return
        super().write_half(row, high, value, masked)

    def read_vgpr64(self, row: int) -> Value:
        if self.row_is_zero(row) and self.row_is_zero(row + 1):
            return zero(like(self.lane_type, "i64"))
        return super().read_vgpr64(row)

    def write_vgpr64(self, row: int, value: Value, masked: bool = True) -> None:
        if is_zero(value):
            self.write_vgpr(row, zero(self.lane_type), masked)
            self.write_vgpr(row + 1, zero(self.lane_type), masked)
            return
        super().write_vgpr64(row, value, masked)

    # ---- EXEC and scalar registers ---------------------------------------------------------------------------------------------------

    def exec(self) -> Value:
        return self.real.exec()

    def read_sgpr(self, n: int) -> Value:
        if n == M0 and self.real_m0:
            return self.real.read_sgpr(M0)
        return zero("i32") if n >= EXEC else super().read_sgpr(n)

    def _read_slot(self, n: int) -> Value:
        return zero("i32") if EXEC <= n < SCC else super()._read_slot(n)

    def _known_zero(self, *slots: int) -> bool:
        cache = self._cache.sgpr
        return all(n >= EXEC or (n in cache and is_zero(cache[n])) for n in slots)

    def read_sgpr64(self, n: int) -> Value:
        return zero("i64") if self._known_zero(n, n + 1) else super().read_sgpr64(n)

    def read_mask_slot(self, n: int) -> Value:
        if self._known_zero(*((n,) if self.wave == 32 else (n, n + 1))):
            return zero(self.mask_type)
        return super().read_mask_slot(n)

    def write_sgpr(self, n: int, value: Value) -> None:
        if EXEC <= n < SCC:
            self.exec_writes.append(value)
            return
        super().write_sgpr(n, value)

    def write_sgpr64(self, n: int, value: Value) -> None:
        if n == EXEC:
            self.exec_writes.append(value)
        elif is_zero(value):
            self.write_sgpr(n, zero("i32"))
            self.write_sgpr(n + 1, zero("i32"))
        else:
            super().write_sgpr64(n, value)

    def write_mask_slot(self, n: int, value: Value) -> None:
        if n == EXEC:
            self.exec_writes.append(value)
        elif is_zero(value):
            for slot in (n,) if self.wave == 32 else (n, n + 1):
                self.write_sgpr(slot, zero("i32"))
        else:
            super().write_mask_slot(n, value)

    def read_named(self, name: Named) -> Value:
        if name is Named.SCC or name in _SLOTS:
            return super().read_named(name)
        if name is Named.VCCZ:
            bits = self.read_sgpr(VCC) if self.wave == 32 else self.read_sgpr64(VCC)
            return bits if is_zero(bits) else self.f.cast("sext", self.f.icmp("ne", bits, 0), "i32")
        return zero("i32")

    def write_named(self, name: Named, value: Value) -> None:
        if name is Named.SCC:
            self.write_scc(zero("i1") if is_zero(value) else self.f.icmp("ne", value, 0))
        else:
            super().write_named(name, value)


def any_bit(state: WaveState, value: Value) -> Value:
    """Per lane (or for a scalar, one i1): whether any bit of a shadow is set."""
    if element(value.type) == "i1":
        return value
    if is_zero(value):
        return zero(like(value.type, "i1"))
    return state.f.icmp("ne", value, 0)
