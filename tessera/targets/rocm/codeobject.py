"""The linker: from LLVM's relocatable object to the code object that HIP loads.

One object in, one shared ELF out, laid out as `ld.lld -shared` does it for AMDGPU (tests compare the two):

    read only    ELF header, program headers, .note, .dynsym, .gnu.hash, .hash, .dynstr, .rodata
    executable   .text
    relro        .dynamic, padded in memory to a page
    not loaded   .AMDGPU.* (LLVM's listing of the code), .symtab, .shstrtab, .strtab

Each segment starts on a page of its own in memory but follows the one before it in the file, so its address is congruent to its offset
modulo the page size. What a kernel of ours can't contain is refused: writable data, calls to symbols of other objects, relocations that
only a dynamic loader could resolve. `.debug_*` is dropped: `debuglines.py` has read it before.

The code object version is the object's (the module flag `amdhsa_code_object_version`, which LLVM writes to EI_ABIVERSION).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ...errors import CompilerBug
from . import elf
from .elf import Elf, Symbol

PAGE = 0x1000  # lld's maximum and common page size for AMDGPU

# R_AMDGPU_* that can be resolved here. (Others: GOTPCREL*, REL16, RELATIVE64.)
_ABS32_LO, _ABS32_HI, _ABS64, _REL32, _REL64, _ABS32, _REL32_LO, _REL32_HI = 1, 2, 3, 4, 5, 6, 10, 11
_NAMES = {7: "R_AMDGPU_GOTPCREL", 8: "R_AMDGPU_GOTPCREL32_LO", 9: "R_AMDGPU_GOTPCREL32_HI", 13: "R_AMDGPU_RELATIVE64", 14: "R_AMDGPU_REL16"}

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_PHDR = 1, 2, 4, 6
_PT_GNU_STACK, _PT_GNU_RELRO = 0x6474E551, 0x6474E552
_READ, _WRITE, _EXECUTE = 4, 2, 1
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_GNU_HASH = 4, 5, 6, 10, 11, 0x6FFFFEF5


@dataclass(slots=True)
class _Output:
    """A section of the result. `address` is 0 for what isn't loaded; `memory` is its size there, if larger than `data`."""

    name: str
    kind: int
    flags: int
    data: bytearray
    align: int = 1
    link: str = ""
    info: int = 0
    entry_size: int = 0
    address: int = 0
    offset: int = 0
    memory: int = 0
    inputs: dict[int, int] = field(default_factory=dict[int, int])  # index of the input section -> offset in this one

    @property
    def size(self) -> int:
        return max(self.memory, len(self.data))


class _Strings:
    """A string table under construction."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._known: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._known[text]


def link(obj: bytes) -> bytes:
    """Link one relocatable AMDGPU object to a code object.

    Raises CompilerBug on undefined symbols, on writable data, and on relocations that can't be resolved now.
    """
    source = elf.read(obj)
    if source.kind != elf.ET_REL:
        raise CompilerBug("cannot link: LLVM's object is not relocatable")
    note, rodata, text, extras = _collect(source)
    exported = [s for s in source.symbols if not s.is_local and s.other & 3 != elf.STV_HIDDEN and s.section != elf.SHN_UNDEF]
    dynstr = _Strings()
    for symbol in exported:
        dynstr.add(symbol.name)
    exported = _by_bucket(exported)
    names = [symbol.name for symbol in exported]

    dynsym = _Output(".dynsym", elf.SHT_DYNSYM, elf.SHF_ALLOC, bytearray(elf.SYM.size * (1 + len(exported))), 8, ".dynstr", 1, elf.SYM.size)
    gnu_hash = _Output(".gnu.hash", elf.SHT_GNU_HASH, elf.SHF_ALLOC, _gnu_hash_table(names), 8, ".dynsym")
    hashes = _Output(".hash", elf.SHT_HASH, elf.SHF_ALLOC, _sysv_hash_table(names), 4, ".dynsym", 0, 4)
    strings = _Output(".dynstr", elf.SHT_STRTAB, elf.SHF_ALLOC, dynstr.data)
    dynamic = _Output(".dynamic", elf.SHT_DYNAMIC, elf.SHF_ALLOC | elf.SHF_WRITE, bytearray(7 * 16), 8, ".dynstr", 0, 16)
    padding = _Output(".relro_padding", elf.SHT_NOBITS, elf.SHF_ALLOC | elf.SHF_WRITE, bytearray())

    segments = [[s for s in (note, dynsym, gnu_hash, hashes, strings, rodata) if s.size], [text], [dynamic, padding]]
    program_headers = 8
    end = _place(segments, elf.EHDR.size + program_headers * elf.PHDR.size)
    loaded = [section for segment in segments for section in segment]

    index = {section.name: i for i, section in enumerate(loaded, 1)}
    _relocate(source, (rodata, text))
    dynsym.data[:] = _symbols(source, exported, (rodata, text), index, dynstr)
    entries = (_DT_SYMTAB, dynsym.address), (_DT_SYMENT, elf.SYM.size), (_DT_STRTAB, strings.address), (_DT_STRSZ, len(strings.data))
    entries += (_DT_GNU_HASH, gnu_hash.address), (_DT_HASH, hashes.address), (0, 0)
    dynamic.data[:] = b"".join(struct.pack("<QQ", *entry) for entry in entries)

    symbol_names = _Strings()
    own = Symbol("_DYNAMIC", 0, elf.STV_HIDDEN, elf.SHN_ABS, dynamic.address, 0)
    local = [s for s in source.symbols if s.is_local and s.name and s.kind not in (elf.STT_SECTION, elf.STT_FILE) and _kept(source, s)]
    others = [s for s in source.symbols if not s.is_local and s.section != elf.SHN_UNDEF]
    table = _symbols(source, [*local, own, *others], (rodata, text), index, symbol_names)
    struct.pack_into("<H", table, elf.SYM.size * (1 + len(local)) + 6, index[".dynamic"])
    symtab = _Output(".symtab", elf.SHT_SYMTAB, 0, table, 8, ".strtab", len(local) + 2, elf.SYM.size)
    shstrtab = _Output(".shstrtab", elf.SHT_STRTAB, 0, bytearray())
    strtab = _Output(".strtab", elf.SHT_STRTAB, 0, symbol_names.data)

    sections = [*loaded, *extras, symtab, shstrtab, strtab]
    headers = _program_headers(segments, note)
    assert len(headers) == program_headers * elf.PHDR.size
    return _write(source, sections, headers, end)


def _collect(source: Elf) -> tuple[_Output, _Output, _Output, list[_Output]]:
    """(.note, .rodata, .text, sections that aren't loaded), with the input's bytes."""
    note = _Output(".note", elf.SHT_NOTE, elf.SHF_ALLOC, bytearray(), 4)
    rodata = _Output(".rodata", elf.SHT_PROGBITS, elf.SHF_ALLOC, bytearray())
    text = _Output(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, bytearray())
    extras: list[_Output] = []
    for index, section in enumerate(source.sections):
        if not section.flags & elf.SHF_ALLOC:
            if section.kind == elf.SHT_PROGBITS and section.name.startswith(".AMDGPU.") and section.data:
                extras.append(_Output(section.name, section.kind, section.flags, bytearray(section.data), section.align))
            continue
        if not section.size:
            continue
        if section.flags & elf.SHF_WRITE or section.kind not in (elf.SHT_PROGBITS, elf.SHT_NOTE):
            raise CompilerBug(f"cannot link: {section.name} holds {section.size} bytes of writable data, which kernels don't have")
        output = note if section.kind == elf.SHT_NOTE else text if section.flags & elf.SHF_EXECINSTR else rodata
        output.align = max(output.align, section.align)
        output.data += bytes(-len(output.data) % section.align)
        output.inputs[index] = len(output.data)
        output.data += section.data
    if not text.data or not rodata.data or not note.data:
        missing = ", ".join(o.name for o in (text, rodata, note) if not o.data)
        raise CompilerBug(f"cannot link: the object holds no kernel (it has no {missing})")
    return note, rodata, text, extras


def _place(segments: list[list[_Output]], start: int) -> int:
    """Give sections their offsets and addresses; returns the end in the file."""
    offset = address = start
    for number, segment in enumerate(segments):
        if number:
            address += PAGE  # the next page, at the same place in it
        for section in segment:
            address += -address % section.align
            offset += (address - offset) % PAGE
            section.address, section.offset = address, offset
            if section.kind == elf.SHT_NOBITS:
                section.memory = -address % PAGE
            else:
                address, offset = address + len(section.data), offset + len(section.data)
    return offset


def _address(source: Elf, symbol: Symbol, outputs: tuple[_Output, ...]) -> int | None:
    """Where a symbol ends up; None if it isn't in the result."""
    if symbol.section == elf.SHN_ABS:
        return symbol.value
    for output in outputs:
        if symbol.section in output.inputs:
            return output.address + output.inputs[symbol.section] + symbol.value
    return None


def _kept(source: Elf, symbol: Symbol) -> bool:
    if symbol.section == elf.SHN_ABS:
        return True
    return symbol.section < len(source.sections) and bool(source.sections[symbol.section].flags & elf.SHF_ALLOC)


def _relocate(source: Elf, outputs: tuple[_Output, ...]) -> None:
    for output in outputs:
        for index, start in output.inputs.items():
            for offset, kind, number, addend in source.relocations(index):
                symbol = source.symbols[number]
                target = _address(source, symbol, outputs)
                where = f"{source.sections[index].name}+0x{offset:x}"
                if target is None:
                    what = "LDS is not laid out for" if symbol.section == elf.SHN_AMDGPU_LDS else "nothing defines"
                    raise CompilerBug(f"cannot link: {what} {symbol.name!r}, which {where} refers to")
                place = output.address + start + offset
                absolute = symbol.section == elf.SHN_ABS
                _resolve(output.data, start + offset, kind, target + addend, place, absolute, f"{symbol.name or 'a section'!r} at {where}")


def _resolve(data: bytearray, at: int, kind: int, value: int, place: int, absolute: bool, what: str) -> None:
    """Apply one relocation: `value` is S + A, `place` P in the terms of the AMDGPU ABI."""
    relative = value - place
    if kind in (_ABS32_LO, _ABS32_HI, _ABS64, _ABS32) and not absolute:
        raise CompilerBug(f"cannot link: the address of {what} is known only when the code is loaded")
    if kind == _REL32 and not -(1 << 31) <= relative < 1 << 31:
        raise CompilerBug(f"cannot link: {what} is out of reach of 32 bits")
    match kind:
        case 1 | 6:
            struct.pack_into("<I", data, at, value & 0xFFFFFFFF)
        case 2:
            struct.pack_into("<I", data, at, value >> 32 & 0xFFFFFFFF)
        case 3:
            struct.pack_into("<Q", data, at, value & (1 << 64) - 1)
        case 4 | 10:
            struct.pack_into("<I", data, at, relative & 0xFFFFFFFF)
        case 11:
            struct.pack_into("<I", data, at, relative >> 32 & 0xFFFFFFFF)
        case 5:
            struct.pack_into("<Q", data, at, relative & (1 << 64) - 1)
        case _:
            raise CompilerBug(f"cannot link: relocation {_NAMES.get(kind, kind)} of {what} is not supported")


def _symbols(source: Elf, symbols: list[Symbol], outputs: tuple[_Output, ...], index: dict[str, int], names: _Strings) -> bytearray:
    """A symbol table, its null entry first."""
    table = bytearray(elf.SYM.size)
    for symbol in symbols:
        address = _address(source, symbol, outputs)
        if address is None:
            raise CompilerBug(f"cannot link: symbol {symbol.name!r} is in no section of a code object")
        section = symbol.section
        if section != elf.SHN_ABS:
            section = index[next(output.name for output in outputs if section in output.inputs)]
        table += elf.SYM.pack(names.add(symbol.name), symbol.info, symbol.other, section, address, symbol.size)
    return table


# ---- hash tables, in the sizes that lld chooses ---------------------------------------------------------------------------------


def _gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _sysv_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value


def _buckets(count: int) -> int:
    return max(1, count // 4)


def _by_bucket(symbols: list[Symbol]) -> list[Symbol]:
    """The order that .gnu.hash wants: symbols of one bucket together."""
    return sorted(symbols, key=lambda symbol: _gnu_hash(symbol.name) % _buckets(len(symbols)))


def _gnu_hash_table(names: list[str]) -> bytearray:
    """`names` in the order of _by_bucket. https://sourceware.org/legacy-ml/binutils/2006-10/msg00377.html"""
    count, shift = _buckets(len(names)), 26
    mask_words = 1 << (len(names) * 12 // 64).bit_length()
    bloom, buckets, chain = [0] * mask_words, [0] * count, list[int]()
    hashes = [_gnu_hash(name) for name in names]
    for i, value in enumerate(hashes):
        bloom[value // 64 % mask_words] |= 1 << value % 64 | 1 << (value >> shift) % 64
        buckets[value % count] = buckets[value % count] or i + 1
        last = i + 1 == len(hashes) or hashes[i + 1] % count != value % count
        chain.append(value & ~1 | last)
    return bytearray(struct.pack(f"<4I{mask_words}Q{count}I{len(names)}I", count, 1, mask_words, shift, *bloom, *buckets, *chain))


def _sysv_hash_table(names: list[str]) -> bytearray:
    count = len(names) + 1
    buckets, chain = [0] * count, [0] * count
    for i, name in enumerate(names, 1):
        bucket = _sysv_hash(name) % count
        chain[i], buckets[bucket] = buckets[bucket], i
    return bytearray(struct.pack(f"<{2 + 2 * count}I", count, count, *buckets, *chain))


# ---- the file ------------------------------------------------------------------------------------------------------------------


def _program_headers(segments: list[list[_Output]], note: _Output) -> bytes:
    def header(kind: int, flags: int, sections: list[_Output], align: int) -> bytes:
        first, last = sections[0], sections[-1]
        stored = [s for s in sections if s.kind != elf.SHT_NOBITS][-1]
        in_file, in_memory = stored.offset + len(stored.data) - first.offset, last.address + last.size - first.address
        return elf.PHDR.pack(kind, flags, first.offset, first.address, first.address, in_file, in_memory, align)

    size = 8 * elf.PHDR.size
    read_only, code, relro = segments
    tail = read_only[-1].offset + len(read_only[-1].data)  # the first segment begins with the ELF header
    return b"".join((
        elf.PHDR.pack(_PT_PHDR, _READ, elf.EHDR.size, elf.EHDR.size, elf.EHDR.size, size, size, 8),
        elf.PHDR.pack(_PT_LOAD, _READ, 0, 0, 0, tail, tail, PAGE),
        header(_PT_LOAD, _READ | _EXECUTE, code, PAGE),
        header(_PT_LOAD, _READ | _WRITE, relro, PAGE),
        header(_PT_DYNAMIC, _READ | _WRITE, relro[:1], 8),
        header(_PT_GNU_RELRO, _READ, relro, 1),
        elf.PHDR.pack(_PT_GNU_STACK, _READ | _WRITE, 0, 0, 0, 0, 0, 0),
        header(_PT_NOTE, _READ, [note], 4),
    ))  # fmt: skip


def _write(source: Elf, sections: list[_Output], program_headers: bytes, end: int) -> bytes:
    """`sections` in order of the file; `end` is where those that are loaded end."""
    names = _Strings()
    name_offsets = [names.add(section.name) for section in sections]
    index = {section.name: i for i, section in enumerate(sections, 1)}
    next(s for s in sections if s.name == ".shstrtab").data = names.data
    for section in sections:
        if not section.flags & elf.SHF_ALLOC:
            section.offset = end + -end % section.align
            end = section.offset + len(section.data)
    table = end + -end % 8
    out = bytearray(table)
    count, names_index = len(sections) + 1, index[".shstrtab"]
    header = (source.ident, elf.ET_DYN, elf.EM_AMDGPU, 1, 0, elf.EHDR.size, table, source.flags)
    out[: elf.EHDR.size] = elf.EHDR.pack(*header, elf.EHDR.size, elf.PHDR.size, 8, elf.SHDR.size, count, names_index)
    out[elf.EHDR.size : elf.EHDR.size + len(program_headers)] = program_headers
    out += bytes(elf.SHDR.size)
    for section, name in zip(sections, name_offsets, strict=True):
        out[section.offset : section.offset + len(section.data)] = section.data
        link_index = index[section.link] if section.link else 0
        out += elf.SHDR.pack(
            name, section.kind, section.flags, section.address, section.offset, section.size, link_index, section.info, section.align,
            section.entry_size,
        )  # fmt: skip
    return bytes(out)
