"""The checking mode of one kernel: what the lifter calls as it builds the kernel's code, and what builds the checks into it.

Everything that can be found without running is found when the observer is made (missing waits). The rest is code beside the kernel's own:
shadows of registers, LDS and scratch for undefined data (`shadow`, `rules`), and records of accesses for races (`records`). The kernel's
instructions are lifted by the very code that lifts them in the ordinary mode.

A wave's state block is followed by its shadow and, where accesses may outlive a barrier, by its rings. LDS is followed by its shadow and
its records, scratch by its shadow. Helpers that move data to registers move shadows too: they are called a second time with the mirror
context, whose LDS is the shadow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....errors import SimulatorError
from ....llvmtext import Value, const, vector
from ..accesses import LOADS, STORES, Access
from ..control import ends_block
from ..helpers import Context, stack, when
from ..indirect import HANDLERS
from ..instruction import Instruction, Named, Operand, Registers
from ..lifter import Kernel
from ..matrix import is_matrix
from ..memory import Lifting, Place, canonical, is_memory
from ..state import EXEC, VCC, VGPR_KEY, Field, WaveState, state_size
from . import records
from .effects import COUNTERS, Effects, Graph, Queue, graph_of
from .flow import Flow, flow, initially_defined
from .hazards import check_transcendentals
from .matrices import propagate_matrix
from .records import MIRROR, Entry, Hook, Kind, Mark
from .rules import propagate
from .shadow import ShadowState, any_bit, is_zero, zero
from .waits import Lines, analyse, missing_wait

# What undefined data was used for: added to eight times the number of the instruction.
USES = ("an address", "a branch condition", "the EXEC mask", "the data that it stores", "a register number")
ADDRESS, BRANCH, MASK, DATA, NUMBER = range(len(USES))
_RINGS = (Queue.LOAD, Queue.STORE, Queue.LDS, Queue.FLAT_VECTOR)
_CACHE_CLEANERS = ("buffer_gl0_inv", "buffer_inv", "global_inv")


class Observer:
    """Raises MissingWaitError when made, for the first missing wait in the kernel. `scalars` are the SGPRs that the ABI sets, `vectors` how
    many VGPRs; `wgp` says that a workgroup may run on two compute units."""

    def __init__(self, kernel: Kernel, scalars: Iterable[int], vectors: int, *, wgp: bool, lines: Lines | None = None) -> None:
        self.kernel = kernel
        self.graph: Graph = graph_of(kernel)
        analysis = analyse(self.graph)
        if analysis.hazards:
            raise missing_wait(analysis.hazards[0], kernel, lines)
        check_transcendentals(self.graph, lines)
        self.unfinished: Mapping[int, frozenset[Queue]] = analysis.unfinished
        self.rings = [q for q in _RINGS if any(q in queues for queues in self.unfinished.values())]
        self.initial = initially_defined(scalars, vectors)
        self.flow: Flow = flow(self.graph, self.initial)
        self.wgp = wgp
        self.numbers = {i.pc: number for number, i in enumerate(kernel.instructions)}
        touching = [pc for pc, e in sorted(self.graph.effects.items()) if e.access or _is_scalar_load(e.instruction)]
        if len(touching) > records.MAX_SITES:
            raise SimulatorError(f"the checking mode takes kernels with up to {records.MAX_SITES} memory instructions, not {len(touching)}")
        self.sites = {pc: number for number, pc in enumerate(touching)}
        self.touching = tuple(touching)
        self._part = 0
        self._head = 0

    @property
    def _shadow_offset(self) -> int:
        state = self.state
        return state_size(state.wave, state.vgprs, state.agprs)

    def extra_state(self, size: int) -> int:
        """Bytes that a wave's state block takes in all, if it takes `size` without checks."""
        return 2 * size + len(self.rings) * Entry(self.kernel.wave).ring

    # ---- called by the lifter ---------------------------------------------------------------------------------------------------------

    def begin(self, e: Lifting) -> None:
        """The head of the function: set up the shadow when a wave starts, and the mirror context whenever it runs."""
        f = e.f
        self.state: WaveState = e.state
        self.shadow = ShadowState(e.state, f.gep(e.state.pointer, self._shadow_offset))
        self.mirror = f.gep(e.g, MIRROR)
        lds = f.load("ptr", f.gep(e.g, int(Context.LDS)), 8)
        lds_bytes = f.load("i64", f.gep(e.g, int(Hook.LDS_BYTES)), 8)
        f.store(f.gep(lds, lds_bytes), f.gep(self.mirror, int(Context.LDS)), 8)
        begun = f.gep(e.state.pointer, int(Mark.BEGUN))
        with when(f, f.icmp("eq", f.load("i32", begun, 4), 0)):
            f.store(const("i32", 1), begun, 4)
            f.call("sim.race.begin", "void", [e.g, f.load("i64", e.state.field_pointer(Field.SCRATCH), 8)])
            for key in sorted(self.initial):
                if key < VGPR_KEY:
                    f.store(const("i32", 0), self.shadow.field_pointer(4 * key), 4)
                elif key % 2 == 0:
                    f.store(zero(self.state.lane_type), self.shadow.row_pointer((key - VGPR_KEY) // 2), 64)

    def begin_block(self, e: Lifting, pc: int) -> None:
        """A block begins."""
        self._head = pc
        self.shadow.begin(self.flow.defined[pc])

    def end_block(self, e: Lifting, last: Instruction) -> None:
        """Its instructions are done: look at the condition of a branch, and keep the shadows that later blocks read."""
        if last.mnemonic.startswith("s_cbranch_"):
            self._branch(e, last)
        defined = [self.flow.defined[pc] for pc in self.graph.successors[self._head]]
        self.shadow.finish(defined, self.flow.live[self._head])

    def before_instruction(self, e: Lifting, instruction: Instruction) -> None:
        """Follow an instruction's effect on shadows, except what the accesses of memory instructions do (`on_…`)."""
        self._part = 0
        self._instruction = instruction
        effects = self.graph.effects[instruction.pc]
        self._count(e, effects)
        name = canonical(instruction.mnemonic)
        if instruction.mnemonic.startswith(_CACHE_CLEANERS):
            phase = self._mark(e, Mark.PHASE)
            self._set_mark(e, Mark.CLEAN, e.f.add(phase, 1))
        if ends_block(instruction) is not None or (not effects.writes and not effects.access):
            return
        if is_matrix(instruction.mnemonic):
            propagate_matrix(self.shadow, instruction, self.kernel.family)
        elif name in ("ds_bpermute_b32", "ds_permute_b32"):
            self._permute(e, instruction, name)
        elif is_memory(instruction.mnemonic):
            if not effects.access:
                self._other_memory(e, instruction, name, effects)
        elif propagate(self.state, self.shadow, instruction, self.kernel.generation, self.kernel.mode):
            self._check_exec(e, instruction)
        else:
            self._otherwise(e, instruction, effects)

    def after_instruction(self, e: Lifting, instruction: Instruction) -> None:
        """Nothing is left to do."""

    def on_barrier(self, e: Lifting, instruction: Instruction) -> None:
        """A wave reaches a barrier: the next phase begins."""
        f = e.f
        phase = f.add(self._mark(e, Mark.PHASE), 1)
        with when(f, f.icmp("ugt", phase, records.MAX_PHASE), likely=False):
            operands = [const("i64", records.Finding.TOO_MANY_BARRIERS), *(const("i64", 0) for _ in range(5))]
            f.call("sim.race.report", "void", [e.g, *operands, const("i32", instruction.pc)])
        for number, _ in enumerate(self.rings):
            done, issued = self._counter(e, Mark.DONE, number), self._counter(e, Mark.ISSUED, number)
            operands = [e.g, self._ring(e, number), f.load("i32", done, 4), f.load("i32", issued, 4), phase]
            f.call(f"sim.race.cross.{self.state.wave}", "void", operands)
        self._set_mark(e, Mark.PHASE, phase)

    def on_end(self, e: Lifting, instruction: Instruction) -> None:
        """A wave ends."""

    def on_lds_access(self, e: Lifting, i: Instruction, place: Place, access: Access, write: bool, atomic: bool) -> None:
        """An LDS instruction's addresses are known."""
        f, wave = e.f, self.state.wave
        self._check_addresses(e, i, place)
        wide = vector(wave, "i64")
        address = f.add(f.cast("zext", place.arguments[0], wide), f.splat(f.cast("zext", place.arguments[1], "i64"), wave))
        self._record(e, i, "lds", address, place.mask, access, write, atomic)
        if atomic:
            self._lds_atomic(e, i, place, access)
        else:
            self._move_shadow(e, i, place, access, write)

    def on_global_access(self, e: Lifting, i: Instruction, place: Place, access: Access, write: bool, atomic: bool) -> None:
        """A global or scratch instruction's addresses are known."""
        f, wave = e.f, self.state.wave
        self._check_addresses(e, i, place)
        if place.form == "scratch":
            size = f.load("i64", f.gep(e.g, int(Hook.SCRATCH_BYTES)), 8)
            shadow_place = Place("scratch", (f.add(place.arguments[0], size), place.arguments[1]), place.mask)
            self._move_shadow(e, i, shadow_place, access, write)
            return
        mask = place.mask
        if place.form == "vector":
            address = place.arguments[0]
        else:
            address = f.add(f.cast("zext", place.arguments[1], vector(wave, "i64")), f.splat(place.arguments[0], wave))
        if place.form == "buffer":
            # Lanes out of range touch nothing; one that is partly in range is passed over.
            end = f.intrinsic("uadd.sat", [place.arguments[2], const(self.state.lane_type, access.size - 1)])
            inside = f.icmp("ult", end, f.splat(place.arguments[3], wave))
            mask = f.and_(mask, f.bitcast(inside, self.state.mask_bits))
        self._record(e, i, "global", address, mask, access, write, atomic)
        if write:
            self._check_data(e, i, access, mask)
        if not write or atomic:
            for row, half in self._target(i, access, atomic):
                if half:
                    self.shadow.write_half(row, half == "h", zero(vector(wave, "i16")))
                else:
                    self.shadow.write_vgpr(row, zero(self.state.lane_type))

    def on_scalar_access(self, e: Lifting, i: Instruction, address: Value, size: int) -> None:
        """A scalar load's address is known."""
        f = e.f
        place = f.insert(zero("<1 x i64>"), address, 0)
        site, phase, pc = const("i32", self.sites[i.pc]), self._mark(e, Mark.PHASE), const("i32", i.pc)
        f.call(f"sim.race.global.{size}.r.1", "void", [e.g, place, const("i64", 1), phase, site, pc, const("i32", -1)])

    # ---- small pieces -------------------------------------------------------------------------------------------------------------------

    def _mark(self, e: Lifting, mark: Mark) -> Value:
        return e.f.load("i32", e.state.field_pointer(mark), 4)

    def _set_mark(self, e: Lifting, mark: Mark, value: Value) -> None:
        e.f.store(value, e.state.field_pointer(mark), 4)

    def _counter(self, e: Lifting, mark: Mark, ring: int) -> Value:
        return e.state.field_pointer(mark + 4 * ring)

    def _ring(self, e: Lifting, number: int) -> Value:
        return e.f.gep(e.state.pointer, 2 * self._shadow_offset + number * Entry(self.state.wave).ring)

    def _lanes(self, mask: Value) -> Value:
        """A lane mask as i64."""
        return self.state.f.cast("zext", mask, "i64")

    def _complain(self, e: Lifting, i: Instruction, flags: Value, use: int, mask: Value | None = None, later: bool = False) -> None:
        """Report the lanes (or the one scalar) where `flags` is set; nothing is built where it is known that none is."""
        if is_zero(flags):
            return
        f = e.f
        bits = f.cast("zext", flags, "i64") if flags.type == "i1" else self._lanes(f.bitcast(flags, self.state.mask_bits))
        if mask is not None and flags.type != "i1":
            bits = f.and_(bits, self._lanes(mask))
        site = const("i64", 8 * self.numbers[i.pc] + use)
        f.call("sim.race.undefined", "void", [e.g, bits, site, const("i32", int(later)), const("i32", i.pc)])

    def _any(self, values: Iterable[Value]) -> Value:
        """Per lane, or i1 where all are scalar: whether any has an undefined bit."""
        found = [flags for value in values if not is_zero(flags := any_bit(self.shadow, value))]
        if not found:
            return zero("i1")
        if any(flags.type != "i1" for flags in found):
            found = [self.state.f.splat(flags, self.state.wave) if flags.type == "i1" else flags for flags in found]
        whole = found[0]
        for flags in found[1:]:
            whole = self.state.f.or_(whole, flags)
        return whole

    def _registers(self, operands: Iterable[Operand]) -> list[Value]:
        """The shadows of all registers of some operands."""
        shadow, found = self.shadow, list[Value]()
        for operand in operands:
            base = operand.base
            if isinstance(base, Registers) and base.file.value in ("v", "a"):
                found += [shadow.read_vgpr(shadow.row(base, index)) for index in range(base.count)]
            elif isinstance(base, Registers):
                found += [shadow.read_scalar(Registers(base.file, base.first + index)) for index in range(base.count)]
            elif isinstance(base, Named) and base not in (Named.OFF, Named.NULL):
                found.append(shadow.read_scalar(base))
        return found

    # ---- memory --------------------------------------------------------------------------------------------------------------------------

    def _split(self, i: Instruction) -> tuple[list[Operand], list[Operand]]:
        """(data, address) operands of a vector memory instruction."""
        name, operands = canonical(i.mnemonic), list(i.operands)
        if "_load_" in name:
            return operands[:1], operands[1:]
        if name.startswith("buffer_"):
            return operands[:1], operands[1:]
        if name.startswith("ds_"):
            if "_rtn" in name:
                operands = operands[1:]
            return operands[1:], operands[:1]
        if "_atomic_" in name and len(operands) == (3 if name.startswith("flat_") else 4):
            operands = operands[1:]
        return operands[1:2], [operands[0], *operands[2:]]

    def _check_addresses(self, e: Lifting, i: Instruction, place: Place) -> None:
        if self._part == 0:
            self._complain(e, i, self._any(self._registers(self._split(i)[1])), ADDRESS, place.mask)

    def _rows(self, i: Instruction, access: Access, write: bool) -> range:
        """The data registers of this part of an access: the two parts of a double LDS access are told one after the other."""
        double = "_2addr_" in canonical(i.mnemonic)
        data = self._split(i)[0][self._part if write and double else 0]
        assert isinstance(data.base, Registers)
        first = self.shadow.row(data.base, self._part * access.dwords if double and not write else 0)
        if double:
            self._part += 1
        return range(first, first + access.dwords)

    def _target(self, i: Instruction, access: Access, atomic: bool) -> list[tuple[int, str]]:
        """(row, half) of what a global load or returning atomic writes."""
        operands = i.operands
        if atomic and not self.graph.effects[i.pc].writes:
            return []
        base = operands[0].base
        assert isinstance(base, Registers)
        first = self.shadow.row(base)
        return [(first + index, access.half) for index in range(access.dwords)]

    def _check_data(self, e: Lifting, i: Instruction, access: Access, mask: Value) -> None:
        shadow, f = self.shadow, e.f
        parts: list[Value] = []
        for operand in self._split(i)[0]:
            base = operand.base
            assert isinstance(base, Registers)
            count = min(base.count, access.dwords) if "_atomic_" not in i.mnemonic else base.count
            parts += [shadow.read_vgpr(shadow.row(base, index)) for index in range(count)]
        if access.size < 4:
            bits = (1 << 8 * access.size) - 1 << (16 if access.half == "h" else 0)
            parts = [part if is_zero(part) else f.and_(part, bits) for part in parts]
        self._complain(e, i, self._any(parts), DATA, mask, later=True)

    def _record(
        self, e: Lifting, i: Instruction, space: str, address: Value, mask: Value, access: Access, write: bool, atomic: bool
    ) -> None:
        """Enter an access into the records, and into a ring where it may outlive a barrier."""
        f, wave = e.f, self.state.wave
        kind = "a" if atomic else "w" if write else "r"
        lanes, site = self._lanes(mask), const("i32", self.sites[i.pc])
        operands = [e.g, address, lanes, self._mark(e, Mark.PHASE), site, const("i32", i.pc)]
        if space == "global":
            bypasses = any(i.modifiers.get(key) for key in ("glc", "sc0", "sc1", "scope"))
            operands.append(self._mark(e, Mark.CLEAN) if self.wgp and not bypasses else const("i32", -1))
        f.call(f"sim.race.{space}.{access.size}.{kind}.{wave}", "void", operands)
        for number, queue in enumerate(self.rings):
            if queue in self.unfinished.get(i.pc, ()):
                code = {"r": Kind.READ, "w": Kind.WRITE, "a": Kind.ATOMIC}[kind] + (Kind.IN_LDS if space == "lds" else 0)
                issued = f.load("i32", self._counter(e, Mark.ISSUED, number), 4)
                entry = [self._ring(e, number), issued, address, lanes, site, const("i32", access.size), const("i32", code)]
                f.call(f"sim.race.follow.{wave}", "void", entry)

    def _count(self, e: Lifting, effects: Effects) -> None:
        """Keep the counters of the rings."""
        f, counters = e.f, COUNTERS[self.kernel.generation]
        for number, queue in enumerate(self.rings):
            issued, done = self._counter(e, Mark.ISSUED, number), self._counter(e, Mark.DONE, number)
            for counter, value in effects.waits:
                if counter == counters[queue]:
                    finished = f.intrinsic("usub.sat", [f.load("i32", issued, 4), const("i32", value)])
                    f.store(f.intrinsic("umax", [finished, f.load("i32", done, 4)]), done, 4)
            for _ in range(effects.issues.count(queue)):
                f.store(f.add(f.load("i32", issued, 4), 1), issued, 4)

    def _move_shadow(self, e: Lifting, i: Instruction, place: Place, access: Access, write: bool) -> None:
        """Move shadows as the instruction moves data, with the same helper."""
        shadow, f = self.shadow, e.f
        rows = self._rows(i, access, write)
        partly = not write and (not shadow.full_exec or bool(access.half) or i.mnemonic.startswith("flat_"))
        if write or partly:
            for row in rows:
                shadow.read_vgpr(row)
            shadow.flush(rows)
        shadow.forget_clean()
        kind, op = ("store", _store_name(access)) if write else ("load", _load_name(access))
        operands = [self.mirror, shadow.row_pointer(rows.start), *place.arguments, place.mask, const("i32", i.pc)]
        f.call(f"sim.{kind}.{place.form}.{op}.{shadow.wave}", "void", operands)
        if not write:
            shadow.written_in_memory(rows, partly=partly)

    def _lds_atomic(self, e: Lifting, i: Instruction, place: Place, access: Access) -> None:
        """What is in LDS afterwards is undefined where it was, or where the operand is."""
        shadow, f, wave = self.shadow, e.f, self.state.wave
        old = stack(f, f"[{access.dwords} x {shadow.lane_type}]")
        shadow.forget_clean()
        op = _load_name(access)
        where = [*place.arguments, place.mask, const("i32", i.pc)]
        f.call(f"sim.load.lds.{op}.{wave}", "void", [self.mirror, old, *where])
        data = self._any(self._registers(self._split(i)[0]))
        spread = zero(shadow.lane_type) if is_zero(data) else f.cast("sext", data, shadow.lane_type)
        parts = [f.load(shadow.lane_type, f.gep(old, 4 * wave * index), 64) for index in range(access.dwords)]
        for index, part in enumerate(parts):
            f.store(f.or_(part, spread), f.gep(old, 4 * wave * index), 64)
        f.call(f"sim.store.lds.{op}.{wave}", "void", [self.mirror, old, *where])
        if self.graph.effects[i.pc].writes:
            base = i.operands[0].base
            assert isinstance(base, Registers)
            for index, part in enumerate(parts):
                shadow.write_vgpr(shadow.row(base, index), part)

    def _permute(self, e: Lifting, i: Instruction, name: str) -> None:
        """Shadows move between lanes as the data do; an undefined lane number makes its lane undefined."""
        shadow, state, f = self.shadow, self.state, e.f
        target, address, data = (operand.base for operand in i.operands[:3])
        assert isinstance(target, Registers)
        assert isinstance(address, Registers)
        assert isinstance(data, Registers)
        moved, wrong = shadow.read_vgpr(shadow.row(data)), any_bit(shadow, shadow.read_vgpr(shadow.row(address)))
        if not is_zero(moved):
            offset = i.modifiers.get("offset", 0)
            lanes = f.add(state.read_vgpr(state.row(address)), const(state.lane_type, offset if isinstance(offset, int) else 0))
            result = stack(f, shadow.lane_type)
            f.store(zero(shadow.lane_type), result, 64)
            group = 64 if state.wave == 64 and self.kernel.family in ("gfx9", "gfx90a") else 32
            f.call(f"sim.{name[3:-4]}.{state.wave}.{group}", "void", [result, lanes, moved, e.mask()])
            moved = f.load(shadow.lane_type, result, 64)
        if not is_zero(wrong):
            moved = f.or_(moved, f.cast("sext", wrong, shadow.lane_type))
        shadow.write_vgpr(shadow.row(target), moved)

    def _other_memory(self, e: Lifting, i: Instruction, name: str, effects: Effects) -> None:
        """Scalar loads, scratch and lane swizzles. Scratch instructions come back through `on_global_access`."""
        if _is_scalar_load(i):
            self._complain(e, i, self._any(self._registers(i.operands[1:])), ADDRESS)
            for key in effects.writes:
                self.shadow.write_sgpr(key, zero("i32"))
        elif not name.startswith("scratch_"):
            self._otherwise(e, i, effects)

    # ---- the rest ------------------------------------------------------------------------------------------------------------------------

    def _otherwise(self, e: Lifting, i: Instruction, effects: Effects) -> None:
        """The general rule by registers, for instructions that aren't in the table: register-indirect moves, swaps, lane swizzles."""
        shadow = self.shadow
        if i.mnemonic in HANDLERS and not i.mnemonic.startswith(("s_setreg", "s_getreg", "s_denorm", "s_round")):
            if "rel" in i.mnemonic:
                self._complain(e, i, any_bit(shadow, shadow.read_named(Named.M0)), NUMBER)
            shadow.real_m0 = True
            HANDLERS[i.mnemonic](shadow, i)
            shadow.real_m0 = False
            return
        if i.mnemonic.startswith("ds_swizzle"):
            sources = self._registers(i.operands[1:2])
        else:
            sources = [shadow.read_vgpr((key - VGPR_KEY) // 2) for key in effects.reads if key >= VGPR_KEY]
            sources += [shadow.read_sgpr(key) for key in effects.reads if key < EXEC]
        flags = self._any(sources)
        lanes = flags if flags.type != "i1" or is_zero(flags) else e.f.splat(flags, self.state.wave)
        anywhere = flags
        if flags.type != "i1":
            anywhere = e.f.icmp("ne", e.f.bitcast(flags, self.state.mask_bits), 0)
        whole = zero(shadow.lane_type)
        if not is_zero(lanes):
            # A swizzle may read any lane.
            spread = e.f.splat(anywhere, self.state.wave) if i.mnemonic.startswith("ds_swizzle") else lanes
            whole = e.f.cast("sext", spread, shadow.lane_type)
        for key in sorted(effects.writes):
            if key >= VGPR_KEY:
                if key % 2 == 0:
                    shadow.write_vgpr((key - VGPR_KEY) // 2, whole)
            elif key < EXEC:
                shadow.write_sgpr(key, zero("i32") if is_zero(anywhere) else e.f.cast("sext", anywhere, "i32"))
            elif key > EXEC + 1:
                shadow.write_scc(anywhere)

    def _check_exec(self, e: Lifting, i: Instruction) -> None:
        for value in self.shadow.exec_writes:
            flags = any_bit(self.shadow, value)
            if flags.type == "i1" and not is_zero(value) and value.type in ("i32", "i64"):
                # A mask as an integer: the lanes themselves.
                site = const("i64", 8 * self.numbers[i.pc] + MASK)
                bits = e.f.cast("zext", value, "i64")
                e.f.call("sim.race.undefined", "void", [e.g, bits, site, const("i32", 0), const("i32", i.pc)])
            else:
                self._complain(e, i, flags, MASK)
        self.shadow.exec_writes.clear()

    def _branch(self, e: Lifting, last: Instruction) -> None:
        what, f, shadow = last.mnemonic.removeprefix("s_cbranch_"), e.f, self.shadow
        if what.startswith("scc"):
            self._complain(e, last, shadow.read_scc(), BRANCH)
        elif what.startswith("vcc"):
            read = WaveState.read_sgpr if self.state.wave == 32 else WaveState.read_sgpr64
            wrong, bits = read(shadow, VCC), read(self.state, VCC)
            if not is_zero(wrong):
                # A defined bit that is set decides, whatever the others are.
                known = f.icmp("eq", f.and_(bits, f.not_(wrong)), 0)
                self._complain(e, last, f.and_(known, f.icmp("ne", wrong, 0)), BRANCH)


def _is_scalar_load(instruction: Instruction) -> bool:
    return canonical(instruction.mnemonic).startswith(("s_load_", "s_buffer_load_"))


def _load_name(access: Access) -> str:
    """The key in LOADS."""
    return next(name for name, each in LOADS.items() if each == access)


def _store_name(access: Access) -> str:
    """The key in STORES."""
    return next(name for name, each in STORES.items() if each == access)
