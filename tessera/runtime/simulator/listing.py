"""From a code object to its instructions, each checked against the bytes that the hardware would run.

Two sources give the text. Code compiled here carries LLVM's own listing (section `.AMDGPU.disasm`, from the target feature `dumpcode`):
text and encoding of each instruction in order of `.text`, without padding and branch offsets. Code of other compilers is disassembled
by `llvm-objdump` where one is found. Either way every instruction's words are compared with `.text`, every byte of a function is
accounted for, and every branch must go to the start of an instruction.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ... import config
from ...errors import SimulatorError
from .asmtext import base_words, is_branch, parse_instruction
from .instruction import Instruction, Number, Registers
from .loader import CodeObject, Symbol

_DUMPCODE_LINE = re.compile(r"\s*(\S.*?)\s*; ((?:[0-9A-F]{8} ?)+)")
_LABEL = re.compile(r"\s*BB\d+_\d+:\s*")
_OBJDUMP_LINE = re.compile(r"\s+(\S.*?)\s*// ([0-9A-F]{12,16}): ((?:[0-9A-F]{8} ?)+)(?:<.*>)?\s*")
_RELOCATED = re.compile(r"@(?:rel|abs|gotpcrel)|\.L|\(\"\"-\"\"\)")  # a literal that was filled in later

_NOP = 0xBF800000  # s_nop 0, on every family
_CODE_END = 0xBF9F0000  # s_code_end, gfx10 and later


class Line(NamedTuple):
    """An instruction as a listing prints it. `address` is None where the listing doesn't say."""

    text: str
    words: tuple[int, ...]
    address: int | None


def decode(code: CodeObject) -> dict[str, list[Instruction]]:
    """The instructions of each function of `.text`, in order of address. Padding that can be executed (`s_nop`) is included, `s_code_end`
    is not; `pc` and `target` are addresses as in `code.text_address`.

    Raises SimulatorError where the listing doesn't agree with `.text`, or where there is no listing and no llvm-objdump.
    """
    if code.disassembly is not None:
        return decode_lines(code, list(parse_dumpcode(code.disassembly)))
    return decode_lines(code, list(parse_objdump(run_objdump(code.data))))


def decode_lines(code: CodeObject, lines: list[Line]) -> dict[str, list[Instruction]]:
    """Match a listing with `.text`: the common end of both sources."""
    words = struct.unpack(f"<{len(code.text) // 4}I", code.text)
    cursor = _Cursor(lines)
    found = {function.name: _function(function, cursor, words, code.text_address) for function in code.functions}
    if (line := cursor.peek()) is not None and line.address is None:
        raise SimulatorError(f"the listing goes on after the last function: {line.text!r}")
    for function in code.functions:
        _find_far_jumps(found[function.name])
        _check_targets(function, found[function.name], {f.address for f in code.functions})
    return found


class _Cursor:
    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self._at = 0

    def peek(self) -> Line | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def skip_to(self, address: int) -> None:
        """Leave out addressed lines before `address` (padding between functions)."""
        while (line := self.peek()) is not None and line.address is not None and line.address < address:
            self._at += 1

    def advance(self) -> None:
        self._at += 1


def _function(function: Symbol, cursor: _Cursor, words: tuple[int, ...], base: int) -> list[Instruction]:
    at, end = (function.address - base) // 4, (function.address + function.size - base) // 4
    cursor.skip_to(function.address)
    result: list[Instruction] = []
    while at < end:
        line = cursor.peek()
        pc = base + 4 * at
        if line is not None and _matches(line, words[at : min(end, at + len(line.words))], pc):
            actual = words[at : at + len(line.words)]
            result.append(parse_instruction(line.text, pc, actual))
            cursor.advance()
            at += len(actual)
        elif words[at] == _NOP and (line is None or line.address is None):
            result.append(parse_instruction("s_nop 0", pc, (_NOP,)))
            at += 1
        elif words[at] == _CODE_END and (line is None or line.address is None):
            at += 1
        else:
            listed = "nothing" if line is None else f"{line.text!r} ({_hex(line.words)})"
            raise SimulatorError(
                f"the listing doesn't agree with .text in {function.name!r} at 0x{pc:x}: "
                f"{_hex(words[at : at + 2])} in the code, {listed} in the listing",
                pc=pc,
            )
    return result


def _matches(line: Line, actual: tuple[int, ...], pc: int) -> bool:
    if line.address is not None:
        return line.address == pc and line.words == actual
    if line.words == actual:
        return True
    if len(line.words) != len(actual):
        return False
    if is_branch(line.text):
        return line.words[0] >> 16 == actual[0] >> 16
    fixed = base_words(actual[0])
    return len(actual) > fixed and line.words[:fixed] == actual[:fixed] and _RELOCATED.search(line.text) is not None


def _find_far_jumps(instructions: list[Instruction]) -> None:
    """Give `s_setpc_b64` its target where it ends LLVM's branch beyond 128 KiB: s_getpc_b64 and the addition of a constant distance."""
    for index, jump in enumerate(instructions):
        if jump.mnemonic != "s_setpc_b64":
            continue
        before = [i for i in instructions[max(0, index - 6) : index] if i.mnemonic != "s_delay_alu"][-3:]
        if [i.mnemonic for i in before] != ["s_getpc_b64", "s_add_u32", "s_addc_u32"]:
            continue
        getpc, low, high = before
        pair, numbers = jump.operands[0].base, (low.operands[2].base, high.operands[2].base)
        if not isinstance(pair, Registers) or getpc.operands[0].base != pair or not all(isinstance(n, Number) for n in numbers):
            continue
        halves = Registers(pair.file, pair.first, 1), Registers(pair.file, pair.first + 1, 1)
        if all(op.operands[k].base == half for op, half in zip((low, high), halves, strict=True) for k in (0, 1)):
            distance = sum((int(n.value) & 0xFFFFFFFF) << 32 * k for k, n in enumerate(numbers) if isinstance(n, Number))
            instructions[index] = replace(jump, target=(getpc.next_pc + distance) % 2**64)


def _check_targets(function: Symbol, instructions: list[Instruction], functions: set[int]) -> None:
    starts = {instruction.pc for instruction in instructions}
    for instruction in instructions:
        if instruction.target is not None and instruction.target not in starts and instruction.target not in functions:
            raise SimulatorError(
                f"{instruction.mnemonic} at 0x{instruction.pc:x} in {function.name!r} goes to 0x{instruction.target:x}, "
                "where no instruction of the function starts",
                mnemonic=instruction.mnemonic,
                pc=instruction.pc,
            )


def _hex(words: tuple[int, ...]) -> str:
    return " ".join(f"{word:08X}" for word in words)


# ---- the two sources -----------------------------------------------------------------------------------------------------------


def parse_dumpcode(text: str) -> Iterator[Line]:
    """The lines of an `.AMDGPU.disasm` section, without labels. Labels stand only on some blocks and say nothing reliable."""
    for raw in text.splitlines():
        if match := _DUMPCODE_LINE.fullmatch(raw):
            yield Line(match[1], tuple(int(word, 16) for word in match[2].split()), None)
        elif raw.strip("\0 \t") and not _LABEL.fullmatch(raw):
            raise SimulatorError(f"a line of .AMDGPU.disasm that is neither an instruction nor a label: {raw!r}")


def parse_objdump(text: str) -> Iterator[Line]:
    """The instructions in the output of `llvm-objdump -d`."""
    for raw in text.splitlines():
        if match := _OBJDUMP_LINE.fullmatch(raw):
            yield Line(match[1], tuple(int(word, 16) for word in match[3].split()), int(match[2], 16))


def find_objdump() -> str:
    """An llvm-objdump: TESSERA_OBJDUMP, ROCm's, Debian's of the release that we were written for, PATH. Raises SimulatorError."""
    if explicit := config.objdump():
        if found := shutil.which(explicit):
            return found
        raise SimulatorError(f"TESSERA_OBJDUMP is {explicit!r}, which is not a program")
    rocm = Path(config.rocm_folder())
    for name in (
        str(rocm / "llvm" / "bin" / "llvm-objdump"),
        str(rocm / "lib" / "llvm" / "bin" / "llvm-objdump"),
        "llvm-objdump-22",
        "llvm-objdump",
    ):
        if found := shutil.which(name):
            return found
    raise SimulatorError(
        "this code object was not compiled by Tessera and has no listing, so it needs llvm-objdump, which was not found: "
        f"looked for TESSERA_OBJDUMP, {rocm / 'llvm' / 'bin'}, and llvm-objdump-22 and llvm-objdump on PATH; install LLVM 19 or later"
    )


def run_objdump(data: bytes) -> str:
    """Disassemble a code object. Raises SimulatorError with the tool's message where it fails."""
    tool = find_objdump()
    try:
        done = subprocess.run([tool, "-d", "-z", "-"], input=data, capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SimulatorError(f"{tool} could not be run: {error}") from error
    output = done.stdout.decode(errors="replace")
    if done.returncode or "//" not in output:
        raise SimulatorError(
            f"{tool} could not disassemble the code object: {done.stderr.decode(errors='replace').strip() or output.strip()}"
        )
    return output
