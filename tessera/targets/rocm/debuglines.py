"""The line table of a relocatable object: which line of Python each instruction came from.

LLVM writes `.debug_line` when the kernel's IR carries debug locations. It is read before linking, since code objects are shipped without
debug sections. The state machine follows "DWARF Debugging Information Format, Version 5", section 6.2. Version 5 is what the module
flag "Dwarf Version" has to ask for: in version 4, LLVM's default, the table doesn't say in which folder a file is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import CompilerBug
from . import elf


class LineRow(NamedTuple):
    """From `offset` in .text on (bytes, up to the next row), the code is of this file and line. Line 0 is code of no line in particular;
    the last row of a sequence has the file "" and only ends it."""

    offset: int
    file: str
    line: int


def line_table(obj: bytes) -> list[LineRow]:
    """The rows of the object's line table, by offset. Empty where the module had no debug locations."""
    source = elf.read(obj)
    index = next((i for i, section in enumerate(source.sections) if section.name == ".debug_line"), None)
    if index is None:
        return []
    data = bytearray(source.sections[index].data)
    for offset, kind, number, addend in source.relocations(index):
        if kind not in (3, 6):  # R_AMDGPU_ABS64, R_AMDGPU_ABS32
            raise CompilerBug(f"unexpected relocation {kind} in .debug_line")
        # Addresses are relative to .text and offsets to their string section, which is what the rows and the header want.
        struct.pack_into("<Q" if kind == 3 else "<I", data, offset, source.symbols[number].value + addend)
    strings = {name: section.data for name in (".debug_line_str", ".debug_str") if (section := source.section(name)) is not None}
    rows = list(_programs(bytes(data), strings))
    rows.sort(key=lambda row: (row.offset, row.file != ""))  # where a sequence ends and the next one starts, the start counts
    return rows


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def number(self, size: int) -> int:
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def uleb(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def sleb(self) -> int:
        start = self.at
        value = self.uleb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) else value

    def text(self) -> str:
        value = elf.text_at(self.data, self.at)
        self.at += len(value.encode()) + 1
        return value


def _programs(data: bytes, strings: dict[str, bytes]) -> Iterator[LineRow]:
    at = 0
    while at < len(data):
        reader = _Reader(data, at)
        length = reader.number(4)
        if length >= 0xFFFFFFF0:
            raise CompilerBug(".debug_line is in the 64-bit format, which LLVM doesn't write for AMDGPU")
        at += 4 + length
        yield from _program(reader, at, strings)


def _program(reader: _Reader, end: int, strings: dict[str, bytes]) -> Iterator[LineRow]:
    version = reader.number(2)
    if version != 5:
        raise CompilerBug(f'.debug_line has version {version}; the module flag "Dwarf Version" must be 5')
    reader.number(2)  # sizes of addresses and segment selectors
    start = reader.number(4)
    start += reader.at
    step, _, _ = reader.number(1), reader.number(1), reader.number(1)  # instruction length; operations per instruction, default_is_stmt
    line_base = int.from_bytes(reader.number(1).to_bytes(1, "little"), "little", signed=True)
    line_range, opcode_base = reader.number(1), reader.number(1)
    lengths = [reader.number(1) for _ in range(opcode_base - 1)]
    files = _files(reader, strings)

    reader.at = start
    address, file, line = 0, 1, 1
    while reader.at < end:
        opcode = reader.number(1)
        if opcode >= opcode_base:
            address += (opcode - opcode_base) // line_range * step
            line += line_base + (opcode - opcode_base) % line_range
            yield LineRow(address, files.get(file, "?"), line)
        elif opcode == 0:
            size = reader.uleb()
            after, extended = reader.at + size, reader.number(1)
            if extended == 1:  # end of sequence
                yield LineRow(address, "", 0)
                address, file, line = 0, 1, 1
            elif extended == 2:
                address = reader.number(size - 1)
            reader.at = after
        elif opcode == 1:  # copy
            yield LineRow(address, files.get(file, "?"), line)
        elif opcode == 2:
            address += reader.uleb() * step
        elif opcode == 3:
            line += reader.sleb()
        elif opcode == 4:
            file = reader.uleb()
        elif opcode == 8:  # as the special opcode 255, without a row
            address += (255 - opcode_base) // line_range * step
        elif opcode == 9:
            address += reader.number(2)
        else:  # columns, statement and prologue marks, and opcodes of later versions
            for _ in range(lengths[opcode - 1]):
                reader.uleb()


def _join(folder: str, name: str) -> str:
    absolute = name.startswith(("/", "\\", "<")) or name[1:2] == ":"
    return name if absolute or not folder else f"{folder.rstrip('/')}/{name}"


def _files(reader: _Reader, strings: dict[str, bytes]) -> dict[int, str]:
    folders = [path for path, _ in _entries(reader, strings)]
    return {i: _join(folders[folder], name) for i, (name, folder) in enumerate(_entries(reader, strings))}


def _entries(reader: _Reader, strings: dict[str, bytes]) -> list[tuple[str, int]]:
    """(path, folder index) of each entry of a version 5 table."""
    forms = [(reader.uleb(), reader.uleb()) for _ in range(reader.number(1))]
    found: list[tuple[str, int]] = []
    for _ in range(reader.uleb()):
        path, folder = "", 0
        for content, form in forms:
            value = _form(reader, form, strings)
            if content == 1 and isinstance(value, str):
                path = value
            elif content == 2 and isinstance(value, int):
                folder = value
        found.append((path, folder))
    return found


def _form(reader: _Reader, form: int, strings: dict[str, bytes]) -> str | int | None:
    match form:
        case 0x08:  # DW_FORM_string
            return reader.text()
        case 0x0E:  # DW_FORM_strp
            return elf.text_at(strings[".debug_str"], reader.number(4))
        case 0x1F:  # DW_FORM_line_strp
            return elf.text_at(strings[".debug_line_str"], reader.number(4))
        case 0x0B | 0x05 | 0x06:  # DW_FORM_data1, data2, data4
            return reader.number({0x0B: 1, 0x05: 2, 0x06: 4}[form])
        case 0x0F:  # DW_FORM_udata
            return reader.uleb()
        case 0x1E:  # DW_FORM_data16, a checksum
            reader.at += 16
            return None
        case _:
            raise CompilerBug(f"unknown form 0x{form:x} in .debug_line")
