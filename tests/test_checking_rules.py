"""The rules of undefined data are sound: whatever undefined bits are taken to be, only bits that a rule calls undefined change.

For every instruction of the table, with random values, masks and undefined bits: the instruction runs on two fillings of its undefined
bits, the rule on either, and the results may differ only where both shadows have a bit set.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tessera import llvm
from tessera.llvmtext import Function
from tessera.runtime.simulator import helpers, shapes
from tessera.runtime.simulator.checking.rules import RULES, propagate
from tessera.runtime.simulator.checking.shadow import ShadowState
from tessera.runtime.simulator.instruction import File, Instruction, Number, Operand, Registers
from tessera.runtime.simulator.scheduler import aligned
from tessera.runtime.simulator.semantics import FloatMode, lookup
from tessera.runtime.simulator.semantics.table import IMPLIED_INPUTS, IMPLIED_OUTPUTS, Generation, mnemonics
from tessera.runtime.simulator.state import EXEC, M0, VGPR_OFFSET, Field, WaveState, state_size

GENERATION = Generation.GFX11
WAVE, VGPRS = 32, 24
SIZE = state_size(WAVE, VGPRS)
EXEC_SHADOW = 736  # in the free part of the shadow's state block
TRIALS = 12
_WIDE = frozenset(("f64", "i64", "u64", "b64", "2f32", "s64"))


def _operand(kind: str, number: int, scalar: bool) -> Operand:
    """Sources are registers 2, 4, 6, …; the destination is 10 or 20."""
    count = 2 if kind in _WIDE else 1
    if kind in ("simm", "uimm"):
        return Operand(Number("5", 5))
    if scalar or kind in ("mask", "s32", "s64"):
        return Operand(Registers(File.SGPR, 20 + number if scalar or kind != "mask" else 30 + number, count))
    return Operand(Registers(File.VGPR, number, count))


def instruction(mnemonic: str) -> Instruction:
    semantic = lookup(mnemonic, GENERATION)
    assert semantic is not None
    outputs = [k for k in semantic.outputs if k not in IMPLIED_OUTPUTS]
    operands = [_operand(kind, 10 + 4 * i, semantic.scalar) for i, kind in enumerate(outputs)]
    number = 2
    for index, kind in enumerate(semantic.inputs):
        if kind in IMPLIED_INPUTS or index == semantic.reads_destination:
            continue
        operands.append(_operand(kind, number, semantic.scalar))
        number += 2
    return Instruction(0, (0,), mnemonic, tuple(operands))


def probe(subject: Instruction) -> tuple[llvm.HostCode, Any]:
    """void probe(state, shadow): the rule, then the instruction."""
    module = helpers.new_module()
    f = Function(module, "probe", "void", [("ptr", "s"), ("ptr", "h")], suffix=helpers.ATTRIBUTES)
    f.position("entry")
    real = WaveState(f, WAVE, f.arguments[0], vgprs=VGPRS)
    shadow = ShadowState(real, f.arguments[1])
    real.begin_block()
    shadow.begin([])
    assert propagate(real, shadow, subject, GENERATION, FloatMode())
    for value in shadow.exec_writes:
        bits = f.bitcast(value, "i32") if value.type.startswith("<") else value
        f.store(f.cast("zext", bits, "i64"), f.gep(shadow.pointer, EXEC_SHADOW), 8)
    assert shapes.emit(real, subject, GENERATION, FloatMode())
    real.store_dirty(real.end_block())
    shadow.store_dirty(shadow.end_block())
    f.ret()
    code = llvm.load_host(llvm.compile_host(str(module), optimize=0, codegen=0))
    return code, ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address("probe"))


def _memory() -> tuple[Any, np.ndarray[Any, np.dtype[np.uint32]]]:
    owner, address = aligned(SIZE)
    start = address - owner.ctypes.data
    return owner, owner[start : start + SIZE].view(np.uint32)


def _undefined(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Undefined bits of some registers: none, all, a half, a byte, or any."""
    patterns = [0, 0, 0xFFFFFFFF, 0xFFFF0000, 0xFFFFFF00, 0x0000FF00, 0x80000000, 1]
    chosen = rng.choice(np.array(patterns, np.uint32), count)
    anything = rng.integers(0, 1 << 32, count, np.uint32) & rng.integers(0, 1 << 32, count, np.uint32)
    return np.where(rng.random(count) < 0.3, anything, chosen).astype(np.uint32)


def check(mnemonic: str) -> None:
    subject = instruction(mnemonic)
    code, call = probe(subject)
    owners = [_memory() for _ in range(4)]
    reals, shadows = [m for _, m in owners[:2]], [m for _, m in owners[2:]]
    rng = np.random.default_rng(len(mnemonic))
    first, scc = VGPR_OFFSET // 4, Field.SCC // 4
    for _ in range(TRIALS):
        values = rng.integers(0, 1 << 32, SIZE // 4, np.uint32)
        small = rng.integers(0, 40, SIZE // 4).astype(np.uint32)
        floats = rng.standard_normal(SIZE // 4).astype(np.float32).view(np.uint32)
        kind = rng.integers(0, 3, SIZE // 4)
        values = np.where(kind == 0, values, np.where(kind == 1, small, floats))
        hidden = _undefined(rng, SIZE // 4)
        # Whole registers are often defined, so that results are too.
        for row in range(VGPRS):
            if rng.random() < 0.4:
                hidden[first + WAVE * row : first + WAVE * (row + 1)] = 0
        hidden[EXEC : EXEC + 2] = 0
        values[M0] %= 8
        values[scc], hidden[scc] = rng.integers(0, 2), rng.integers(0, 2)
        values[Field.MODE // 4] = 0x3F0
        hidden[Field.SPILL // 4 : first] = 0
        flipped = values ^ (hidden & rng.integers(0, 1 << 32, SIZE // 4, np.uint32))
        flipped[scc] = values[scc] ^ (hidden[scc] & rng.integers(0, 2))
        for real, shadow, filling in zip(reals, shadows, (values, flipped), strict=True):
            real[:], shadow[:] = filling, hidden
            call(real.ctypes.data, shadow.ctypes.data)
        differs = reals[0] ^ reals[1]
        allowed = shadows[0] & shadows[1]
        written = slice(EXEC_SHADOW // 4, EXEC_SHADOW // 4 + 2)
        if allowed[written].any():
            continue  # EXEC was written with undefined bits: reported at once, and nothing that follows counts
        differs[EXEC : EXEC + 2] &= ~(shadows[0][written] | shadows[1][written])
        differs[Field.SPILL // 4 : first] = 0
        wrong = np.flatnonzero(differs & ~allowed)
        assert wrong.size == 0, (mnemonic, [(int(i), hex(int(differs[i])), hex(int(allowed[i]))) for i in wrong[:4]])
    del code  # until here it must live


def everything() -> list[str]:
    return [name for name in mnemonics(GENERATION) if lookup(name, GENERATION) is not None]


@pytest.mark.parametrize("mnemonic", sorted(name for name in RULES if lookup(name, GENERATION) is not None))
def test_rules(mnemonic: str) -> None:
    check(mnemonic)


@pytest.mark.medium
def test_the_general_rule() -> None:
    for mnemonic in everything():
        if mnemonic not in RULES:
            check(mnemonic)


def test_what_is_defined_stays_defined() -> None:
    """With nothing undefined, nothing becomes so."""
    for mnemonic in everything()[::17]:
        code, call = probe(instruction(mnemonic))
        (_, real), (_, shadow) = _memory(), _memory()
        real[:] = np.random.default_rng(1).integers(0, 1 << 32, SIZE // 4, np.uint32)
        real[Field.SCC // 4] = 1
        shadow[:] = 0
        call(real.ctypes.data, shadow.ctypes.data)
        assert not shadow.any(), mnemonic
        del code  # until here it must live
