"""Every instruction that LLVM emits for the corpus of kernels is one that the simulator lifts; the page that lists them is current.

Nothing runs here: kernels are compiled, their machine code is read back and lifted. `make test` takes part of one deal of the corpus, the
slow sweep three deals for both arches. The seeds are fixed.
"""

from __future__ import annotations

import warnings

import pytest
import simulator_coverage as coverage

from corpus.generated import Member, dealt
from corpus.kernels import DEFAULT_CONFIGURATIONS, matmul
from tessera import dtypes
from tessera.errors import TesseraWarning
from tessera.frontend.parameters import Array
from tessera.jit import CompiledKernel, JitFunction, Options
from tessera.runtime.simulator import lifter
from tessera.runtime.simulator.engine import Program
from tessera.runtime.simulator.loader import load_code_object
from tests import tools

ARCHES = ("gfx1100", "gfx1151")
QUICK = [member for i, member in enumerate(dealt(1, seed=7)) if i % 4 == 0 and not (member.tile == "large" and member.waves < 3)]


def check(compiled: CompiledKernel) -> None:
    """Lift the machine code, for full waves and for partial ones; its mnemonics are on LLVM's list and marked as there."""
    program = Program(load_code_object(compiled.code_object), compiled.artifact.kernel_name, None)
    for full in (True, False):
        lifter.lift(program._lifter_input(full))
    known, arch = coverage.instructions(), compiled.artifact.arch
    for instruction in program.instructions:
        for half in (instruction, instruction.second):
            if half is not None:
                assert half.mnemonic in known
                # The end of LLVM's branch beyond 128 KiB is taken for a branch; any other jump to a register is refused.
                far_branch = half.mnemonic == "s_setpc_b64" and half.target is not None
                assert far_branch or coverage.implemented(half.mnemonic), f"{half.mnemonic} is not marked as there"
                assert arch == "gfx1151" or not known[half.mnemonic]


def compile_quietly(member: Member, arch: str) -> CompiledKernel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TesseraWarning)
        return member.compile(arch)


@pytest.mark.medium
@pytest.mark.parametrize(("number", "member"), list(enumerate(QUICK)), ids=lambda p: getattr(p, "name", None))
def test_the_simulator_knows_what_llvm_emits(number: int, member: Member) -> None:
    check(compile_quietly(member, ARCHES[number % 2]))


@pytest.mark.slow
@pytest.mark.parametrize("member", dealt(3, seed=8), ids=lambda member: member.name)
def test_the_simulator_knows_what_llvm_emits_sweep(member: Member) -> None:
    for arch in ARCHES:
        check(compile_quietly(member, arch))


@pytest.mark.slow
@pytest.mark.parametrize("waves", range(1, 9))
@pytest.mark.parametrize("level", [(1, 1), (3, 3)], ids=["O1", "O3"])
def test_matrix_products_at_higher_levels(level: tuple[int, int], waves: int) -> None:
    optimize, codegen = level
    kernel = JitFunction(matmul.function, Options(num_waves=waves, optimize=optimize, codegen=codegen))
    for configuration in DEFAULT_CONFIGURATIONS[: 2 if waves < 4 else 5]:
        for narrow, wide in ((dtypes.float16, dtypes.float32), (dtypes.int8, dtypes.int32)):
            a, c = Array(narrow, 2), Array(wide, 2)
            check(kernel.compile(a, a, c, **configuration, arch=ARCHES[waves % 2]))


def test_there_are_enough() -> None:
    assert sum(map(coverage.implemented, coverage.instructions())) >= 1000


def test_the_page_is_current() -> None:
    assert coverage.PAGE.read_text() == coverage.page(), "docs/simulator-coverage.md is old: run `python tests/simulator_coverage.py`"


def test_the_list_is_llvms() -> None:
    """The assembler takes each name for what it is: it complains of operands, never of the instruction."""
    import re
    import subprocess

    names = list(coverage.instructions())
    for arch in ARCHES:
        command = [tools.need("llvm-mc"), "-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-filetype=null", "-"]
        done = subprocess.run(command, input="\n".join(names) + "\n", capture_output=True, text=True, check=False)
        said = {int(line): text for line, text in re.findall(r"<stdin>:(\d+):\d+: error: (.*)", done.stderr)}
        unknown = {
            name for at, name in enumerate(names, 1) if "instruction not supported" in said.get(at, "") or "invalid" in said.get(at, "")
        }
        unknown -= {"v_dot2acc_f32_bf16"}  # only as half of a dual-issue instruction
        assert unknown == ({name for name, newer in coverage.instructions().items() if newer} if arch == "gfx1100" else set())
