"""The simulator's front: prepare a kernel of a code object once, run it any number of times.

    program = prepare(code, "matmul")
    report = program.run((8, 8, 1), (128, 1, 1), kernarg, [Buffer("a", address, nbytes, writable=False), …])

Memory is the process's own: the addresses in `kernarg` are host addresses, and the kernel may touch `buffers`, its arguments and its code
object's data, nothing else.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import config, llvm
from ...errors import DeadlockError, LaunchError, Location, MemoryFaultError, SimulatorError, UnsupportedInstructionError
from . import cache, control, counters, fidelity, helpers, lifter, listing, memory, scheduler
from .helpers import Context, Fault
from .instruction import Instruction
from .loader import CodeObject, Kernel, load_code_object
from .scheduler import FaultRecord, Id, Launch, aligned
from .semantics import FloatMode, generation_of
from .state import EXEC, TTMP, VGPR_OFFSET, Field, state_size

Lines = Callable[[int], "Location | None"]  # the source line of a pc, where known

_PACKED_IDS = frozenset(("gfx90a", "gfx11", "gfx12", "gfx125"))  # v0 holds x | y << 10 | z << 20
_TTMP_IDS = frozenset(("gfx12", "gfx125"))  # workgroup ids are in ttmp9 and ttmp7
_ARCHITECTED_SCRATCH = frozenset(("gfx940", "gfx941", "gfx942", "gfx950"))
_ABS64, _RELATIVE64 = 3, 13  # R_AMDGPU_*
_PAGE = 4096
_MAX_THREADS = 1024  # work-items of a workgroup


@dataclass(frozen=True)
class Buffer:
    """A range of this process's memory that a kernel may touch. `name` is shown in messages."""

    name: str
    address: int
    nbytes: int
    writable: bool = True


@dataclass(frozen=True)
class RunReport:
    """What a launch did. `seconds` is the wall time of running, without compiling; `compile_seconds` that of compiling, 0 if it was done
    before."""

    counters: counters.Counters
    fidelity: fidelity.Fidelity
    seconds: float
    compile_seconds: float
    threads: int


@dataclass(frozen=True)
class _Variant:
    """Compiled code of a kernel."""

    code: llvm.HostCode
    function: int
    blocks: tuple[lifter.Block, ...]
    vgprs: int
    agprs: int
    fidelity: fidelity.Fidelity
    deep: bool  # compiled in a hurry: every value has a place on the stack
    observer: Any = None


def _level(blocks: Sequence[lifter.Block], check: bool) -> int:
    """LLVM's code generation level for lifted code. Checks take several times the code of what they check."""
    count = sum(sum(block.mnemonics.values()) for block in blocks)
    return lifter.machine_level(4 * count if check else count)


def prepare(code: bytes, kernel: str | None = None, *, check: bool = False, lines: Lines | None = None) -> Program:
    """A kernel of a code object, ready to run; `kernel` may be left out where there is only one.

    Compiles the kernel for the launch that its metadata suggests, so that what the simulator doesn't know is reported here. Raises
    SimulatorError for a damaged code object or an unknown kernel, UnsupportedInstructionError, UnsupportedArchError.
    """
    program = Program(load_code_object(code), kernel, lines)
    block = program.kernel.workgroup_size
    threads = block[0] * block[1] * block[2] if block is not None else program.kernel.max_workgroup_size
    program.variant(threads % program.wave == 0, check)
    return program


class Program:
    """A kernel with its code object in memory. Its global variables live as long as it does. Runs from several threads are safe."""

    def __init__(self, code: CodeObject, kernel: str | None, lines: Lines | None) -> None:
        if kernel is None:
            if len(code.kernels) != 1:
                raise SimulatorError(f"the code object has {len(code.kernels)} kernels, choose one: {', '.join(code.kernels) or 'none'}")
            kernel = next(iter(code.kernels))
        self.code = code
        self.kernel: Kernel = code.kernel(kernel)
        self.lines = lines
        self.generation = generation_of(code.arch)
        self.wave = self.kernel.descriptor.wave_size
        self._memory, self.base, self._segments = _load(code)
        self._variants: dict[tuple[bool, bool], _Variant] = {}
        self._instructions: list[Instruction] | None = None
        self._lock = threading.RLock()
        descriptor = self.kernel.descriptor
        if descriptor.float_round_32 or descriptor.float_round_16_64:
            raise SimulatorError(f"kernel {kernel!r} asks for a rounding mode other than to nearest even, which is not supported")

    @property
    def instructions(self) -> list[Instruction]:
        """The kernel's instructions, in order of address."""
        if self._instructions is None:
            name = next(f.name for f in self.code.functions if f.address == self.kernel.entry)
            self._instructions = listing.decode(self.code)[name]
        return self._instructions

    @property
    def register_mode(self) -> int:
        """The MODE register at the start of a wave: rounding and denormals, DX10_CLAMP (bit 8), IEEE (bit 9)."""
        descriptor = self.kernel.descriptor
        return descriptor.mode | descriptor.dx10_clamp << 8 | descriptor.ieee << 9

    def variant(self, full: bool, check: bool) -> _Variant:
        """The code for launches whose waves are all full, or not; compiled on first use."""
        with self._lock:
            found = self._variants.get((full, check))
            if found is None:
                found = self._variants[full, check] = self._compile(full, check)
            return found

    def _compile(self, full: bool, check: bool) -> _Variant:
        source = self._lifter_input(full)
        if check:
            from .checking import Observer  # most processes never need it

            scalars, vectors = self._initially_set()
            observer = Observer(source, scalars, vectors, wgp=self.kernel.descriptor.wgp_mode, lines=self.lines)
            source = replace(source, observer=observer)
        observer = source.observer
        key = cache.key("kernel", self.code.data, self.kernel.name, full, check)
        entry = cache.fetch(key)
        if entry is None:
            lifted = lifter.lift(source)
            object_code = llvm.compile_host(lifted.text, optimize=0, codegen=_level(lifted.blocks, check))
            meta = {
                "blocks": [[block.pc, block.size, block.mnemonics] for block in lifted.blocks],
                "calls": list(lifted.calls),
                "vgprs": lifted.vgprs,
                "agprs": lifted.agprs,
                "mnemonics": list(lifted.mnemonics),
            }
            cache.keep(key, object_code, meta)
            entry = cache.Entry(object_code, meta)
        meta = entry.meta
        code = helpers.load(entry.code, meta["calls"])
        blocks = tuple(lifter.Block(pc, size, mnemonics) for pc, size, mnemonics in meta["blocks"])
        closeness = fidelity.assess(meta["mnemonics"])
        deep = _level(blocks, check) == 0
        return _Variant(code, code.address(lifter.KERNEL), blocks, int(meta["vgprs"]), int(meta["agprs"]), closeness, deep, observer)

    def _lifter_input(self, full: bool) -> lifter.Kernel:
        instructions = self.instructions
        dynamic = any(control.changes_denormals(i) for i in instructions)
        return lifter.Kernel(
            instructions=instructions,
            entry=self.kernel.entry,
            arch=self.code.arch,
            family=self.code.family,
            generation=self.generation,
            wave=self.wave,
            mode=FloatMode.of_register(self.register_mode, dynamic),
            full_exec=full and not lifter.writes_exec(instructions),
            initial_vgprs=max(1 if self.code.family in _PACKED_IDS else 3, self._indirect_vgprs()),
        )

    def _initially_set(self) -> tuple[list[int], int]:
        """The scalar registers that are set when a wave starts, and how many vector registers: what `_image` fills in."""
        descriptor, user = self.kernel.descriptor, self.kernel.descriptor.user_sgprs
        slots: list[int] = []
        for first, count in (
            (user.dispatch_ptr, 2),
            (user.kernarg_segment_ptr, 2),
            (user.dispatch_id, 2),
            (user.flat_scratch_init, 2),
            (user.private_segment_size, 1),
            (user.kernarg_preload, descriptor.kernarg_preload_length),
        ):
            if first is not None:
                slots += range(first, first + count)
        if self.code.family in _TTMP_IDS:
            slots += [TTMP + 7, TTMP + 8, TTMP + 9]
        else:
            slots += range(user.count, user.count + sum(descriptor.workgroup_id))
        return slots, 1 if self.code.family in _PACKED_IDS else 3

    def _indirect_vgprs(self) -> int:
        """How many VGPRs a kernel with register-indirect moves was given: it may never name those that it reaches."""
        if not any(i.mnemonic.startswith(("v_movrel", "v_swaprel")) for i in self.instructions):
            return 0
        granule = 8 if self.wave == 32 or self.code.family == "gfx90a" else 4
        return granule * ((self.kernel.descriptor.rsrc1 & 63) + 1)

    # ---- running ------------------------------------------------------------------------------------------------------------------------

    def run(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        kernarg: bytes,
        buffers: Sequence[Buffer],
        *,
        counters: bool = False,
        check: bool = False,
        threads: int | None = None,
        dynamic_lds: int = 0,
    ) -> RunReport:
        """Run `grid` workgroups of `block` work-items, with these bytes as arguments.

        `counters` asks for LDS bank conflicts, which cost time; everything else is counted anyway. `threads` is one a core by default
        (TESSERA_SIM_THREADS). Raises MemoryFaultError, DeadlockError, SimulatorError (trap, run-away loop), LaunchError.
        """
        kernel = self.kernel
        total_threads = self._check_launch(grid, block, kernarg)
        started = time.perf_counter()
        variant = self.variant(total_threads % self.wave == 0, check)
        compiled = time.perf_counter()
        total = grid[0] * grid[1] * grid[2]
        if threads is None:
            threads = config.simulator_threads() or _cores()
        report = scheduler.Outcome(np.zeros(len(variant.blocks), np.int64), {})
        if total:
            waves = -(-total_threads // self.wave)
            arguments, kernarg_address = _place(kernarg, kernel.descriptor.kernarg_size)
            packet, packet_address = aligned(64)
            _fill_packet(packet_address, grid, block, kernel, kernarg_address, dynamic_lds)
            extra = [
                Buffer("the kernel's arguments", kernarg_address, len(arguments) - 64, False),
                Buffer("the dispatch packet", packet_address, 64, False),
                *self._segments,
            ]
            everything = [*buffers, *extra]
            image, patches = self._image(block, waves, variant, kernarg, kernarg_address, packet_address)
            launch = Launch(
                kernel=variant.function,
                total=total,
                grid=grid,
                waves=waves,
                state_size=state_size(self.wave, variant.vgprs, variant.agprs),
                image=image,
                patches=patches,
                lds_size=kernel.descriptor.lds_size + dynamic_lds,
                lds_limit=kernel.descriptor.lds_size + dynamic_lds,
                scratch_lane=kernel.descriptor.scratch_size,
                wave=self.wave,
                blocks=len(variant.blocks),
                table=_table(everything),
                code_base=self.base,
                max_instructions=config.simulator_max_instructions(),
                count_conflicts=counters,
                threads=threads,
                deep=variant.deep,
            )
            session = None
            if variant.observer is not None:
                from .checking import Session

                session = Session(variant.observer, grid, everything, self.lines)
                launch = session.adapt(launch)
            report = scheduler.run(launch)
            del arguments, packet
            if session is not None and (error := session.error(report.fault)) is not None:
                raise error
            if report.fault is not None:
                raise self._error(report.fault, grid, everything, variant)
        finished = time.perf_counter()
        return RunReport(
            counters=_counters(variant, report, counters),
            fidelity=variant.fidelity,
            seconds=finished - compiled,
            compile_seconds=compiled - started,
            threads=threads,
        )

    def _check_launch(self, grid: tuple[int, int, int], block: tuple[int, int, int], kernarg: bytes) -> int:
        kernel = self.kernel
        if min(grid) < 0 or min(block) < 1:
            raise LaunchError(f"a grid of {grid} workgroups of {block} work-items: counts can't be negative, nor workgroups empty")
        total = block[0] * block[1] * block[2]
        if total > min(_MAX_THREADS, kernel.max_workgroup_size):
            limit = min(_MAX_THREADS, kernel.max_workgroup_size)
            raise LaunchError(f"workgroups of {block} have {total} work-items; kernel {kernel.name!r} takes at most {limit}")
        if kernel.workgroup_size is not None and tuple(block) != kernel.workgroup_size:
            raise LaunchError(f"kernel {kernel.name!r} requires workgroups of {kernel.workgroup_size}, not {tuple(block)}")
        needed = max((a.offset + a.size for a in kernel.arguments if not a.kind.startswith("hidden_")), default=0)
        if len(kernarg) < needed:
            raise LaunchError(f"kernel {kernel.name!r} takes {needed} bytes of arguments, {len(kernarg)} were given")
        return total

    def _image(
        self, block: tuple[int, int, int], waves: int, variant: _Variant, kernarg: bytes, kernarg_address: int, packet_address: int
    ) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], list[tuple[int, Id]]]:
        """The state of each wave at its start, and where workgroup ids go."""
        descriptor, family, wave = self.kernel.descriptor, self.code.family, self.wave
        packed = family in _PACKED_IDS
        rows = 1 if packed else 3
        width = -(-(VGPR_OFFSET + 4 * wave * rows) // 64) * 64
        image = np.zeros((waves, width), np.uint8)
        words: Any = image.view(np.uint32)  # pyright: ignore[reportUnknownMemberType]
        words[:, : Field.SCC // 4] = 0xFFFFFFFF
        lane: Any = np.arange(waves * wave, dtype=np.uint32).reshape(waves, wave)  # pyright: ignore[reportUnknownMemberType]
        active = lane < block[0] * block[1] * block[2]
        x, y, z = lane % block[0], lane // block[0] % block[1], lane // (block[0] * block[1])
        ids = [x | y << 10 | z << 20] if packed else [x, y, z]
        first = VGPR_OFFSET // 4
        for index, values in enumerate(ids):
            words[:, first + index * wave : first + (index + 1) * wave] = np.where(active, values, 0)
        masks: Any = np.packbits(active, axis=1, bitorder="little").view(np.uint32)  # pyright: ignore[reportUnknownMemberType]
        words[:, EXEC : EXEC + masks.shape[1]] = masks
        if wave == 32:
            words[:, EXEC + 1] = 0
        words[:, Field.MODE // 4] = self.register_mode
        words[:, Field.WAVE // 4] = np.arange(waves)

        def pair(slot: int | None, value: int) -> None:
            if slot is not None:
                words[:, slot], words[:, slot + 1] = value & 0xFFFFFFFF, value >> 32

        user = descriptor.user_sgprs
        pair(user.dispatch_ptr, packet_address)
        pair(user.kernarg_segment_ptr, kernarg_address)
        pair(user.dispatch_id, 0)
        pair(user.flat_scratch_init, 0)
        if user.private_segment_size is not None:
            words[:, user.private_segment_size] = descriptor.scratch_size
        if user.kernarg_preload is not None:
            start, count = 4 * descriptor.kernarg_preload_offset, descriptor.kernarg_preload_length
            loaded = kernarg[start : start + 4 * count].ljust(4 * count, b"\0")
            words[:, user.kernarg_preload : user.kernarg_preload + count] = np.frombuffer(loaded, np.uint32)
        patches: list[tuple[int, Id]] = []
        if family in _TTMP_IDS:
            patches = [(4 * (TTMP + 9), Id.X), (4 * (TTMP + 7), Id.Y_AND_Z)]
            words[:, TTMP + 8] = np.arange(waves, dtype=np.uint32) << 25
        else:
            at = user.count
            for enabled, kind in zip(descriptor.workgroup_id, (Id.X, Id.Y, Id.Z), strict=True):
                if enabled:
                    patches.append((4 * at, kind))
                    at += 1
            at += descriptor.workgroup_info
            if descriptor.enable_scratch and family != "gfx11" and self.code.arch not in _ARCHITECTED_SCRATCH:
                words[:, at] = 0  # offset of the wave's scratch, which instructions here find without it
        return image, patches

    # ---- faults -------------------------------------------------------------------------------------------------------------------------

    def _instruction_at(self, pc: int) -> Instruction | None:
        return next((i for i in self.instructions if i.pc == pc), None)

    def _error(self, record: FaultRecord, grid: tuple[int, int, int], buffers: Sequence[Buffer], variant: _Variant) -> SimulatorError:
        x, rest = record.group % grid[0], record.group // grid[0]
        group = f"workgroup ({x}, {rest % grid[1]}, {rest // grid[1]})"
        kind = record.kind
        if kind is Fault.RUNAWAY:
            running = [variant.blocks[resume].pc for status, resume in record.waves if status == 0 and resume < len(variant.blocks)]
            location = next((place for place in map(self._line_from, running) if place is not None), None)
            return SimulatorError(
                f"{group} of kernel {self.kernel.name!r} ran {record.address:,} wave instructions without ending; the limit is "
                f"{config.simulator_max_instructions():,} (TESSERA_SIM_MAX_INSTRUCTIONS raises it). It is likely in an endless loop: "
                f"{self._whereabouts(record, variant)}",
                location,
            )
        if kind is Fault.DEADLOCK:
            return DeadlockError(
                f"deadlock in {group} of kernel {self.kernel.name!r}: some waves wait at a barrier that others never reach: "
                f"{self._whereabouts(record, variant)}"
            )
        instruction = self._instruction_at(record.pc)
        mnemonic = instruction.mnemonic if instruction is not None else "?"
        location = self.lines(record.pc) if self.lines is not None else None
        where = f"{mnemonic} at pc 0x{record.pc:x}, wave {record.wave} of {group}"
        if kind is Fault.TRAP:
            return SimulatorError(f"the kernel trapped: {where}", location, mnemonic=mnemonic, pc=record.pc)
        if kind is Fault.GLOBAL and record.address >> 48 == memory.SWIZZLED:
            message = f"{where} uses a swizzled buffer descriptor, which is not supported"
            return UnsupportedInstructionError(message, location, mnemonic=mnemonic, pc=record.pc)
        action = "writes" if record.write else "reads"
        what = f"{where}: lane {record.lane} {action} {record.size} bytes at"
        if kind is Fault.LDS:
            limit = self.kernel.descriptor.lds_size
            message = f"{what} LDS offset {record.address}, of {limit} bytes (and any dynamic LDS)"
        elif kind is Fault.SCRATCH:
            message = f"{what} scratch offset {record.address}, of {self.kernel.descriptor.scratch_size} bytes"
        else:
            message = f"{what} address 0x{record.address:x}, {_nearest(record, buffers)}"
        return MemoryFaultError(message, location, mnemonic=mnemonic, pc=record.pc)

    def _line_from(self, pc: int) -> Location | None:
        """The line of the code at a pc; where that is of no line, of the next instruction up to the jump back that has one."""
        if self.lines is None:
            return None
        for instruction in self.instructions:
            if instruction.pc >= pc:
                location = self.lines(instruction.pc)
                if location is not None or (instruction.target is not None and instruction.target <= pc):
                    return location
        return None

    def _whereabouts(self, record: FaultRecord, variant: _Variant) -> str:
        """Where each wave is, waves in one place together."""
        places: dict[str, list[int]] = {}
        for wave, (status, resume) in enumerate(record.waves):
            pc = variant.blocks[resume].pc if resume < len(variant.blocks) else 0
            before = next((i for i in self.instructions if i.next_pc == pc), None)
            if status == 2:
                text = "ended"
            elif status == 1:
                text = f"waiting at the barrier at pc 0x{before.pc if before is not None else pc:x}"
            else:
                text = f"running at pc 0x{pc:x}"
            location = None if status == 2 else self._line_from(before.pc if status == 1 and before is not None else pc)
            places.setdefault(text + (f" ({location})" if location is not None else ""), []).append(wave)
        return "; ".join(f"wave{'s' * (len(waves) > 1)} {', '.join(map(str, waves))} {text}" for text, waves in places.items())


# ---- pieces of a launch -------------------------------------------------------------------------------------------------------------


def _cores() -> int:
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _load(code: CodeObject) -> tuple[Any, int, list[Buffer]]:
    """Place the segments in memory: (owner, host address of address 0, buffers)."""
    size = max(segment.address + segment.size for segment in code.segments)
    owner, base = aligned(size + _PAGE)
    base = -(-base // _PAGE) * _PAGE  # whatever alignment the data asks for
    image = owner[base - owner.ctypes.data :]
    buffers: list[Buffer] = []
    for number, segment in enumerate(code.segments):
        image[segment.address : segment.address + len(segment.data)] = np.frombuffer(segment.data, np.uint8)
        buffers.append(Buffer(f"segment {number} of the code object", base + segment.address, segment.size, segment.writable))
    for relocation in code.relocations:
        if relocation.kind not in (_ABS64, _RELATIVE64):
            raise SimulatorError(f"relocation of type {relocation.kind} at 0x{relocation.address:x} is not supported")
        scheduler.poke(base + relocation.address, base + relocation.value)
    return owner, base, buffers


def _place(kernarg: bytes, size: int) -> tuple[Any, int]:
    """(owner, address) of the arguments in memory, up to whole 64 bytes: compilers widen loads from there."""
    padded = -(-max(len(kernarg), size, 1) // 64) * 64
    owner, address = aligned(padded)
    start = address - owner.ctypes.data
    owner[start : start + len(kernarg)] = np.frombuffer(kernarg, np.uint8)
    return owner, address


def _fill_packet(
    address: int, grid: tuple[int, int, int], block: tuple[int, int, int], kernel: Kernel, kernarg: int, dynamic_lds: int
) -> None:
    """An AQL kernel dispatch packet (HSA Platform System Architecture, 2.9.6), for kernels that ask for their sizes there."""
    items = [g * b for g, b in zip(grid, block, strict=True)]
    descriptor = kernel.descriptor
    raw = struct.pack(
        "<HH3HH3III", 2, 3, *block, 0, *(n & 0xFFFFFFFF for n in items), descriptor.scratch_size, descriptor.lds_size + dynamic_lds
    )
    raw += struct.pack("<QQQQ", 0, kernarg, 0, 0)
    for index, word in enumerate(struct.unpack("<8q", raw)):
        scheduler.poke(address + 8 * index, word)


def _table(buffers: Sequence[Buffer]) -> np.ndarray[Any, np.dtype[np.int64]]:
    rows = sorted((b.address, b.nbytes, int(b.writable)) for b in buffers if b.nbytes > 0)
    return np.array(rows, np.int64).reshape(len(rows), 3)  # pyright: ignore[reportUnknownMemberType]


def _nearest(record: FaultRecord, buffers: Sequence[Buffer]) -> str:
    """How the address lies to the buffers: which one is nearest and how far it is past its end."""
    end = record.address + record.size

    def distance(buffer: Buffer) -> int:
        return max(0, buffer.address - record.address, end - (buffer.address + buffer.nbytes))

    if not buffers:
        return "and the launch has no buffers"
    inside = [b for b in buffers if b.nbytes and distance(b) == 0]
    if inside:
        return f"in {inside[0].name!r}, which is read-only"
    nearest = min(buffers, key=distance)
    size = f"{nearest.name!r} ({nearest.nbytes} bytes at 0x{nearest.address:x})"
    if record.address < nearest.address:
        return f"{nearest.address - record.address} bytes before the start of {size}"
    past = record.address - (nearest.address + nearest.nbytes)
    if past < 0:
        return f"{end - (nearest.address + nearest.nbytes)} of them past the end of {size}"
    return f"{past} bytes past the end of {size}"


def _counters(variant: _Variant, outcome: scheduler.Outcome, conflicts: bool) -> counters.Counters:
    total, by_mnemonic, by_class = counters.tally([block.mnemonics for block in variant.blocks], outcome.counts.tolist())
    sums = outcome.sums
    return counters.Counters(
        instructions=total,
        by_mnemonic=by_mnemonic,
        by_class=by_class,
        bytes_loaded=sums.get(Context.LOADED, 0),
        bytes_stored=sums.get(Context.STORED, 0),
        lds_bytes_loaded=sums.get(Context.LDS_LOADED, 0),
        lds_bytes_stored=sums.get(Context.LDS_STORED, 0),
        lds_cycles=sums.get(Context.LDS_CYCLES, 0) if conflicts else None,
        lds_conflicts=sums.get(Context.LDS_CONFLICTS, 0) if conflicts else None,
    )
