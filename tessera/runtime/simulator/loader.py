"""Reading code objects: the ELF, its kernels' descriptors and metadata, its symbols, and the bytes to be placed in host memory.

This reader shares nothing with the compiler's linker: each checks the other. It reads code object versions 4 to 6 of any compiler, as
HIP would be given them (linked shared objects for `amdgcn-amd-amdhsa`). A damaged file raises `SimulatorError`, whatever its bytes are.

Layouts and meanings: LLVM, "User Guide for AMDGPU Backend" (ELF code object, kernel descriptor, code object metadata).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ...errors import SimulatorError

# EF_AMDGPU_MACH_* (e_flags bits 0-7) of each processor, by what its descriptors and waves have in common.
_MACH: dict[str, dict[int, str]] = {
    "gfx9": {
        0x2C: "gfx900", 0x2D: "gfx902", 0x2E: "gfx904", 0x2F: "gfx906", 0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c",
        0x51: "gfx9-generic",
    },
    "gfx90a": {0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950", 0x5F: "gfx9-4-generic"},
    "gfx10": {
        0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012", 0x42: "gfx1013", 0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032",
        0x39: "gfx1033", 0x3E: "gfx1034", 0x3D: "gfx1035", 0x45: "gfx1036", 0x52: "gfx10-1-generic", 0x53: "gfx10-3-generic",
    },
    "gfx11": {
        0x41: "gfx1100", 0x46: "gfx1101", 0x47: "gfx1102", 0x44: "gfx1103", 0x43: "gfx1150", 0x4A: "gfx1151", 0x55: "gfx1152",
        0x58: "gfx1153", 0x54: "gfx11-generic",
    },
    "gfx12": {0x48: "gfx1200", 0x4E: "gfx1201", 0x59: "gfx12-generic"},
    "gfx125": {0x49: "gfx1250", 0x5A: "gfx1251"},
}  # fmt: skip
_ARCHES = {code: (name, family) for family, rows in _MACH.items() for code, name in rows.items()}

_VERSIONS = {2: 4, 3: 5, 4: 6}  # EI_ABIVERSION -> code object version
_EM_AMDGPU = 224
_MAX_SEGMENT = 1 << 28  # far beyond any code object; a damaged size must not allocate memory
_MAX_KERNELS = 1 << 16


@dataclass(frozen=True)
class Section:
    """A section header with its bytes (empty for NOBITS)."""

    name: str
    kind: int
    flags: int
    address: int
    data: bytes
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    """A defined symbol. `kind` is "func", "object" or "notype"; `section` the name of its section ("" for absolute symbols)."""

    name: str
    address: int
    size: int
    kind: str
    section: str
    is_global: bool


@dataclass(frozen=True)
class Segment:
    """A PT_LOAD segment: `data` at `address`, zeros up to `size`. Addresses are relative to the base that the loader chooses."""

    address: int
    data: bytes
    size: int
    writable: bool
    executable: bool


@dataclass(frozen=True)
class Relocation:
    """A dynamic relocation (`R_AMDGPU_*` number) at `address`. `value` is the symbol's address plus addend, before the base is added."""

    address: int
    kind: int
    value: int
    symbol: str = ""


@dataclass(frozen=True)
class UserSgprs:
    """The first SGPR of each enabled user value, in the order in which the hardware sets them up; None where it isn't enabled."""

    private_segment_buffer: int | None  # 4 SGPRs
    dispatch_ptr: int | None  # 2
    queue_ptr: int | None  # 2
    kernarg_segment_ptr: int | None  # 2
    dispatch_id: int | None  # 2
    flat_scratch_init: int | None  # 2
    private_segment_size: int | None  # 1
    kernarg_preload: int | None  # `Descriptor.kernarg_preload_length` SGPRs
    count: int  # of all of them: workgroup ids and what else the system sets follow


@dataclass(frozen=True)
class Descriptor:
    """A kernel descriptor (64 bytes), decoded. Sizes are bytes.

    `float_round_*` are the MODE register's codes (0 nearest even, 1 plus, 2 minus infinity, 3 zero), `float_denorm_*` its flags (bit 0
    keeps input, bit 1 output subnormals). `workitem_id_dims` is 1, 2 or 3. `accum_offset` is the first AGPR's number in a unified register
    file (0 where there is none). `kernarg_preload_*` count dwords.
    """

    lds_size: int
    scratch_size: int
    kernarg_size: int
    entry_offset: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    wave_size: int
    user_sgprs: UserSgprs
    enable_scratch: bool
    workgroup_id: tuple[bool, bool, bool]
    workgroup_info: bool
    workitem_id_dims: int
    float_round_32: int
    float_round_16_64: int
    float_denorm_32: int
    float_denorm_16_64: int
    ieee: bool
    dx10_clamp: bool
    fp16_overflow: bool
    wgp_mode: bool
    accum_offset: int
    kernarg_preload_length: int
    kernarg_preload_offset: int
    uses_dynamic_stack: bool

    @property
    def mode(self) -> int:
        """The low byte of the MODE register at the start of a wave: rounding and subnormals."""
        return self.float_round_32 | self.float_round_16_64 << 2 | self.float_denorm_32 << 4 | self.float_denorm_16_64 << 6


@dataclass(frozen=True)
class Argument:
    """One entry of a kernel's `.args`: a range of the kernarg segment. Hidden arguments have a `kind` that starts with "hidden_"."""

    name: str
    offset: int
    size: int
    kind: str
    address_space: str = ""
    access: str = ""

    @property
    def is_pointer(self) -> bool:
        return self.kind in ("global_buffer", "dynamic_shared_pointer")


@dataclass(frozen=True)
class Kernel:
    """A kernel: where it starts, what the hardware sets up for it, and what its metadata says of its arguments and workgroups.

    `entry` and `end` are addresses as in `CodeObject.text_address`. `metadata` is the whole map for what isn't a field here.
    `workgroup_size` is the required size, where one is recorded; `max_workgroup_size` the number of work-items at most.
    """

    name: str
    entry: int
    end: int
    descriptor: Descriptor
    arguments: tuple[Argument, ...]
    max_workgroup_size: int
    workgroup_size: tuple[int, int, int] | None
    kernarg_align: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class CodeObject:
    """A code object. `arch` has no feature suffix; `family` names what shares its descriptors ("gfx9", "gfx90a", "gfx10", "gfx11",
    "gfx12", "gfx125"); `features` are those set ("xnack+", "sramecc-"). `disassembly` is LLVM's own listing where the object carries one.
    `functions` are all code symbols by address with their sizes filled in. `data` is the file."""

    arch: str
    family: str
    features: tuple[str, ...]
    version: int
    kernels: Mapping[str, Kernel]
    text: bytes
    text_address: int
    segments: tuple[Segment, ...]
    relocations: tuple[Relocation, ...]
    symbols: tuple[Symbol, ...]
    functions: tuple[Symbol, ...]
    disassembly: str | None
    data: bytes

    def kernel(self, name: str) -> Kernel:
        """The kernel of this name; raises SimulatorError that lists the others."""
        if name not in self.kernels:
            raise SimulatorError(f"the code object has no kernel {name!r}; it has: {', '.join(self.kernels) or 'none'}")
        return self.kernels[name]


def _damaged(what: str) -> SimulatorError:
    return SimulatorError(f"not a valid code object: {what}")


def _slice(data: bytes, offset: int, size: int, what: str) -> bytes:
    if offset < 0 or size < 0 or offset + size > len(data):
        raise _damaged(f"{what} lies at bytes {offset} to {offset + size} of a file of {len(data)} bytes")
    return data[offset : offset + size]


def _unpack(form: str, data: bytes, offset: int, what: str) -> tuple[int, ...]:
    return struct.unpack(form, _slice(data, offset, struct.calcsize(form), what))


def _string(table: bytes, offset: int, what: str) -> str:
    if not 0 <= offset < len(table):
        raise _damaged(f"the name of {what} lies outside its string table")
    end = table.find(b"\0", offset)
    try:
        return table[offset : end if end >= 0 else len(table)].decode()
    except UnicodeDecodeError:
        raise _damaged(f"the name of {what} is not UTF-8") from None


def load_code_object(data: bytes) -> CodeObject:
    """Read a linked AMDGPU code object. Raises SimulatorError on anything else, and on damage."""
    data = bytes(data)
    flags, sections, headers = _read_elf(data)
    by_name = {section.name: section for section in sections}
    text = by_name.get(".text")
    if text is None or text.kind != 1:
        raise _damaged("it has no .text section")
    if len(text.data) % 4 or text.address % 4:
        raise _damaged(".text is not made of whole dwords")
    arch, family, features = _target(flags)
    segments = tuple(_segments(data, headers))
    for segment in segments:
        if segment.address <= text.address and text.address + len(text.data) <= segment.address + len(segment.data):
            start = text.address - segment.address
            if segment.data[start : start + len(text.data)] != text.data:
                raise _damaged("the .text section is not what its segment loads")
            break
    else:
        raise _damaged("no segment loads .text")
    symbols = _symbols(sections)
    metadata = _metadata(data, headers)
    functions = _functions(symbols, text)
    kernels = _kernels(arch, family, symbols, segments, functions, text, metadata)
    listing = by_name.get(".AMDGPU.disasm")
    try:
        disassembly = listing.data.decode() if listing is not None and listing.data else None
    except UnicodeDecodeError:
        raise _damaged(".AMDGPU.disasm is not text") from None
    return CodeObject(
        arch=arch,
        family=family,
        features=features,
        version=_VERSIONS[data[8]],
        kernels=kernels,
        text=text.data,
        text_address=text.address,
        segments=segments,
        relocations=tuple(_relocations(sections)),
        symbols=symbols,
        functions=functions,
        disassembly=disassembly,
        data=data,
    )


# ---- ELF ---------------------------------------------------------------------------------------------------------------------


def _read_elf(data: bytes) -> tuple[int, list[Section], list[tuple[int, ...]]]:
    """(e_flags, sections, program headers as (type, flags, offset, vaddr, paddr, filesz, memsz, align))."""
    if data[:4] != b"\x7fELF":
        hint = ""
        if data[:24] == b"__CLANG_OFFLOAD_BUNDLE__" or data[:4] == b"CCOB":
            hint = ": it is an offload bundle; take the code object out of it with clang-offload-bundler --unbundle"
        raise _damaged(f"it is not an ELF file{hint}")
    if len(data) < 64 or data[4] != 2 or data[5] != 1:
        raise _damaged("it is not a little-endian 64-bit ELF file")
    kind, machine, _, _, phoff, shoff, flags, _, phsize, phcount, shsize, shcount, shstr = _unpack(
        "<HHIQQQIHHHHHH", data, 16, "the ELF header"
    )
    if machine != _EM_AMDGPU:
        raise _damaged(f"it is for ELF machine {machine}, not AMDGPU ({_EM_AMDGPU})")
    if data[7] != 64:
        raise _damaged(f"its OS ABI is {data[7]}, not AMDGPU_HSA (64)")
    if data[8] not in _VERSIONS:
        raise SimulatorError(f"code object ABI version {data[8]} is not supported; versions 4 to 6 of code objects (ABI 2 to 4) are")
    if kind != 3:
        raise _damaged("it is not linked (a relocatable object); link it with ld.lld -shared" if kind == 1 else f"its ELF type is {kind}")
    if phsize != 56 or shsize != 64 or not shcount:
        raise _damaged("it has no section headers, or headers of a wrong size")
    headers: list[tuple[int, ...]] = []
    for index in range(phcount):
        p_type, p_flags, *rest = _unpack("<IIQQQQQQ", data, phoff + 56 * index, "a program header")
        headers.append((p_type, p_flags, *rest))
    raw = [_unpack("<IIQQQQIIQQ", data, shoff + 64 * index, "a section header") for index in range(shcount)]
    if shstr >= shcount:
        raise _damaged("the section of section names doesn't exist")
    names = _slice(data, raw[shstr][4], raw[shstr][5], "the table of section names")
    sections: list[Section] = []
    for name, s_type, s_flags, address, offset, size, link, info, _, _ in raw:
        label = _string(names, name, "a section") if s_type else ""
        stored = s_type not in (0, 8)  # NULL, NOBITS
        sections.append(Section(label, s_type, s_flags, address, _slice(data, offset, size, label) if stored else b"", size, link, info))
    return flags, sections, headers


def _target(flags: int) -> tuple[str, str, tuple[str, ...]]:
    """(arch, family, features) of e_flags."""
    mach = flags & 0xFF
    if mach not in _ARCHES:
        known = ", ".join(name for name, _ in _ARCHES.values())
        raise SimulatorError(f"code object for an unknown processor (EF_AMDGPU_MACH 0x{mach:x}); known: {known}")
    codes = (("xnack", flags >> 8 & 3), ("sramecc", flags >> 10 & 3))  # 0 unsupported, 1 any, 2 off, 3 on
    return *_ARCHES[mach], tuple(name + "-+"[code - 2] for name, code in codes if code >= 2)


def _segments(data: bytes, headers: list[tuple[int, ...]]) -> Iterator[Segment]:
    for p_type, p_flags, offset, address, _, file_size, size, _ in headers:
        if p_type != 1:
            continue
        if size < file_size or size > _MAX_SEGMENT or address > _MAX_SEGMENT:
            raise _damaged(f"a segment at 0x{address:x} has {size} bytes, {file_size} of them in the file")
        yield Segment(address, _slice(data, offset, file_size, "a segment"), size, bool(p_flags & 2), bool(p_flags & 1))


_SYMBOL = struct.Struct("<IBBHQQ")
_KINDS = {0: "notype", 1: "object", 2: "func"}


def _symbol_table(sections: list[Section], table: Section) -> list[Symbol]:
    if table.link >= len(sections):
        raise _damaged("a symbol table has no string table")
    strings = sections[table.link].data
    found: list[Symbol] = []
    for name, info, _, index, value, size in _SYMBOL.iter_unpack(table.data[: len(table.data) // 24 * 24]):
        if index != 0xFFF1 and index >= len(sections):
            raise _damaged(f"a symbol is in section {index}, which doesn't exist")
        section = "" if index in (0, 0xFFF1) else sections[int(index)].name
        found.append(Symbol(_string(strings, name, "a symbol"), value, size, _KINDS.get(info & 15, "other"), section, info >> 4 != 0))
    return found


def _symbols(sections: list[Section]) -> tuple[Symbol, ...]:
    """The symbols of .symtab and .dynsym, each name and address once, without undefined ones and sections."""
    found: dict[tuple[str, int], Symbol] = {}
    for table in sections:
        if table.kind in (2, 11):
            for symbol in _symbol_table(sections, table):
                if symbol.name and symbol.section and symbol.kind != "other":
                    found.setdefault((symbol.name, symbol.address), symbol)
    return tuple(found.values())


def _functions(symbols: tuple[Symbol, ...], text: Section) -> tuple[Symbol, ...]:
    """Code symbols in order of address. Assembly may leave out type and size: a global label is then a function up to the next one."""
    end = text.address + len(text.data)
    code = [s for s in symbols if s.section == ".text" and (s.kind == "func" or (s.kind == "notype" and s.is_global))]
    by_address: dict[int, Symbol] = {}
    for symbol in sorted(code, key=lambda s: (s.address, s.kind != "func", not s.is_global)):
        if not text.address <= symbol.address < end or symbol.address % 4:
            raise _damaged(f"function {symbol.name!r} at 0x{symbol.address:x} lies outside .text")
        by_address.setdefault(symbol.address, symbol)
    ordered = list(by_address.values())
    result: list[Symbol] = []
    for symbol, following in zip(ordered, [*ordered[1:], None], strict=True):
        limit = following.address if following is not None else end
        size = symbol.size or limit - symbol.address
        if size % 4 or symbol.address + size > limit:
            raise _damaged(f"function {symbol.name!r} has {size} bytes, which is not a whole number of dwords up to the next function")
        result.append(Symbol(symbol.name, symbol.address, size, "func", ".text", symbol.is_global))
    return tuple(result)


def _relocations(sections: list[Section]) -> Iterator[Relocation]:
    for table in sections:
        if table.kind not in (4, 9) or not table.flags & 2:  # RELA or REL, allocated
            continue
        if table.kind == 9:
            raise SimulatorError("code object with REL relocations; AMDGPU uses RELA")
        if table.link >= len(sections):
            raise _damaged("a relocation table has no symbol table")
        symbols = _symbol_table(sections, sections[table.link]) if sections[table.link].kind in (2, 11) else []
        for offset, info, addend in struct.iter_unpack("<QQq", table.data[: len(table.data) // 24 * 24]):
            kind, index = info & 0xFFFFFFFF, info >> 32
            if index == 0:
                yield Relocation(offset, kind, addend)
            elif index < len(symbols):
                yield Relocation(offset, kind, symbols[index].address + addend, symbols[index].name)
            else:
                raise _damaged("a relocation has no symbol")


# ---- kernels -----------------------------------------------------------------------------------------------------------------


def _metadata(data: bytes, headers: list[tuple[int, ...]]) -> Mapping[str, Any]:
    for p_type, _, offset, _, _, size, _, _ in headers:
        if p_type != 4:
            continue
        notes, at = _slice(data, offset, size, "the notes"), 0
        while at + 12 <= len(notes):
            name_size, desc_size, kind = _unpack("<III", notes, at, "a note")
            name = _slice(notes, at + 12, name_size, "a note's name")
            at += 12 + (name_size + 3) // 4 * 4
            desc = _slice(notes, at, desc_size, "a note")
            at += (desc_size + 3) // 4 * 4
            if name.rstrip(b"\0") == b"AMDGPU" and kind == 32:
                return _unpack_metadata(desc)
    raise _damaged("it has no AMDGPU metadata note")


def _unpack_metadata(desc: bytes) -> Mapping[str, Any]:
    import msgpack  # pyright: ignore[reportMissingTypeStubs]

    unpack = cast("Any", msgpack.unpackb)  # pyright: ignore[reportUnknownMemberType]
    try:
        value: object = unpack(desc, raw=False, strict_map_key=False)
    except Exception as error:  # msgpack's exceptions have no common base
        raise _damaged(f"its metadata is not MessagePack ({error})") from None
    return _mapping(value, "the metadata")


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _damaged(f"{what} is not a map")
    return cast("dict[str, Any]", value)


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list) or len(cast("list[Any]", value)) > _MAX_KERNELS:
        raise _damaged(f"{what} is not a list")
    return cast("list[Any]", value)


def _integer(entry: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = entry.get(key, default)
    if not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise _damaged(f"{key} in the metadata is {value!r}, not a size")
    return int(value)


def _text(entry: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str):
        raise _damaged(f"{key} in the metadata is {value!r}, not a text")
    return value


def _kernels(
    arch: str,
    family: str,
    symbols: tuple[Symbol, ...],
    segments: tuple[Segment, ...],
    functions: tuple[Symbol, ...],
    text: Section,
    metadata: Mapping[str, Any],
) -> dict[str, Kernel]:
    target = _text(metadata, "amdhsa.target", "")
    if target and not f"-{target.partition(':')[0]}".endswith(f"-{arch}"):
        raise _damaged(f"its header says {arch}, its metadata {target}")
    by_name = {symbol.name: symbol for symbol in symbols}
    kernels: dict[str, Kernel] = {}
    for value in _list(metadata.get("amdhsa.kernels", []), "amdhsa.kernels"):
        entry = _mapping(value, "a kernel's metadata")
        name, symbol = _text(entry, ".name"), _text(entry, ".symbol")
        if symbol not in by_name:
            raise _damaged(f"kernel {name!r} has no descriptor {symbol!r} in the symbol table")
        address = by_name[symbol].address
        descriptor = _descriptor(family, _loaded(segments, address, 64, symbol), symbol)
        start = address + descriptor.entry_offset
        code = next((f for f in functions if f.address == start), None)
        if code is None:
            raise _damaged(f"kernel {name!r} starts at 0x{start:x}, where no function is")
        size = _list(entry.get(".reqd_workgroup_size", []), ".reqd_workgroup_size")
        if size and (len(size) != 3 or not all(isinstance(n, int) and 0 < n <= 1024 for n in size)):
            raise _damaged(f"kernel {name!r} requires a workgroup of {size!r}")
        wave_size = _integer(entry, ".wavefront_size", descriptor.wave_size)
        if wave_size != descriptor.wave_size:
            raise _damaged(f"kernel {name!r} has waves of {wave_size} in its metadata and {descriptor.wave_size} in its descriptor")
        kernels[name] = Kernel(
            name=name,
            entry=start,
            end=start + code.size,
            descriptor=descriptor,
            arguments=tuple(_argument(a) for a in _list(entry.get(".args", []), ".args")),
            max_workgroup_size=_integer(entry, ".max_flat_workgroup_size", 1024),
            workgroup_size=(size[0], size[1], size[2]) if size else None,
            kernarg_align=_integer(entry, ".kernarg_segment_align", 8),
            metadata=entry,
        )
    return kernels


def _argument(value: object) -> Argument:
    entry = _mapping(value, "an argument's metadata")
    return Argument(
        name=_text(entry, ".name", ""),
        offset=_integer(entry, ".offset"),
        size=_integer(entry, ".size"),
        kind=_text(entry, ".value_kind"),
        address_space=_text(entry, ".address_space", ""),
        access=_text(entry, ".actual_access", _text(entry, ".access", "")),
    )


def _loaded(segments: tuple[Segment, ...], address: int, size: int, what: str) -> bytes:
    for segment in segments:
        if segment.address <= address and address + size <= segment.address + len(segment.data):
            return segment.data[address - segment.address : address - segment.address + size]
    raise _damaged(f"{what} at 0x{address:x} is not in a loaded segment")


def _descriptor(family: str, raw: bytes, name: str) -> Descriptor:
    lds, scratch, kernarg, entry = struct.unpack_from("<III4xq", raw)
    rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", raw, 44)
    if lds > 1 << 20 or kernarg > 1 << 20:
        raise _damaged(f"{name} asks for {lds} bytes of LDS and {kernarg} bytes of arguments")
    gfx9, gfx12 = family in ("gfx9", "gfx90a"), family in ("gfx12", "gfx125")
    user_count = rsrc2 >> 1 & (0x3F if family == "gfx125" else 0x1F)
    dims = rsrc2 >> 11 & 3
    if dims == 3:
        raise _damaged(f"{name} enables work-item ids in a way that doesn't exist")
    return Descriptor(
        lds_size=lds,
        scratch_size=scratch,
        kernarg_size=kernarg,
        entry_offset=entry,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        wave_size=32 if properties >> 10 & 1 and not gfx9 else 64,
        user_sgprs=_user_sgprs(properties, preload & 0x7F, user_count, name),
        enable_scratch=bool(rsrc2 & 1),
        workgroup_id=(bool(rsrc2 >> 7 & 1), bool(rsrc2 >> 8 & 1), bool(rsrc2 >> 9 & 1)),
        workgroup_info=bool(rsrc2 >> 10 & 1),
        workitem_id_dims=dims + 1,
        float_round_32=rsrc1 >> 12 & 3,
        float_round_16_64=rsrc1 >> 14 & 3,
        float_denorm_32=rsrc1 >> 16 & 3,
        float_denorm_16_64=rsrc1 >> 18 & 3,
        ieee=bool(rsrc1 >> 23 & 1) and not gfx12,
        dx10_clamp=bool(rsrc1 >> 21 & 1) or gfx12,  # gfx12 has no bit: NaN always clamps to 0
        fp16_overflow=bool(rsrc1 >> 26 & 1),
        wgp_mode=bool(rsrc1 >> 29 & 1) and not gfx9,
        accum_offset=((rsrc3 & 0x3F) + 1) * 4 if family == "gfx90a" else 0,
        kernarg_preload_length=preload & 0x7F,
        kernarg_preload_offset=preload >> 7,
        uses_dynamic_stack=bool(properties >> 11 & 1),
    )


# Bit of kernel_code_properties and SGPRs of each user value, in the order of set-up.
_USER = (
    ("private_segment_buffer", 0, 4),
    ("dispatch_ptr", 1, 2),
    ("queue_ptr", 2, 2),
    ("kernarg_segment_ptr", 3, 2),
    ("dispatch_id", 4, 2),
    ("flat_scratch_init", 5, 2),
    ("private_segment_size", 6, 1),
)


def _user_sgprs(properties: int, preload: int, count: int, name: str) -> UserSgprs:
    at, first = 0, dict[str, "int | None"]()
    for field, bit, size in _USER:
        first[field] = at if properties >> bit & 1 else None
        at += size if properties >> bit & 1 else 0
    first["kernarg_preload"] = at if preload else None
    at += preload
    if at > count:
        raise _damaged(f"{name} has {count} user SGPRs, but its properties need {at}")
    return UserSgprs(**first, count=count)
