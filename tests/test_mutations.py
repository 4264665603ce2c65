"""The checking mode proves itself: take one barrier, wait or fence away, and it must raise.

Barriers and waits are replaced by `s_nop 0` in the machine code, one at a time, with LLVM's listing to match. A fence is left out of the
LLVM IR, and the kernel compiled again. What raises is a subclass of SimulatorError of the checking mode's own. Whatever is truly redundant
is in `REDUNDANT`, with its reason; today nothing in the machine code of these kernels is.

A fence may have no effect on the machine code, or only on the order of instructions that compute: LLVM schedules those freely. Then the
memory instructions, waits and barriers are the same in the same order, and there is nothing to find.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import test_peers as test_peers_module
import tools

import corpus.kernels as kernels
import tessera as ts
from tessera import llvm
from tessera.errors import DataRaceError, MissingWaitError, SimulatorError, UninitializedDataError
from tessera.jit import CompiledKernel, JitFunction
from tessera.runtime import simulator
from tessera.runtime.arguments import bind
from tessera.runtime.simulator import engine
from tessera.runtime.simulator.instruction import Instruction
from tessera.runtime.simulator.loader import load_code_object
from tessera.targets.rocm import codeobject

ARCH = "gfx1151"
NOP = 0xBF800000
FOUND = (MissingWaitError, DataRaceError, UninitializedDataError)
Launch = tuple[tuple[int, int, int], tuple[Any, ...]]

# (kernel, text of the instruction, its number among those of this text) -> why nothing can go wrong without it.
REDUNDANT: dict[tuple[str, str, int], str] = {}


# ---- the kernels ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A compiled kernel and launches that take all of its paths."""

    name: str
    kernel: CompiledKernel
    launches: tuple[Launch, ...]


def numbers(*shape: int, dtype: Any = np.float16) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def case(name: str, function: JitFunction, launches: Sequence[Launch], num_waves: int = 4, arch: str = ARCH, **constants: int) -> Case:
    made = JitFunction(function.function, replace(function.options, num_waves=num_waves))
    return Case(name, made.compile(*launches[0][1], arch=arch, **constants), tuple(launches))


def matmul() -> Case:
    """64 x 64 x 32, four waves; ragged, over three tiles of K."""
    return case("matmul", kernels.matmul, [((2, 2, 1), (numbers(100, 96), numbers(96, 72), zeros(100, 72)))])


def matmul_of_eight_waves() -> Case:
    tile = {"BM": 128, "BN": 64, "BK": 32}
    return case("matmul, 8 waves", kernels.matmul, [((1, 1, 1), (numbers(128, 96), numbers(96, 64), zeros(128, 64)))], 8, **tile)


def matmul_of_transposed() -> Case:
    """B's columns are contiguous: another way into LDS."""
    return case("matmul, B transposed", kernels.matmul, [((1, 2, 1), (numbers(64, 96), numbers(72, 96).T, zeros(64, 72)))])


def softmax() -> Case:
    """A row over four waves, which reduce through LDS twice."""
    return case("softmax", kernels.softmax, [((2, 1, 1), (numbers(2, 1000, dtype=np.float32), zeros(2, 1000)))])


def layer_norm() -> Case:
    return case(
        "layer norm",
        kernels.layer_norm,
        [((2, 1, 1), (numbers(2, 1000), numbers(1000), numbers(1000), zeros(2, 1000, dtype=np.float16), 1e-5))],
    )


def softmax_for_gfx1100() -> Case:
    """Some of its waits are for results of the transcendental unit."""
    return case("softmax, gfx1100", kernels.softmax, [((2, 1, 1), (numbers(2, 1000, dtype=np.float32), zeros(2, 1000)))], arch="gfx1100")


def chained_dots() -> Case:
    """A barrier of the outer loop matters only where the inner loop has no iteration: K = 0, and two blocks of N."""
    launches = [((2, 1, 1), (numbers(40, k), numbers(k, 64), numbers(64, 32), zeros(40, 32))) for k in (64, 0)]
    return case("chained dots", kernels.chained_dots, launches)


@ts.jit
def turned_in_memory(a, c, T: ts.constexpr = 64):
    """Waves hand tiles on through global memory: A is read again after it was written, turned, and once more at an odd place."""
    x = ts.load(a, (0, 0), shape=(T, T))
    ts.store(a, (0, 0), x + 1)
    y = ts.load(a, (0, 0), shape=(T, T))
    ts.store(c, (0, 0), y.T)
    z = ts.load(a, offset=(1, 3), shape=(T, T))
    ts.store(c, offset=(T, 0), tile=z)


def through_memory() -> Case:
    return case("through memory", turned_in_memory, [((1, 1, 1), (numbers(65, 67, dtype=np.float32), zeros(128, 64)))])


CASES: dict[str, Callable[[], Case]] = {
    "softmax": softmax,
    "matmul": matmul,
    "matmul-8-waves": matmul_of_eight_waves,
    "matmul-b-transposed": matmul_of_transposed,
    "softmax-gfx1100": softmax_for_gfx1100,
    "layer-norm": layer_norm,
    "chained-dots": chained_dots,
    "through-memory": through_memory,
}
QUICK = ("softmax",)


@cache
def get(name: str) -> Case:
    return CASES[name]()


def run(subject: Case, code: bytes) -> None:
    """All launches of a case in the checking mode, with other code."""
    artifact = subject.kernel.artifact
    program = engine.prepare(code, artifact.kernel_name, check=True)
    for grid, arguments in subject.launches:
        fresh = [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in arguments]
        bound = bind(artifact, fresh)
        buffers = [engine.Buffer(b.name, b.address, b.size, b.writable) for b in bound.buffers]
        program.run(grid, (artifact.threads, 1, 1), bound.kernarg, buffers, check=True)


def finding(subject: Case, code: bytes) -> SimulatorError | None:
    try:
        run(subject, code)
    except FOUND as error:
        return error
    return None


# ---- taking things away ----------------------------------------------------------------------------------------------------------------


def without(data: bytes, instructions: Sequence[Instruction], victim: Instruction) -> bytes:
    """A code object with `s_nop 0` in an instruction's place, in `.text` and in the listing."""
    assert len(victim.words) == 1
    code = load_code_object(data)
    changed = bytearray(data)
    at = data.index(code.text) + victim.pc - code.text_address
    assert changed[at : at + 4] == victim.words[0].to_bytes(4, "little")
    changed[at : at + 4] = NOP.to_bytes(4, "little")
    if code.disassembly is not None:
        listing = code.disassembly.encode()
        start = data.index(listing)
        encoding = f"; {victim.words[0]:08X}".encode()
        lines = [m for m in re.finditer(rb"[^\n]*\n", listing) if m[0].rstrip().endswith(encoding)]
        number = [i.pc for i in instructions if i.words == victim.words].index(victim.pc)
        line = lines[number]
        tail = f"; {NOP:08X}\n".encode()
        changed[start + line.start() : start + line.end()] = b"\ts_nop 0".ljust(len(line[0]) - len(tail)) + tail
    return bytes(changed)


def may_go(instruction: Instruction) -> bool:
    return instruction.mnemonic.startswith(("s_barrier", "s_waitcnt"))


def test_the_code_can_be_changed() -> None:
    """The changed code decodes, and differs in one instruction."""
    subject = get("softmax")
    data = subject.kernel.artifact.code_object
    before = engine.prepare(data).instructions
    victims = [i for i in before if may_go(i)]
    for victim in victims[::4]:
        after = engine.prepare(without(data, before, victim)).instructions
        assert [i.pc for i in after] == [i.pc for i in before]
        assert [(x.text, y.text) for x, y in zip(before, after, strict=True) if x.text != y.text] == [(victim.text, "s_nop 0")]


def _marked(names: Sequence[str]) -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.medium) for name in names]


@pytest.mark.parametrize("name", _marked(list(CASES)))
def test_every_barrier_and_every_wait(name: str) -> None:
    subject = get(name)
    data = subject.kernel.artifact.code_object
    run(subject, data)
    instructions = engine.prepare(data, subject.kernel.artifact.kernel_name, check=True).instructions
    seen: dict[str, int] = {}
    kinds: set[str] = set()
    unnoticed: list[str] = []
    for victim in filter(may_go, instructions):
        number = seen[victim.text] = seen.get(victim.text, -1) + 1
        error = finding(subject, without(data, instructions, victim))
        redundant = (name, victim.text, number) in REDUNDANT
        if (error is None) != redundant:
            unnoticed.append(f"{victim.text} at pc 0x{victim.pc:x} ({number}): {error}")
        if error is not None:
            kinds.add(f"{victim.mnemonic}: {type(error).__name__}")
    assert not unnoticed, "\n".join(unnoticed)
    assert "s_barrier: DataRaceError" in kinds
    assert {"s_waitcnt: MissingWaitError", "s_waitcnt: DataRaceError"} <= kinds
    assert ("s_waitcnt_depctr: MissingWaitError" in kinds) == (name == "softmax-gfx1100")


def skeleton(code: bytes) -> list[str]:
    """What orders memory, in order: memory instructions, waits, barriers, cache control and branches."""
    instructions = engine.prepare(code).instructions
    return [i.mnemonic for i in instructions if not i.mnemonic.startswith("v_") and _orders(i.mnemonic)]


def _orders(mnemonic: str) -> bool:
    return mnemonic.startswith(("s_barrier", "s_wait", "s_load", "s_cbranch", "s_branch", "s_endpgm")) or not mnemonic.startswith("s_")


@pytest.mark.parametrize("name", _marked(list(CASES)))
def test_every_fence(name: str) -> None:
    subject = get(name)
    text = subject.kernel.llvm_ir
    code = subject.kernel.artifact.code_object

    def build(ir: str) -> bytes:
        return codeobject.link(llvm.compile_device(ir, subject.kernel.artifact.arch))

    assert load_code_object(build(text)).text == load_code_object(code).text
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if re.match(r"\s*fence ", line)]
    assert fences
    effects: list[str] = []
    for number in fences:
        changed = build("\n".join(lines[:number] + lines[number + 1 :]))
        if load_code_object(changed).text == load_code_object(code).text:
            effects.append("none")
        elif skeleton(changed) == skeleton(code):
            effects.append("schedule")
        else:
            assert finding(subject, changed) is not None, f"line {number + 1}: {lines[number].strip()}"
            effects.append("found")
    assert "found" in effects


def test_findings_name_the_line_of_python() -> None:
    """A whole launch: the artifact's line table leads from the machine code to the kernel's source."""
    subject = get("softmax")
    artifact = subject.kernel.artifact
    (grid, arguments), *_ = subject.launches
    instructions = engine.prepare(artifact.code_object).instructions
    barrier = next(i for i in instructions if i.mnemonic == "s_barrier")
    wait = next(i for i in reversed(instructions) if i.mnemonic == "s_waitcnt")
    for victim, expected in ((barrier, DataRaceError), (wait, MissingWaitError)):
        changed = replace(artifact, code_object=without(artifact.code_object, instructions, victim))
        with pytest.raises(expected) as caught:
            ts.runtime.launch(changed, grid, arguments, executor="rocm_sim", check=True)
        location = caught.value.location
        assert location is not None
        assert location.file.endswith("kernels.py")
        text = str(caught.value)
        assert re.search(r"kernels\.py:\d+\)", text)  # where the other instruction comes from
        assert "row" in text.splitlines()[2]  # the line itself


def test_the_environment_turns_the_mode_on(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = get("softmax")
    artifact = subject.kernel.artifact
    (grid, arguments), *_ = subject.launches
    instructions = engine.prepare(artifact.code_object).instructions
    changed = replace(
        artifact, code_object=without(artifact.code_object, instructions, next(i for i in instructions if i.mnemonic == "s_barrier"))
    )
    ts.runtime.launch(changed, grid, arguments, executor="rocm_sim")
    monkeypatch.setenv("TESSERA_SIM_CHECK", "1")
    with pytest.raises(DataRaceError):
        ts.runtime.launch(changed, grid, arguments, executor="rocm_sim")


def test_nothing_is_listed_as_redundant_that_does_not_exist() -> None:
    assert {name for name, _, _ in REDUNDANT} <= set(CASES)
    assert all(reason for reason in REDUNDANT.values())


# ---- other compilers' kernels --------------------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("name", ["softmax_f16_1024.gfx1151", "layernorm_f16_1024.gfx1100"])
def test_peers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Triton made, without listing."""
    tools.need("llvm-objdump")
    data = (test_peers_module.PEERS / f"{name}.hsaco").read_bytes()
    instructions = engine.prepare(data).instructions
    victims = list(filter(may_go, instructions))
    assert len(victims) > 10
    for victim in victims:
        changed = simulator.load(without(data, instructions, victim))
        monkeypatch.setattr(test_peers_module, "code", lambda _, changed=changed: changed)
        with pytest.raises(FOUND):
            test_peers_module.CASES[name.rpartition(".")[0]](name, True)
