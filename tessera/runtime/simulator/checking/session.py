"""One launch in the checking mode: memory for shadows and records, and what was found, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ....errors import DataRaceError, SimulatorError, UninitializedDataError
from ..helpers import Context, Fault
from ..instruction import Instruction
from ..scheduler import FaultRecord, Launch, peek, poke
from .observer import USES, Observer
from .records import (
    ATOMIC_BIT,
    GROUP_SHIFT,
    MAX_GROUPS,
    MAX_PHASE,
    MAX_SITES,
    MIRROR,
    PHASE_SHIFT,
    RECORD,
    WAVE_SHIFT,
    Finding,
    Hook,
)
from .waits import Lines

_LIMIT = 1 << 28  # bytes of writable buffers: their records take 24 times as much


class Range(Protocol):
    """A buffer of a launch."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def writable(self) -> bool: ...


@dataclass(frozen=True)
class _Who:
    """A record taken apart."""

    group: int
    wave: int
    phase: int
    atomic: bool
    pc: int


class Session:
    """The checking mode's side of one launch of the kernel that `observer` is for."""

    def __init__(self, observer: Observer, grid: tuple[int, int, int], buffers: Sequence[Range], lines: Lines | None) -> None:
        self.observer = observer
        self.grid = grid
        self.buffers = buffers
        self.lines = lines
        self._kept: list[np.ndarray[Any, Any]] = []
        self._found: dict[Hook, int] = {}

    def adapt(self, launch: Launch) -> Launch:
        """The launch with room for shadows and records. Raises SimulatorError where there is more to keep than the checking mode can."""
        if launch.total > MAX_GROUPS:
            raise SimulatorError(f"the checking mode takes up to {MAX_GROUPS} workgroups a launch, not {launch.total}")
        writable = _merged([(b.address, b.nbytes) for b in self.buffers if b.writable and b.nbytes])
        total = sum(size for _, size in writable)
        if total > _LIMIT:
            raise SimulatorError(
                f"the checking mode keeps {RECORD} bytes for each byte that a kernel may write, and takes up to {_LIMIT >> 20} MiB of such "
                f"arrays; this launch has {total >> 20} MiB. Check a smaller case, or launch with check=False"
            )
        rows = np.zeros((len(writable), 3), np.int64)
        for index, (start, size) in enumerate(writable):
            records = np.zeros(RECORD * size // 8, np.uint64)
            self._kept.append(records)
            rows[index] = start, size, records.ctypes.data
        self._kept.append(rows)
        lds = (launch.lds_size + 63) // 64 * 64
        lane = (launch.scratch_lane + 3) // 4 * 4
        # Rounded so that half of what the scheduler allots is a wave's own scratch, in whole 64 bytes.
        scratch = (lane * launch.wave + 63) // 64 * 64

        def prepare(g: int) -> None:
            values = {
                Hook.LDS_BYTES: lds,
                Hook.BUFFERS: rows.ctypes.data,
                Hook.BUFFER_COUNT: len(rows),
                Hook.SCRATCH_BYTES: scratch,
                MIRROR + Context.LDS_SIZE: launch.lds_limit,
                Context.SCRATCH_SIZE: lane,
                MIRROR + Context.SCRATCH_SIZE: lane,
            }
            for offset, value in values.items():
                poke(g + offset, value)

        return replace(
            launch,
            state_size=self.observer.extra_state(launch.state_size),
            lds_size=lds * (2 + RECORD),
            scratch_lane=2 * lane,
            threads=1,
            prepare_context=prepare,
            finish_context=self._collect,
        )

    def _collect(self, g: int) -> None:
        if not self._found.get(Hook.FINDING):
            self._found = {hook: peek(g + hook) for hook in Hook if hook >= Hook.FINDING}

    # ---- what was found --------------------------------------------------------------------------------------------------------------

    def error(self, fault: FaultRecord | None) -> SimulatorError | None:
        """The error of a run that stopped with `fault`, or ended: None where the checking mode has nothing to say."""
        found = self._found
        if fault is not None and fault.kind is Fault.CHECK:
            finding = Finding(found[Hook.FINDING])
            if finding is Finding.TOO_MANY_BARRIERS:
                return SimulatorError(f"the checking mode counts up to {MAX_PHASE} barriers of a workgroup; this launch has more")
            if finding is Finding.UNDEFINED:
                return self._undefined(found[Hook.SITE], found[Hook.LANE], found[Hook.GROUP], found[Hook.WAVE])
            return self._race(finding)
        if found.get(Hook.UNDEFINED_SITE):
            return self._undefined(
                found[Hook.UNDEFINED_SITE] - 1, found[Hook.UNDEFINED_LANE], found[Hook.UNDEFINED_GROUP], found[Hook.UNDEFINED_WAVE]
            )
        return None

    def _instruction(self, pc: int) -> Instruction:
        return self.observer.graph.effects[pc].instruction

    def _at(self, pc: int) -> str:
        """An instruction with its place."""
        location = self.lines(pc) if self.lines is not None else None
        return f"{self._instruction(pc).mnemonic} at pc 0x{pc:x}" + (f" ({location})" if location is not None else "")

    def _group(self, index: int) -> str:
        x, rest = index % self.grid[0], index // self.grid[0]
        return f"workgroup ({x}, {rest % self.grid[1]}, {rest // self.grid[1]})"

    def _undefined(self, site: int, lane: int, group: int, wave: int) -> SimulatorError:
        number, use = divmod(site, 8)
        instruction = self.observer.kernel.instructions[number]
        text = f"{self._at(instruction.pc)} uses undefined data as {USES[use]}: wave {wave} of {self._group(group)}, lane {lane}"
        text += "; something that it depends on was read from a register or from LDS that nothing had written"
        location = self.lines(instruction.pc) if self.lines is not None else None
        return UninitializedDataError(text, location, mnemonic=instruction.mnemonic, pc=instruction.pc)

    def _who(self, record: int) -> _Who:
        return _Who(
            group=(record >> GROUP_SHIFT) - 1,
            wave=record >> WAVE_SHIFT & 31,
            phase=record >> PHASE_SHIFT & MAX_PHASE,
            atomic=bool(record >> ATOMIC_BIT & 1),
            pc=self.observer.touching[record & MAX_SITES - 1],
        )

    def _does(self, pc: int) -> str:
        name = self._instruction(pc).mnemonic
        return "reads" if "load" in name or "_read" in name else "writes" if "store" in name or "_write" in name else "updates"

    def _race(self, finding: Finding) -> SimulatorError:
        found = self._found
        mine, other = self._who(found[Hook.MINE]), self._who(found[Hook.OTHER])
        address, lane = found[Hook.ADDRESS], found[Hook.LANE]
        if finding is Finding.LDS_RACE:
            what = f"LDS byte {address}"
        else:
            buffer = next((b for b in self.buffers if b.address <= address < b.address + b.nbytes), None)
            what = f"byte {address - buffer.address} of {buffer.name!r}" if buffer is not None else f"address 0x{address:x}"
        same_group = mine.group == other.group
        first = f"wave {mine.wave}" if same_group else f"{self._group(mine.group)}, wave {mine.wave},"
        second = f"wave {other.wave}" if same_group else f"{self._group(other.group)}, wave {other.wave},"
        text = f"data race on {what}: {first} (lane {lane}) {self._does(mine.pc)} it with {self._at(mine.pc)}, "
        text += f"{second} {self._does(other.pc)} it with {self._at(other.pc)}, "
        if finding is Finding.STALE:
            text += "and the reader has not invalidated its cache since the barrier between them (buffer_gl0_inv)"
        elif not same_group:
            text += (
                "and nothing but atomics orders workgroups: in a kernel of tiles, which has none, give each program elements of its own, "
            )
            text += "and combine them in a second kernel"
        else:
            text += "and no barrier orders them"
            late = next((who for who in (other, mine) if who.pc in self.observer.unfinished), None)
            if late is not None:
                text += f": no wait covers {self._at(late.pc)} before the barrier, so that it may still be under way behind it"
        if same_group:
            text += f"; {self._group(mine.group)}"
        location = self.lines(mine.pc) if self.lines is not None else None
        return DataRaceError(text, location, mnemonic=self._instruction(mine.pc).mnemonic, pc=mine.pc)


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint (start, size) that cover the same bytes."""
    merged: list[tuple[int, int]] = []
    for start, size in sorted(ranges):
        if merged and start < merged[-1][0] + merged[-1][1]:
            before = merged.pop()
            size = max(before[0] + before[1], start + size) - before[0]
            start = before[0]
        merged.append((start, size))
    return merged
