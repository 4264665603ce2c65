"""A register hazard of the first RDNA3 chips that software has to avoid.

On gfx1100 to gfx1103 a vector instruction that reads what a transcendental instruction writes may read too early where no more than 5
vector instructions, of them 1 transcendental, are between the two, unless something there waits for vector results: `s_waitcnt_depctr`
with va_vdst(0), or any memory instruction. (LLVM's hazard recogniser, "VALUTransUseHazard"; its arches have the feature of that name.)
Found on every path, as missing waits are (`waits`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ....errors import MissingWaitError
from ..instruction import Instruction, Number
from ..state import VGPR_KEY
from .effects import Effects, Graph
from .waits import Lines

ARCHES = frozenset(("gfx1100", "gfx1101", "gfx1102", "gfx1103"))
_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_f(16|32|64)|v_rcp_iflag_f32")
_MAX_VECTOR, _MAX_TRANSCENDENTAL = 5, 1
_MEMORY = ("global_", "flat_", "scratch_", "buffer_", "ds_", "image_", "exp")


@dataclass(frozen=True)
class _Since:
    """How far behind a transcendental instruction (at `pc`) is: vector and transcendental instructions after it."""

    pc: int
    vector: int
    transcendental: int


# What may be near, by vector register.
_State = dict[int, frozenset[_Since]]


def is_transcendental(instruction: Instruction) -> bool:
    """Whether the slow unit executes it."""
    return _TRANSCENDENTAL.fullmatch(instruction.mnemonic) is not None


def _is_vector(instruction: Instruction) -> bool:
    return instruction.mnemonic.startswith("v_")


def _waits_for_results(instruction: Instruction) -> bool:
    if instruction.mnemonic == "s_waitcnt_depctr":
        base = instruction.operands[0].base
        return isinstance(base, Number) and int(base.value) >> 12 & 15 == 0
    return instruction.mnemonic.startswith(_MEMORY)


def check_transcendentals(graph: Graph, lines: Lines | None) -> None:
    """Raise MissingWaitError for the first use that comes too early on some path."""
    if graph.kernel.arch not in ARCHES or not any(is_transcendental(e.instruction) for e in graph.effects.values()):
        return
    starts: dict[int, _State] = {graph.kernel.entry: {}}
    queue = {graph.kernel.entry}
    while queue:
        head = min(queue)
        queue.discard(head)
        state = dict(starts[head])
        for pc in graph.blocks[head]:
            _step(graph, graph.effects[pc], state, lines)
        for target in graph.successors[head]:
            before = starts.get(target)
            merged = state if before is None else _join(before, state)
            if merged != before:
                starts[target] = merged
                queue.add(target)


def _join(x: _State, y: _State) -> _State:
    return {row: x.get(row, frozenset()) | y.get(row, frozenset()) for row in x.keys() | y.keys()}


def _step(graph: Graph, effects: Effects, state: _State, lines: Lines | None) -> None:
    instruction = effects.instruction
    if _waits_for_results(instruction):
        state.clear()
        return
    if not _is_vector(instruction):
        return
    for row in sorted({(key - VGPR_KEY) // 2 for key in effects.reads if key >= VGPR_KEY} & state.keys()):
        since = min(state[row], key=lambda s: s.pc)
        _complain(graph, instruction, row, since.pc, lines)
    transcendental = int(is_transcendental(instruction))
    for row, near in list(state.items()):
        moved = frozenset(_Since(s.pc, s.vector + 1, s.transcendental + transcendental) for s in near)
        kept = frozenset(s for s in moved if s.vector <= _MAX_VECTOR and s.transcendental <= _MAX_TRANSCENDENTAL)
        if kept:
            state[row] = kept
        else:
            del state[row]
    if transcendental:
        for key in effects.writes:
            if key >= VGPR_KEY:
                state[(key - VGPR_KEY) // 2] = frozenset({_Since(instruction.pc, 0, 0)})


def _complain(graph: Graph, user: Instruction, row: int, pc: int, lines: Lines | None) -> None:
    made = graph.effects[pc].instruction
    location = lines(pc) if lines is not None else None
    where = f" ({location})" if location is not None else ""
    raise MissingWaitError(
        f"{user.mnemonic} at pc 0x{user.pc:x} reads v{row} too soon after {made.mnemonic} at pc 0x{made.pc:x}{where}: {graph.kernel.arch} "
        f"needs s_waitcnt_depctr depctr_va_vdst(0) between them, where there are no more than {_MAX_VECTOR} vector instructions",
        lines(user.pc) if lines is not None else None,
        mnemonic=user.mnemonic,
        pc=user.pc,
    )
