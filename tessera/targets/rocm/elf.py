"""ELF64 little-endian, as far as AMDGPU objects need it: sections and symbols, read with `struct` for speed."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ...errors import CompilerBug

# Values of the ELF specification and of LLVM's "User Guide for AMDGPU Backend".
ET_REL, ET_DYN = 1, 3
EM_AMDGPU = 224
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC, SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    11,
)
SHT_GNU_HASH = 0x6FFFFFF6
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
SHN_UNDEF, SHN_LORESERVE, SHN_AMDGPU_LDS, SHN_ABS = 0, 0xFF00, 0xFF00, 0xFFF1
STT_SECTION, STT_FILE = 3, 4
STV_HIDDEN = 2
NT_AMDGPU_METADATA = 32

EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
SHDR = struct.Struct("<IIQQQQIIQQ")
PHDR = struct.Struct("<IIQQQQQQ")
SYM = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")


@dataclass(frozen=True, slots=True)
class Section:
    """A section header and its bytes (empty for NOBITS)."""

    name: str
    kind: int
    flags: int
    address: int
    size: int
    link: int
    info: int
    align: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol; `section` is an index of `Elf.sections` or a reserved SHN_* value."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_local(self) -> bool:
        return self.info >> 4 == 0

    @property
    def kind(self) -> int:
        return self.info & 15


@dataclass(frozen=True, slots=True)
class Elf:
    """A file taken apart. `symbols` are those of .symtab."""

    ident: bytes
    kind: int
    flags: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]

    def section(self, name: str) -> Section | None:
        """The first section of this name."""
        return next((section for section in self.sections if section.name == name), None)

    def relocations(self, index: int) -> list[tuple[int, int, int, int]]:
        """What is to be relocated in section `index`: (offset, type, symbol index, addend)."""
        found: list[tuple[int, int, int, int]] = []
        for section in self.sections:
            if section.info != index:
                continue
            if section.kind == SHT_REL:
                raise CompilerBug(f"section {section.name} has relocations without addends; AMDGPU uses RELA")
            if section.kind == SHT_RELA:
                found += [(offset, info & 0xFFFFFFFF, info >> 32, addend) for offset, info, addend in RELA.iter_unpack(section.data)]
        return found


def text_at(table: bytes, offset: int) -> str:
    """The NUL-terminated string at `offset`."""
    return table[offset : table.index(b"\0", offset)].decode()


def read(data: bytes) -> Elf:
    """Take an AMDGPU ELF apart. Raises CompilerBug if it isn't one: LLVM or our linker made it."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise CompilerBug("LLVM's object is not a little-endian 64-bit ELF file")
    ident, kind, machine, _, _, _, shoff, flags, _, _, _, _, count, names_index = EHDR.unpack_from(data)
    if machine != EM_AMDGPU:
        raise CompilerBug(f"LLVM's object is for ELF machine {machine}, not for AMDGPU")
    headers = [SHDR.unpack_from(data, shoff + i * SHDR.size) for i in range(count)]

    def content(header: tuple[int, ...]) -> bytes:
        return b"" if header[1] in (0, SHT_NOBITS) else data[header[4] : header[4] + header[5]]

    names = content(headers[int(names_index)])
    sections = tuple(Section(text_at(names, h[0]), h[1], h[2], h[3], h[5], h[6], h[7], max(1, h[8]), content(h)) for h in headers)
    symbols: list[Symbol] = []
    for table in sections:
        if table.kind == SHT_SYMTAB:
            strings = sections[table.link].data
            symbols += [Symbol(text_at(strings, name), *rest) for name, *rest in SYM.iter_unpack(table.data)]
    return Elf(ident, kind, flags, sections, tuple(symbols))
