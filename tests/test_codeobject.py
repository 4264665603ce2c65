"""The linker against ld.lld, the line table against llvm-dwarfdump, and the resource verdict against known kernels."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import tools
from elftools.elf.elffile import ELFFile
from llvm_kernels import lds_reverse, many_kernels, tables, vector_add, with_lines, wmma_loop

from tessera import llvm
from tessera.errors import CompilerBug
from tessera.targets.rocm.arch import arch
from tessera.targets.rocm.codeobject import link
from tessera.targets.rocm.debuglines import line_table
from tessera.targets.rocm.resources import kernel_descriptor, kernel_metadata, resources, waves_per_simd

KERNELS: dict[str, Callable[[], str]] = {
    "vector_add": vector_add,
    "lds_reverse": lds_reverse,
    "wmma_loop": wmma_loop,
    "tables": tables,
    "nine kernels": lambda: many_kernels(9),
    "forty kernels": lambda: many_kernels(40),
    "version 6": lambda: vector_add(version=600),
    "debug": with_lines,
}
ARCHES = ("gfx1151", "gfx1102")


def sections(code: bytes) -> dict[str, tuple[dict[str, int], bytes]]:
    """name -> (header fields, bytes) by pyelftools: an independent reader."""
    found = {}
    for section in ELFFile(BytesIO(code)).iter_sections():
        header = dict(section.header)
        # Numbers and names of sections differ, since we keep fewer; SHF_MERGE means nothing any more once it is linked.
        header |= {"sh_link": 0, "sh_name": 0, "sh_flags": header["sh_flags"] & ~0x10}
        found[section.name] = (header, section.data() if header["sh_type"] != "SHT_NOBITS" else b"")
    return found


def symbols(code: bytes, table: str) -> list[tuple[object, ...]]:
    file = ELFFile(BytesIO(code))
    names = [s.name for s in file.iter_sections()]
    place = lambda index: names[index] if isinstance(index, int) else index  # noqa: E731
    return [
        (s.name, s["st_value"], s["st_size"], s["st_info"]["type"], s["st_info"]["bind"], s["st_other"]["visibility"], place(s["st_shndx"]))
        for s in file.get_section_by_name(table).iter_symbols()
    ]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("gfx", ARCHES)
def test_equals_lld(name: str, gfx: str, tmp_path: Path) -> None:
    obj = llvm.compile_device(KERNELS[name](), gfx, optimize=1)
    ours, theirs = link(obj), tools.lld(obj, tmp_path)
    a, b = ELFFile(BytesIO(ours)), ELFFile(BytesIO(theirs))
    assert a.header["e_ident"] == b.header["e_ident"]
    for key in ("e_type", "e_machine", "e_flags", "e_entry", "e_phoff", "e_phnum", "e_version"):
        assert a.header[key] == b.header[key], key
    assert [dict(s.header) for s in a.iter_segments()] == [dict(s.header) for s in b.iter_segments()]
    mine, other = sections(ours), sections(theirs)
    loaded = [n for n, (header, _) in other.items() if header["sh_flags"] & 2]
    assert [n for n, (header, _) in mine.items() if header["sh_flags"] & 2] == loaded
    for section in loaded:
        # Headers and bytes alike: where everything lies is the same, so not even relative addresses differ.
        assert mine[section][0] == other[section][0], section
        assert mine[section][1] == other[section][1], section
    assert mine[".AMDGPU.disasm"][1] == other[".AMDGPU.disasm"][1] != b""
    for table in (".dynsym", ".symtab"):
        assert symbols(ours, table) == symbols(theirs, table)
    assert not [n for n in mine if n.startswith(".debug")]


def test_readelf_prints_the_metadata() -> None:
    code = link(llvm.compile_device(lds_reverse(), "gfx1151"))
    text = tools.run("llvm-readelf", "--notes", "-", input=code).decode()
    for line in ("amdhsa.target:   amdgcn-amd-amdhsa--gfx1151", ".group_segment_fixed_size: 1024", ".max_flat_workgroup_size: 256"):
        assert line in text
    assert "warning" not in tools.run("llvm-readelf", "-aW", "-", input=code).decode()


def test_descriptor_points_at_the_kernel() -> None:
    obj = llvm.compile_device(many_kernels(5), "gfx1151")
    code = link(obj)
    by_name = {s[0]: s[1] for s in symbols(code, ".dynsym")}
    for i in range(5):
        offset = kernel_descriptor(code, f"kernel_{i}").entry_offset
        assert by_name[f"kernel_{i}.kd"] + offset == by_name[f"kernel_{i}"]


def test_is_reproducible_and_keeps_no_trace_of_the_machine() -> None:
    assert link(llvm.compile_device(vector_add(), "gfx1151")) == link(llvm.compile_device(vector_add(), "gfx1151"))


def test_constant_tables_are_where_the_code_looks() -> None:
    obj = llvm.compile_device(tables(), "gfx1151", optimize=1)
    code = link(obj)
    mine = sections(code)
    header, text = mine[".text"]
    ro_header, rodata = mine[".rodata"]
    # An address is s_getpc_b64 and an add of the literal `symbol@rel32@lo+4`, which counts from the end of s_getpc_b64.
    found = []
    for relocation in ELFFile(BytesIO(obj)).get_section_by_name(".rela.text").iter_relocations():
        at = relocation["r_offset"]
        if relocation["r_info_type"] == 10:  # REL32_LO; S + A - P with A = 4 + the offset in .rodata
            (value,) = struct.unpack_from("<i", text, at)
            end_of_getpc = header["sh_addr"] + at - 4
            found.append(rodata[end_of_getpc + value - ro_header["sh_addr"] :])
    assert len(found) == 3
    assert any(r.startswith(struct.pack("<5I", 2, 3, 5, 7, 1013)) for r in found)
    assert any(r.startswith(struct.pack("<8I", 8, 7, 6, 5, 4, 3, 2, 1)) for r in found)
    assert any(r.startswith(struct.pack("<3d", 0.5, 1.5, 2.5)) for r in found)


HEAD = 'target triple = "amdgcn-amd-amdhsa"\n'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "@g = internal addrspace(1) global i32 7\n"
            "define amdgpu_kernel void @k() { store volatile i32 1, ptr addrspace(1) @g ret void }",
            "writable data",
        ),
        (
            "@g = external hidden addrspace(1) global i32\ndefine amdgpu_kernel void @k() { store i32 1, ptr addrspace(1) @g ret void }",
            "nothing defines 'g'",
        ),
        ("@g = external addrspace(1) global i32\ndefine amdgpu_kernel void @k() { store i32 1, ptr addrspace(1) @g ret void }", "'g'"),
        ("define void @f() { ret void }", "no kernel"),
    ],
)
def test_refusals(body: str, message: str) -> None:
    with pytest.raises(CompilerBug, match=message):
        link(llvm.compile_device(HEAD + body, "gfx1151"))


def test_refuses_what_is_not_a_relocatable_object() -> None:
    code = link(llvm.compile_device(vector_add(), "gfx1151"))
    with pytest.raises(CompilerBug, match="not relocatable"):
        link(code)
    with pytest.raises(CompilerBug, match="not a little-endian"):
        link(b"MZ" + bytes(100))


# ---- lines ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "folder", "path"),
    [
        ("kernels.py", "/home/user/project", "/home/user/project/kernels.py"),
        ("/abs/kernels.py", "/home/user", "/abs/kernels.py"),
        ("C:/Users/me/kernels.py", "", "C:/Users/me/kernels.py"),
        ("<ipython-input-3>", "/home/user", "<ipython-input-3>"),
    ],
)
def test_lines(file: str, folder: str, path: str) -> None:
    rows = line_table(llvm.compile_device(with_lines(file, folder), "gfx1151"))
    assert {row.line for row in rows} >= {12, 13, 20}
    assert {row.file for row in rows} == {path, ""}
    assert rows == sorted(rows, key=lambda row: row.offset)
    assert rows[0].offset == 0
    assert rows[-1].file == ""


def test_lines_equal_dwarfdump() -> None:
    obj = llvm.compile_device(with_lines(), "gfx1151", optimize=1)
    text = tools.run("llvm-dwarfdump", "--debug-line", "-", input=obj).decode()
    rows = re.findall(r"^0x([0-9a-f]{16})\s+(\d+)\s+\d+\s+\d+\s+\d+\s+\d+\s+\d+\s+(.*)$", text, re.MULTILINE)
    expected = [(int(address, 16), 0 if "end_sequence" in flags else int(line)) for address, line, flags in rows]
    assert [(row.offset, row.line) for row in line_table(obj)] == expected
    assert len(expected) > 4


def test_no_lines_without_debug_locations() -> None:
    assert line_table(llvm.compile_device(vector_add(), "gfx1151")) == []


# ---- resources -----------------------------------------------------------------------------------------------------------------


def test_resources_of_a_kernel() -> None:
    code = link(llvm.compile_device(lds_reverse(), "gfx1151"))
    found = resources(code, "reverse", arch("gfx1151"))
    entry = kernel_metadata(code)["reverse"]
    assert (found.lds_bytes, found.scratch_bytes, found.vgpr_spills, found.sgpr_spills, found.agprs) == (1024, 0, 0, 0, 0)
    assert 2 <= found.vgprs == entry[".vgpr_count"] <= 16
    assert found.sgprs == entry[".sgpr_count"]
    assert (found.waves_per_simd, found.limit) == (16, "waves")
    assert kernel_descriptor(code, "reverse").wave32


def many_live_values(count: int, attributes: str) -> str:
    """A kernel of one wave that keeps `count` floats in registers at once."""
    lines = [f"%p{i} = getelementptr float, ptr addrspace(1) %a, i32 {i * 5}" for i in range(count)]
    lines += [f"%v{i} = load volatile float, ptr addrspace(1) %p{i}" for i in range(count)]
    lines += [f"store volatile float %v{i}, ptr addrspace(1) %p{i}" for i in range(count)]
    body = "\n".join(lines)
    return (
        f"{HEAD}define amdgpu_kernel void @k(ptr addrspace(1) %a) #0 {{\n{body}\nret void\n}}\n"
        f'attributes #0 = {{ "amdgpu-flat-work-group-size"="32,32" {attributes} }}\n'
    )


def test_resources_count_spills() -> None:
    found = resources(link(llvm.compile_device(many_live_values(90, '"amdgpu-num-vgpr"="32"'), "gfx1151")), "k", arch("gfx1151"))
    assert found.vgprs <= 32
    assert found.vgpr_spills > 0
    assert found.scratch_bytes > 0


@pytest.mark.parametrize(
    ("gfx", "registers", "lds", "waves", "expected"),
    [
        # VGPRs alone: LLVM's own "; Occupancy" ladder for gfx1151 (granule 24 of 1536) and gfx1150 (16 of 1024).
        ("gfx1151", 96, 0, 1, (16, "waves")),
        ("gfx1151", 97, 0, 1, (12, "registers")),
        ("gfx1151", 208, 0, 4, (7, "registers")),
        ("gfx1151", 256, 0, 1, (5, "registers")),
        ("gfx1150", 64, 0, 1, (16, "waves")),
        ("gfx1150", 65, 0, 1, (12, "registers")),
        ("gfx1150", 208, 0, 4, (4, "registers")),
        # LDS: 128 KiB per work-group processor in granules of 1024.
        ("gfx1151", 32, 17920, 4, (7, "LDS")),
        ("gfx1151", 32, 65536, 8, (4, "LDS")),
        ("gfx1151", 32, 65536, 1, (1, "LDS")),
        ("gfx1151", 32, 1, 4, (16, "waves")),
        # Whole workgroups: 28 wave slots hold 3 workgroups of 8 waves.
        ("gfx1151", 208, 0, 8, (6, "registers")),
        ("gfx1151", 208, 0, 32, (0, "registers")),
        # Two waves: 32 workgroups are all 64 slots; no barrier limit bites. CODEGEN's CDNA3 matmul: three by LDS.
        ("gfx1151", 24, 0, 2, (16, "waves")),
        ("gfx942", 122, 19456, 4, (3, "LDS")),
        ("gfx950", 122, 17408, 4, (4, "registers")),
    ],
)  # fmt: skip
def test_occupancy(gfx: str, registers: int, lds: int, waves: int, expected: tuple[int, str]) -> None:
    assert waves_per_simd(arch(gfx), registers, lds, waves) == expected


@pytest.mark.parametrize("gfx", ["gfx1100", "gfx1102", "gfx1151", "gfx1153"])
def test_occupancy_by_registers_is_llvms(gfx: str) -> None:
    """LLVM notes registers and occupancy in its assembly; without LDS and with one wave a workgroup both must agree."""
    seen = set()
    for live in (8, 50, 70, 100, 130, 155, 200):
        text = many_live_values(live, "").encode()
        assembly = tools.run("llc", "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={gfx}", "-O1", "-o", "-", input=text).decode()
        registers, occupancy = (int(re.findall(rf"; {key}: (\d+)", assembly)[0]) for key in ("NumVgprs", "Occupancy"))
        assert waves_per_simd(arch(gfx), registers, 0, 1)[0] == occupancy, registers
        seen.add(occupancy)
    assert len(seen) >= 5
