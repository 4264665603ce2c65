"""Which registers an instruction reads and writes, and what it sets going in memory.

Registers come from the lifter itself: an instruction is lifted into a function that is thrown away, on a state that notes what is touched
(`_Recorder`). So there is no second description of operands that could disagree with what runs. EXEC counts as all ones there: a lane that
isn't written is no read of the old value. The halves of a vector register are told apart, for code with 16-bit registers lets a load into
one half run while it uses the other.

Memory operations count in queues. A queue is served in order or not, and a counter counts the operations of one or several queues that
haven't finished (RDNA3 ISA, 4.4 and 5.6; LLVM's SIInsertWaitcnts has the same rules for all generations).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from ....llvmtext import Function, Value, vector
from ..accesses import Access
from ..control import ends_block
from ..helpers import new_module
from ..instruction import File, Instruction, Named, Operand, Registers
from ..lifter import Kernel, emit_instruction, vector_registers
from ..memory import Lifting, Place, canonical
from ..semantics.table import Generation
from ..state import EXEC, M0, SCC, TTMP, VCC, VGPR_KEY, WaveState


class Queue(Enum):
    """Where operations wait for their turn. `counter` of a generation is in COUNTERS."""

    LOAD = "vector load"  # and atomics that return
    STORE = "vector store"  # and atomics that don't
    LDS = "LDS"
    SCALAR = "scalar load"
    MESSAGE = "message"
    FLAT_VECTOR = "flat"  # a flat access may go to memory or to LDS, and counts in both: before gfx10, it finished in either at any time
    FLAT_LDS = "flat (LDS)"


_IN_ORDER = frozenset({Queue.LOAD, Queue.STORE, Queue.LDS})
_BEFORE_GFX10 = {
    Queue.LOAD: "vmcnt", Queue.STORE: "vmcnt", Queue.LDS: "lgkmcnt", Queue.SCALAR: "lgkmcnt", Queue.MESSAGE: "lgkmcnt",
    Queue.FLAT_VECTOR: "vmcnt", Queue.FLAT_LDS: "lgkmcnt",
}  # fmt: skip
_GFX12 = {
    Queue.LOAD: "loadcnt", Queue.STORE: "storecnt", Queue.LDS: "dscnt", Queue.SCALAR: "kmcnt", Queue.MESSAGE: "kmcnt",
    Queue.FLAT_VECTOR: "loadcnt", Queue.FLAT_LDS: "dscnt",
}  # fmt: skip
COUNTERS: dict[Generation, dict[Queue, str]] = {
    Generation.GFX9: _BEFORE_GFX10,
    Generation.GFX10: _BEFORE_GFX10 | {Queue.STORE: "vscnt"},
    Generation.GFX11: _BEFORE_GFX10 | {Queue.STORE: "vscnt"},
    Generation.GFX12: _GFX12,
    Generation.GFX125: _GFX12,
}
LANE_EXCHANGES = ("ds_bpermute_", "ds_permute_", "ds_swizzle_")  # LDS instructions that don't touch LDS
LIMIT = 63  # a counter's highest value: more operations than that are never under way


def in_order(queue: Queue) -> bool:
    """Whether operations of a queue finish in the order of their issue."""
    return queue in _IN_ORDER


@dataclass(frozen=True)
class Effects:
    """What one instruction does. Registers are keys: SGPR slots, `SCC`, and for the halves of vector registers VGPR_KEY + 2 * row + half.

    `issues` are the queues that it joins; `waits` counter values that are waited for; `access` says that lanes touch LDS or global memory.
    """

    instruction: Instruction
    reads: frozenset[int]
    writes: frozenset[int]
    issues: tuple[Queue, ...] = ()
    waits: tuple[tuple[str, int], ...] = ()
    access: bool = False


def register_name(key: int, kernel_vgprs: int = 1 << 30) -> str:
    """A register as assembly spells it."""
    if key >= VGPR_KEY:
        row = (key - VGPR_KEY) // 2
        return f"v{row}" if row < kernel_vgprs else f"a{row - kernel_vgprs}"
    named = {VCC: "vcc_lo", VCC + 1: "vcc_hi", M0: "m0", EXEC: "exec_lo", EXEC + 1: "exec_hi", SCC: "scc"}
    return named.get(key) or (f"ttmp{key - TTMP}" if key >= TTMP else f"s{key}")


def _issues(name: str, writes: frozenset[int], generation: Generation) -> tuple[Queue, ...]:
    if name.startswith(("buffer_gl", "buffer_wb", "buffer_inv", "global_inv", "global_wb")):
        return ()
    if name.startswith("flat_"):
        loads, lds = (Queue.FLAT_VECTOR, Queue.FLAT_LDS) if generation is Generation.GFX9 else (Queue.LOAD, Queue.LDS)
        return (loads if writes else Queue.STORE, lds)
    if name.startswith(("global_", "buffer_", "scratch_")):
        # Before gfx10 one counter serves loads and stores, in order.
        return (Queue.LOAD if "_load_" in name or writes or generation is Generation.GFX9 else Queue.STORE,)
    if name.startswith("ds_"):
        return () if name == "ds_nop" else (Queue.LDS,)
    if name.startswith(("s_load_", "s_buffer_load_", "s_memtime", "s_memrealtime", "s_dcache_")):
        return (Queue.SCALAR,)
    return (Queue.MESSAGE,) if name.startswith("s_sendmsg") else ()


def _waits(instruction: Instruction, counters: Iterable[str]) -> tuple[tuple[str, int], ...]:
    name = instruction.mnemonic
    if name == "s_wait_idle":
        return tuple((counter, 0) for counter in sorted(set(counters)))
    if not name.startswith("s_wait") or name in ("s_waitcnt_depctr", "s_wait_alu", "s_wait_event"):
        return ()
    if any(operand.base is not Named.NULL and isinstance(operand.base, Registers) for operand in instruction.operands):
        return ()  # an SGPR adds to the count: nothing is known of it
    return tuple(sorted((counter, value) for counter, value in instruction.modifiers.items() if isinstance(value, int)))


def halves(rows: Iterable[int]) -> set[int]:
    """The keys of whole vector registers."""
    return {VGPR_KEY + 2 * row + half for row in rows for half in (0, 1)}


class _Recorder(WaveState):
    """A state whose accesses are noted, one instruction at a time."""

    def __init__(self, function: Function, wave: int, vgprs: int, agprs: int) -> None:
        super().__init__(function, wave, function.arguments[0], vgprs=vgprs, agprs=agprs, full_exec=True)
        self.read: set[int] = set()
        self.written: set[int] = set()
        self.access: Access | None = None

    def start(self) -> None:
        """Begin another instruction."""
        self.begin_block()
        self.f.position(self.f.label("instruction"))
        self.read, self.written, self.access = set(), set(), None

    def scalars(self) -> tuple[set[int], set[int]]:
        """The scalar registers read and written, as `BlockUse` has them."""
        return {key for key in self.use.used if key < VGPR_KEY}, {key for key in self.use.written if key < VGPR_KEY}

    def _reads(self, keys: set[int]) -> None:
        self.read |= keys - self.written

    def read_vgpr(self, row: int) -> Value:
        self._reads(halves([row]))
        return super().read_vgpr(row)

    def read_half(self, row: int, high: bool) -> Value:
        self._reads({VGPR_KEY + 2 * row + high})
        return self.f.cast("trunc", super().read_vgpr(row), vector(self.wave, "i16"))

    def write_vgpr(self, row: int, value: Value, masked: bool = True) -> None:
        super().write_vgpr(row, value, masked)
        self.written |= halves([row])

    def write_half(self, row: int, high: bool, value: Value, masked: bool = True) -> None:
        super().write_vgpr(row, self.f.cast("zext", value, self.lane_type), masked)
        self.written.add(VGPR_KEY + 2 * row + high)

    def flush(self, rows: Iterable[int]) -> None:
        rows = list(rows)
        self._reads(halves(rows))
        super().flush(rows)

    def written_in_memory(self, rows: Iterable[int], *, partly: bool = False) -> None:
        rows = list(rows)
        super().written_in_memory(rows, partly=partly)
        self.written |= halves(rows)

    # As the observer of `Lifting`.

    def on_global_access(self, e: Lifting, i: Instruction, place: Place, access: Access, write: bool, atomic: bool) -> None:
        self.access = access

    on_lds_access = on_global_access

    def on_scalar_access(self, e: Lifting, i: Instruction, address: Value, size: int) -> None:
        pass


def _operand_keys(state: WaveState, operands: Iterable[Operand]) -> set[int]:
    """The vector registers that operands name."""
    bases = [o.base for o in operands if isinstance(o.base, Registers) and o.base.file in (File.VGPR, File.AGPR)]
    return halves(state.row(base, index) for base in bases for index in range(base.count))


def _branch_reads(instruction: Instruction, wave: int) -> set[int]:
    what = instruction.mnemonic.removeprefix("s_cbranch_")
    if what.startswith("scc"):
        return {SCC}
    if what.startswith("vcc"):
        return {VCC, VCC + 1} if wave == 64 else {VCC}
    return set()


def _effects_of(kernel: Kernel, following: Mapping[int, object]) -> dict[int, Effects]:
    """The effects of each instruction whose pc is in `following`. Raises UnsupportedInstructionError as lifting does."""
    function = Function(new_module(), "thrown_away", "void", [("ptr", "s"), ("ptr", "g")])
    function.position("entry")
    vgprs, agprs = vector_registers(kernel.instructions)
    state = _Recorder(function, kernel.wave, max(vgprs, kernel.initial_vgprs), agprs)
    lifting = Lifting(state, function.arguments[1], kernel.family, kernel.arch, state)
    return {i.pc: _effects(kernel, lifting, state, i) for i in kernel.instructions if i.pc in following}


def _effects(kernel: Kernel, lifting: Lifting, state: _Recorder, instruction: Instruction) -> Effects:
    name = canonical(instruction.mnemonic)
    if ends_block(instruction) is not None:
        return Effects(instruction, frozenset(_branch_reads(instruction, kernel.wave)), frozenset())
    state.start()
    emit_instruction(lifting, kernel, instruction)
    reads, writes = state.scalars()
    reads |= state.read
    writes |= state.written
    access = state.access
    if access is not None and "_load_" in name:
        # A load into half a register, or one that may come from several places, keeps what it doesn't write: that is no read.
        reads = (reads - state.written) | _operand_keys(state, instruction.operands[1:])
        if access.half:
            writes = {key for key in writes if key & 1 == (access.half == "h")}
    elif access is not None and access.size < 4 and "_store_" in name:
        data = instruction.operands[0 if name.startswith("buffer_") else 1]
        others = [operand for operand in instruction.operands if operand is not data]
        unread = {key for key in _operand_keys(state, [data]) if key & 1 != (access.half == "h")}
        reads -= unread - _operand_keys(state, others)
    issues = _issues(name, frozenset(writes), kernel.generation)
    untracked = ("s_", "scratch_", *LANE_EXCHANGES)
    touches = any(queue is not Queue.MESSAGE for queue in issues) and not name.startswith(untracked)
    waits = _waits(instruction, COUNTERS[kernel.generation].values())
    return Effects(instruction, frozenset(reads), frozenset(writes), issues, waits, touches)


@dataclass(frozen=True)
class Graph:
    """The control flow of what can be reached. Blocks are the lifter's: `blocks` holds the pcs of each by its first, and `successors` the
    first pcs of the blocks that may follow. `effects` are by pc."""

    kernel: Kernel
    effects: Mapping[int, Effects]
    blocks: Mapping[int, tuple[int, ...]]
    successors: Mapping[int, tuple[int, ...]]


def graph_of(kernel: Kernel) -> Graph:
    """The control flow of a kernel with the effects of its instructions. Raises UnsupportedInstructionError as lifting does."""
    by_pc = {i.pc: i for i in kernel.instructions}
    following: dict[int, tuple[int, ...]] = {}
    heads = {kernel.entry}
    queue = [kernel.entry]
    while queue:
        pc = queue.pop()
        if pc in following or pc not in by_pc:
            continue
        instruction = by_pc[pc]
        ends = ends_block(instruction)
        after = [instruction.next_pc] if ends is not False else []
        if instruction.target is not None:
            after.append(instruction.target)
        if ends is not None:
            heads.update(after)
        following[pc] = tuple(after)
        queue += after
    blocks: dict[int, tuple[int, ...]] = {}
    for head in sorted(heads & following.keys()):
        inside = [head]
        while len(after := following[inside[-1]]) == 1 and after[0] not in heads and after[0] in following:
            inside.append(after[0])
        blocks[head] = tuple(inside)
    successors = {head: tuple(pc for pc in following[inside[-1]] if pc in following) for head, inside in blocks.items()}
    return Graph(kernel, _effects_of(kernel, following), blocks, successors)
