"""From a kernel's instructions to one function of host LLVM IR.

`i32 kernel(ptr state, ptr context)` runs one wave from the resume point that its state block names until it ends, reaches a barrier,
sleeps, has used up its slice of instructions, or faults, and returns why (`Reason`). Registers are in the state block whenever it returns.

The control-flow graph comes from the machine code alone: blocks begin at the entry, at branch targets, and behind whatever ends a block.
Code that can't be reached isn't lifted. Blocks are built one after the other; each notes what it reads and writes (`BlockUse`), and only
when all are known are terminators written, with stores of those registers that some later block may read.

EXEC is a constant where every wave of the launch is full and no instruction writes it: such kernels are lifted without masks.

An observer (checking mode) may be passed. Its methods are called while code is built, and may build code of their own:
`begin(lifting)` at the head of the function, `begin_block(lifting, pc)`, `before_instruction(lifting, instruction)`,
`after_instruction(lifting, instruction)`, `end_block(lifting, instruction)` ahead of a block's terminator,
`on_global_access(lifting, instruction, place, access, write, atomic)`, `on_lds_access(…)` likewise,
`on_scalar_access(lifting, instruction, address, size)`, `on_barrier(lifting, instruction)`, `on_end(lifting, instruction)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ...errors import UnsupportedInstructionError
from ...llvmtext import Function, Module, Value, const
from . import control, shapes
from .counters import count_block
from .helpers import ATTRIBUTES, Context, Fault, helpers_called, new_module
from .instruction import File, Instruction, Named, Operand, Registers
from .matrix import emit_matrix, is_matrix
from .memory import Lifting, emit_memory, is_memory
from .semantics import FloatMode
from .semantics.table import Generation
from .state import EXEC, VCC, BlockUse, Field, WaveState

KERNEL = "kernel"  # the function's name


class Reason(IntEnum):
    """Why a wave returned."""

    END = 0
    BARRIER = 1
    YIELD = 2  # its slice is used up
    SLEEP = 3
    FAULT = 4


@dataclass(frozen=True)
class Block:
    """A basic block: where it starts, and how often each mnemonic is in it. Its index is its resume point and its counter."""

    pc: int
    size: int
    mnemonics: dict[str, int]


@dataclass(frozen=True)
class Lifted:
    """A lifted kernel. `calls` are the helpers that it needs; `matrix` and `approximate` the mnemonics that a fidelity report names."""

    text: str
    blocks: tuple[Block, ...]
    calls: tuple[str, ...]
    vgprs: int
    agprs: int
    mnemonics: tuple[str, ...]


def writes_exec(instructions: Sequence[Instruction]) -> bool:
    """Whether any instruction may write EXEC."""
    return any(
        "saveexec" in i.mnemonic
        or "wrexec" in i.mnemonic
        or i.mnemonic.startswith("v_cmpx")
        or (bool(i.operands) and i.operands[0].base in (Named.EXEC, Named.EXEC_LO, Named.EXEC_HI) and not i.mnemonic.startswith("s_cmp"))
        for i in instructions
    )


def vector_registers(instructions: Sequence[Instruction]) -> tuple[int, int]:
    """How many VGPRs and AGPRs the instructions name."""
    most = {File.VGPR: 1, File.AGPR: 0}

    def look(operands: Sequence[Operand]) -> None:
        for operand in operands:
            base = operand.base
            if isinstance(base, Registers) and base.file in most:
                most[base.file] = max(most[base.file], base.first + base.count)

    for instruction in instructions:
        look(instruction.operands)
        if instruction.second is not None:
            look(instruction.second.operands)
    return most[File.VGPR], most[File.AGPR]


@dataclass
class _Pending:
    """A block whose terminator isn't written yet. `finish` writes it; `successors` are the blocks that may follow, at once or later."""

    label: str
    cache: Any
    use: BlockUse
    successors: tuple[int, ...]
    finish: Callable[[], None]
    live: int = 0


def _mask(keys: set[int]) -> int:
    result = 0
    for key in keys:
        result |= 1 << key
    return result


@dataclass
class Kernel:
    """What the lifter has to know of a kernel. `instructions` are those of its function, in order of address."""

    instructions: Sequence[Instruction]
    entry: int
    arch: str
    family: str
    generation: Generation
    wave: int
    mode: FloatMode
    full_exec: bool
    initial_vgprs: int = 1
    observer: Any = None


def emit_instruction(lifting: Lifting, kernel: Kernel, instruction: Instruction) -> None:
    """Lift one instruction that isn't a terminator. Raises UnsupportedInstructionError."""
    mnemonic = instruction.mnemonic
    if is_matrix(mnemonic):
        emit_matrix(lifting.state, instruction, kernel.family, kernel.arch)
    elif is_memory(mnemonic) and not control.is_ignored(mnemonic):
        emit_memory(lifting, instruction)
    elif control.emit_control(lifting, instruction):
        pass
    elif not shapes.emit(lifting.state, instruction, kernel.generation, kernel.mode):
        raise UnsupportedInstructionError(
            f"the simulator doesn't know {mnemonic} on {kernel.arch} (pc 0x{instruction.pc:x}: {instruction.text or mnemonic!r})",
            mnemonic=mnemonic,
            pc=instruction.pc,
        )


def lift(kernel: Kernel) -> Lifted:
    """Lift a kernel. Raises UnsupportedInstructionError for the first instruction that the simulator doesn't know."""
    return _Lifter(kernel).lift()


class _Lifter:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.instructions = kernel.instructions
        self.by_pc = {instruction.pc: index for index, instruction in enumerate(kernel.instructions)}
        self.module: Module = new_module()
        self.f = Function(self.module, KERNEL, "i32", [("ptr", "s"), ("ptr", "g")], suffix=ATTRIBUTES)
        vgprs, agprs = vector_registers(kernel.instructions)
        self.vgprs, self.agprs = max(vgprs, kernel.initial_vgprs), agprs
        self.state = WaveState(self.f, kernel.wave, self.f.arguments[0], vgprs=self.vgprs, agprs=agprs, full_exec=kernel.full_exec)
        self.lifting = Lifting(self.state, self.f.arguments[1], kernel.family, kernel.arch, kernel.observer)
        self.starts: list[int] = []  # pc of each block
        self.number: dict[int, int] = {}  # block of a pc
        self.blocks: list[Block] = []
        self.pending: list[_Pending] = []
        self.resumes: set[int] = {0}
        self.edges: list[tuple[str, int]] = []  # backward edges whose checks aren't written yet

    # ---- the graph ----------------------------------------------------------------------------------------------------------------------

    def _at(self, pc: int, source: Instruction | None = None) -> Instruction:
        if pc not in self.by_pc:
            where = f"{source.mnemonic} at pc 0x{source.pc:x} goes to" if source is not None else "the kernel runs on to"
            raise UnsupportedInstructionError(
                f"{where} pc 0x{pc:x}, where the function has no instruction", mnemonic=source.mnemonic if source else "", pc=pc
            )
        return self.instructions[self.by_pc[pc]]

    def _find_blocks(self) -> None:
        """Every block that can be reached, in order of address, with the entry as block 0."""
        leaders: set[int] = set()
        queue = [self.kernel.entry]
        while queue:
            pc = queue.pop()
            if pc in leaders:
                continue
            leaders.add(pc)
            while True:
                instruction = self._at(pc)
                ends = control.ends_block(instruction)
                if ends is None:
                    pc = instruction.next_pc
                    continue
                if instruction.target is not None:
                    self._at(instruction.target, instruction)
                    queue.append(instruction.target)
                if ends:
                    queue.append(instruction.next_pc)
                break
        self.starts = [self.kernel.entry, *sorted(leaders - {self.kernel.entry})]
        self.number = {pc: index for index, pc in enumerate(self.starts)}

    # ---- code ---------------------------------------------------------------------------------------------------------------------------

    def lift(self) -> Lifted:
        self._find_blocks()
        f = self.f
        f.position("entry")
        self.counts = f.load("ptr", f.gep(self.lifting.g, int(Context.COUNTS)), 8)
        if self.kernel.observer is not None:
            self.kernel.observer.begin(self.lifting)
        self.head = f.current
        for index, pc in enumerate(self.starts):
            self._block(index, pc)
        self._liveness()
        for pending in self.pending:
            f.position(pending.label)
            live = {key for key in pending.cache.dirty if pending.live >> key & 1}
            self.state.store_dirty(pending.cache, live)
            pending.finish()
        f.position(self.head)
        resume = f.load("i32", self.state.field_pointer(Field.RESUME), 4)
        cases = " ".join(f"i32 {index}, label %block{index}" for index in sorted(self.resumes - {0}))
        f.do(f"switch {resume}, label %block0 [ {cases} ]")
        mnemonics = sorted({name for block in self.blocks for name in block.mnemonics})
        text = str(self.module)
        return Lifted(text, tuple(self.blocks), tuple(helpers_called(self.module)), self.vgprs, self.agprs, tuple(mnemonics))

    def _block(self, index: int, pc: int) -> None:
        f, state, observer = self.f, self.state, self.kernel.observer
        f.position(f"block{index}")
        state.begin_block()
        inside: list[Instruction] = []
        at = pc
        while True:
            instruction = self._at(at)
            inside.append(instruction)
            at = instruction.next_pc
            if control.ends_block(instruction) is not None or at in self.number:
                break
        self._count(index, len(inside))
        if observer is not None:
            observer.begin_block(self.lifting, pc)
        last = inside[-1]
        for instruction in inside:
            if observer is not None:
                observer.before_instruction(self.lifting, instruction)
            if control.ends_block(instruction) is None:
                emit_instruction(self.lifting, self.kernel, instruction)
            if observer is not None:
                observer.after_instruction(self.lifting, instruction)
        if observer is not None:
            observer.end_block(self.lifting, last)
        self.blocks.append(Block(pc, last.next_pc - pc, count_block(inside)))
        successors, finish = self._terminator(last)
        self.pending.append(_Pending(f.current, state.end_block(), state.use, successors, finish))

    def _count(self, index: int, size: int) -> None:
        f, g = self.f, self.lifting.g
        place = f.gep(self.counts, 8 * index)
        f.store(f.add(f.load("i64", place, 8), 1), place, 8)
        budget = f.gep(g, int(Context.BUDGET))
        f.store(f.sub(f.load("i64", budget, 8), size), budget, 8)

    # ---- terminators --------------------------------------------------------------------------------------------------------------------

    def _terminator(self, last: Instruction) -> tuple[tuple[int, ...], Callable[[], None]]:
        """(blocks that may follow, what writes the terminator). Conditions are computed now; stores come before the terminator."""
        name, observer = last.mnemonic, self.kernel.observer
        ends = control.ends_block(last)
        if ends is None:
            following = self.number[last.next_pc]
            return (following,), lambda: self.f.branch(f"block{following}")
        if name.startswith("s_cbranch_"):
            condition = self._condition(last)
            assert last.target is not None
            taken, following = self.number[last.target], self.number[last.next_pc]

            def branch() -> None:
                self.f.branch_if(condition, self._edge(last, taken), self._edge(last, following))
                self._flush_edges()

            return (taken, following), branch
        if name in ("s_branch", "s_setpc_b64"):
            assert last.target is not None
            taken = self.number[last.target]

            def jump() -> None:
                self.f.branch(self._edge(last, taken))
                self._flush_edges()

            return (taken,), jump
        if name == "s_endpgm":
            if observer is not None:
                observer.on_end(self.lifting, last)
            return (), lambda: self.f.ret(const("i32", Reason.END))
        if name in ("s_barrier", "s_barrier_wait", "s_sleep"):
            if observer is not None and name != "s_sleep":
                observer.on_barrier(self.lifting, last)
            following = self.number[last.next_pc]
            reason = Reason.SLEEP if name == "s_sleep" else Reason.BARRIER
            return (following,), lambda: self._leave(following, reason)
        # A trap.
        pc = const("i32", last.pc)
        operands = [self.lifting.g, const("i32", Fault.TRAP), const("i64", control.trap_number(last)), const("i32", 0), const("i32", 0)]

        def trap() -> None:
            self.f.call("sim.fault", "void", [*operands, const("i32", 0), pc])
            self.f.ret(const("i32", Reason.FAULT))

        return (), trap

    def _leave(self, resume: int, reason: Reason) -> None:
        self.resumes.add(resume)
        self.f.store(const("i32", resume), self.state.field_pointer(Field.RESUME), 4)
        self.f.ret(const("i32", reason))

    def _condition(self, last: Instruction) -> Value:
        state = self.state
        what = last.mnemonic.removeprefix("s_cbranch_")
        if what in ("scc0", "scc1"):
            scc = state.read_scc()
            return scc if what == "scc1" else self.f.not_(scc)
        slot = {"vccz": VCC, "vccnz": VCC, "execz": EXEC, "execnz": EXEC}.get(what)
        if slot is None:
            raise UnsupportedInstructionError(
                f"the simulator doesn't know {last.mnemonic} on {self.kernel.arch} (pc 0x{last.pc:x})", mnemonic=last.mnemonic, pc=last.pc
            )
        zero = state.is_zero(slot)
        return zero if what.endswith("z") and not what.endswith("nz") else self.f.not_(zero)

    def _edge(self, last: Instruction, target: int) -> str:
        """The label to go to. Backward edges ask whether the slice is used up (a fault uses it up too)."""
        if self.starts[target] > last.pc:
            return f"block{target}"
        label = self.f.label("back")
        self.edges.append((label, target))
        return label

    def _flush_edges(self) -> None:
        f = self.f
        for label, target in self.edges:
            f.position(label)
            left = f.load("i64", f.gep(self.lifting.g, int(Context.BUDGET)), 8)
            away = f.label("yield")
            f.branch_if(f.icmp("sge", left, 0), f"block{target}", away)
            f.position(away)
            self._leave(target, Reason.YIELD)
        self.edges.clear()

    def _liveness(self) -> None:
        """Which registers some later block may read before they are written again: a backward fixed point."""
        used = [_mask(p.use.used) for p in self.pending]
        kept = [~_mask(p.use.written) for p in self.pending]
        live_in = list(used)
        changed = True
        while changed:
            changed = False
            for index in range(len(self.pending) - 1, -1, -1):
                out = 0
                for successor in self.pending[index].successors:
                    out |= live_in[successor]
                self.pending[index].live = out
                new = used[index] | (out & kept[index])
                if new != live_in[index]:
                    live_in[index], changed = new, True


def machine_level(instructions: int) -> int:
    """LLVM's code generation level: 1 pays off unless the function is huge."""
    return 1 if instructions <= 3000 else 0
