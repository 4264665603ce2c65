"""The simulator's reader of code objects: what it finds in real ones, and that damage is an error and never a crash."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
import tools
from llvm_kernels import lds_reverse, many_kernels, tables, vector_add, wmma_loop

from tessera import llvm
from tessera.errors import SimulatorError
from tessera.runtime.simulator.loader import CodeObject, load_code_object
from tessera.targets.rocm.codeobject import link

HEAD = 'target triple = "amdgcn-amd-amdhsa"\n'


def code_object(text: str, arch: str = "gfx1151") -> bytes:
    return link(llvm.compile_device(text, arch, optimize=1))


def load(text: str, arch: str = "gfx1151") -> CodeObject:
    return load_code_object(code_object(text, arch))


def test_a_kernel() -> None:
    code = load(vector_add())
    assert (code.arch, code.family, code.features, code.version) == ("gfx1151", "gfx11", (), 5)
    kernel = code.kernel("vector_add")
    assert [(a.name, a.offset, a.size, a.kind, a.is_pointer) for a in kernel.arguments] == [
        ("a", 0, 8, "global_buffer", True),
        ("b", 8, 8, "global_buffer", True),
        ("out", 16, 8, "global_buffer", True),
        ("n", 24, 4, "by_value", False),
    ]
    assert [a.access for a in kernel.arguments[:3]] == ["read_only", "read_only", "write_only"]
    assert kernel.max_workgroup_size == 64
    assert kernel.workgroup_size is None
    assert kernel.entry == code.text_address
    assert code.text[kernel.end - code.text_address - 4 : kernel.end - code.text_address] == struct.pack("<I", 0xBFB00000)  # s_endpgm
    d = kernel.descriptor
    assert (d.wave_size, d.lds_size, d.scratch_size, d.kernarg_size, d.workitem_id_dims) == (32, 0, 0, 28, 1)
    assert (d.user_sgprs.kernarg_segment_ptr, d.user_sgprs.dispatch_ptr, d.user_sgprs.count) == (0, None, 2)
    assert d.workgroup_id == (True, False, False)
    assert (d.ieee, d.dx10_clamp, d.wgp_mode, d.accum_offset) == (True, True, True, 0)
    assert d.mode == 0xF0  # round to nearest, subnormals kept
    assert code.disassembly is not None
    assert "global_load_b32" in code.disassembly


def test_segments_hold_text_and_tables() -> None:
    code = load(tables())
    assert set(code.kernels) == {"lookup", "halve"}
    assert [s.name for s in code.functions] == ["lookup", "halve"]
    executable = [s for s in code.segments if s.executable]
    assert len(executable) == 1
    assert (executable[0].address, executable[0].data) == (code.text_address, code.text)
    table = next(s for s in code.symbols if s.name == "primes")
    assert (table.size, table.kind, table.section, table.is_global) == (20, "object", ".rodata", False)
    data = next(s for s in code.segments if s.address <= table.address < s.address + len(s.data))
    assert data.data[table.address - data.address :][:20] == struct.pack("<5I", 2, 3, 5, 7, 1013)
    assert code.relocations == ()


def test_kernels_of_one_file_keep_their_entries() -> None:
    code = load(many_kernels(40))
    assert len({k.entry for k in code.kernels.values()}) == 40
    for i in (0, 17, 39):
        kernel = code.kernel(f"kernel_{i}")
        words = code.text[kernel.entry - code.text_address : kernel.end - code.text_address]
        assert struct.pack("<I", 1000 + i) in words  # the constant that this kernel stores
    with pytest.raises(SimulatorError, match="no kernel 'kernel_40'; it has: kernel_0, kernel_1"):
        code.kernel("kernel_40")


@pytest.mark.parametrize("version", [400, 500, 600])
def test_versions(version: int) -> None:
    assert load(vector_add(version)).version == version // 100


def test_descriptor_of_a_big_workgroup() -> None:
    code = load(lds_reverse())
    kernel = code.kernel("reverse")
    assert (kernel.descriptor.lds_size, kernel.max_workgroup_size) == (1024, 256)


def test_user_sgprs_and_ids() -> None:
    """Everything the hardware can be asked for: the order of user SGPRs is dispatch, queue, kernarg, dispatch id."""
    body = """
define amdgpu_kernel void @k(ptr addrspace(1) %out, i64 %x) #0 {
  %d = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %q = call ptr addrspace(4) @llvm.amdgcn.queue.ptr()
  %i = call i64 @llvm.amdgcn.dispatch.id()
  %x1 = load volatile i32, ptr addrspace(4) %d
  %x2 = load volatile i32, ptr addrspace(4) %q
  %y = call i32 @llvm.amdgcn.workitem.id.y()
  %z = call i32 @llvm.amdgcn.workitem.id.z()
  %g = call i32 @llvm.amdgcn.workgroup.id.z()
  %s = add i32 %y, %z
  %s2 = add i32 %s, %g
  store volatile i32 %s2, ptr addrspace(1) %out
  store volatile i64 %i, ptr addrspace(1) %out
  ret void
}
declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
declare ptr addrspace(4) @llvm.amdgcn.queue.ptr()
declare i64 @llvm.amdgcn.dispatch.id()
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workitem.id.z()
declare i32 @llvm.amdgcn.workgroup.id.z()
attributes #0 = { "uniform-work-group-size"="true" "target-features"="-wavefrontsize32,+wavefrontsize64" }
"""
    kernel = load(HEAD + body).kernel("k")
    sgprs = kernel.descriptor.user_sgprs
    assert (sgprs.dispatch_ptr, sgprs.queue_ptr, sgprs.kernarg_segment_ptr, sgprs.dispatch_id) == (0, 2, 4, 6)
    assert sgprs.count >= 8
    assert kernel.descriptor.workgroup_id == (True, False, True) or kernel.descriptor.workgroup_id == (True, True, True)
    assert kernel.descriptor.workitem_id_dims == 3
    assert kernel.descriptor.wave_size == 64
    assert {a.kind for a in kernel.arguments} >= {"global_buffer", "by_value"}


def test_scratch_required_size_and_float_mode() -> None:
    body = """
define amdgpu_kernel void @k(ptr addrspace(1) %out, i32 %i) #0 !reqd_work_group_size !1 {
  %a = alloca [32 x i32], align 4, addrspace(5)
  %p = getelementptr [32 x i32], ptr addrspace(5) %a, i32 0, i32 %i
  store volatile i32 7, ptr addrspace(5) %p
  %x = load volatile i32, ptr addrspace(5) %a
  store i32 %x, ptr addrspace(1) %out
  ret void
}
attributes #0 = { "denormal-fp-math-f32"="preserve-sign,preserve-sign" "amdgpu-ieee"="false" "amdgpu-flat-work-group-size"="64,64" }
!1 = !{i32 16, i32 2, i32 2}
"""
    kernel = load(HEAD + body).kernel("k")
    assert kernel.workgroup_size == (16, 2, 2)
    d = kernel.descriptor
    assert d.scratch_size >= 128
    assert d.enable_scratch
    assert not d.ieee
    assert (d.float_denorm_32, d.float_denorm_16_64) == (0, 3)


@pytest.mark.parametrize(
    ("arch", "family", "wave", "features", "accum"),
    [
        ("gfx90a", "gfx90a", 64, (), 4),
        ("gfx942", "gfx90a", 64, (), 4),
        ("gfx1030", "gfx10", 32, (), 0),
        ("gfx1201", "gfx12", 32, (), 0),
        ("gfx1250", "gfx125", 32, (), 0),
    ],
)
def test_other_families(arch: str, family: str, wave: int, features: tuple[str, ...], accum: int) -> None:
    code = load(vector_add(), arch)
    assert (code.arch, code.family, code.features) == (arch, family, features)
    d = code.kernel("vector_add").descriptor
    assert d.wave_size == wave
    assert d.accum_offset >= accum
    assert (d.accum_offset > 0) == (accum > 0)
    assert d.dx10_clamp


def test_kernarg_preload() -> None:
    body = """
define amdgpu_kernel void @k(ptr addrspace(1) inreg %out, i32 inreg %n) #0 {
  store i32 %n, ptr addrspace(1) %out
  ret void
}
attributes #0 = { "amdgpu-no-implicitarg-ptr" "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" }
"""
    d = load(HEAD + body, "gfx942").kernel("k").descriptor
    assert (d.kernarg_preload_length, d.kernarg_preload_offset) == (3, 0)
    assert d.user_sgprs.kernarg_preload == 2
    assert d.user_sgprs.count == 5


def test_relocations_of_pointer_tables(tmp_path: Path) -> None:
    """Other compilers' code objects may hold tables of pointers, which the dynamic loader relocates (lld links them)."""
    body = """
@t = internal addrspace(4) constant [3 x i32] [i32 11, i32 12, i32 13]
@p = internal addrspace(4) constant [2 x ptr addrspace(4)] [ptr addrspace(4) @t,
  ptr addrspace(4) getelementptr (i8, ptr addrspace(4) @t, i32 8)]
define amdgpu_kernel void @k(ptr addrspace(1) %out, i32 %i) {
  %e = getelementptr ptr addrspace(4), ptr addrspace(4) @p, i32 %i
  %q = load ptr addrspace(4), ptr addrspace(4) %e
  %v = load i32, ptr addrspace(4) %q
  store i32 %v, ptr addrspace(1) %out
  ret void
}
"""
    code = load_code_object(tools.lld(llvm.compile_device(HEAD + body, "gfx1151"), tmp_path))
    table = next(s for s in code.symbols if s.name == "t")
    pointers = next(s for s in code.symbols if s.name == "p")
    assert [(r.address, r.kind, r.value) for r in code.relocations] == [
        (pointers.address, 13, table.address),  # R_AMDGPU_RELATIVE64
        (pointers.address + 8, 13, table.address + 8),
    ]


def test_assembly_without_types_and_sizes(tmp_path: Path) -> None:
    source = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx1100"
.text
.globl k
.p2align 8
k:
  s_load_b64 s[0:1], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  global_store_b32 v0, v0, s[0:1]
  s_endpgm
.rodata
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_wavefront_size32 1
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .wavefront_size: 32
    .sgpr_count: 8
    .vgpr_count: 8
    .max_flat_workgroup_size: 256
    .args:
      - {.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}
.end_amdgpu_metadata
"""
    code = load_code_object(tools.lld(tools.assemble(source, "gfx1100"), tmp_path))
    kernel = code.kernel("k")
    assert code.disassembly is None
    assert kernel.end - kernel.entry == 8 + 4 + 8 + 4
    assert kernel.arguments[0].kind == "global_buffer"
    assert kernel.descriptor.user_sgprs.kernarg_segment_ptr == 0


# ---- damage --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: b"", "not an ELF file"),
        (lambda d: b"__CLANG_OFFLOAD_BUNDLE__" + d, "offload bundle"),
        (lambda d: d[:4] + b"\x01" + d[5:], "64-bit"),
        (lambda d: d[:18] + b"\x3e\x00" + d[20:], "machine 62, not AMDGPU"),
        (lambda d: d[:7] + b"\x00" + d[8:], "OS ABI is 0"),
        (lambda d: d[:8] + b"\x01" + d[9:], "ABI version 1 is not supported; versions 4 to 6"),
        (lambda d: d[:48] + b"\xfe" + d[49:], "unknown processor .*0xfe"),
        (lambda d: d[:48] + b"\x41" + d[49:], "its header says gfx1100, its metadata amdgcn-amd-amdhsa--gfx1151"),
        (lambda d: d[: len(d) // 2], "of a file of"),
        (lambda d: d[:60], "64-bit ELF"),
        (lambda d: d[:40] + struct.pack("<Q", 1 << 63) + d[48:], "a section header lies at"),
    ],
)
def test_damage_is_named(change: object, message: str) -> None:
    good = code_object(vector_add())
    assert callable(change)
    with pytest.raises(SimulatorError, match=message):
        load_code_object(change(good))


def test_relocatable_objects_are_refused() -> None:
    with pytest.raises(SimulatorError, match="not linked"):
        load_code_object(llvm.compile_device(vector_add(), "gfx1151"))


def test_text_must_be_what_its_segment_loads() -> None:
    good = code_object(vector_add())
    header = struct.pack("<QQ", 6, load_code_object(good).text_address)  # flags and address in the section header of .text
    at = good.index(header) + 16
    (offset,) = struct.unpack_from("<Q", good, at)
    with pytest.raises(SimulatorError, match=r"the \.text section is not what its segment loads"):
        load_code_object(good[:at] + struct.pack("<Q", offset - 64) + good[at + 8 :])


def survives(data: bytes) -> bool:
    """Whether the file still loads; anything but SimulatorError escapes and fails the test."""
    try:
        load_code_object(data)
    except SimulatorError:
        return False
    return True


def test_truncations() -> None:
    good = code_object(wmma_loop())
    step = max(1, len(good) // 400)
    assert not any(survives(good[:n]) for n in range(0, len(good), step))


def test_bit_flips() -> None:
    """Damage to the parts that are parsed (headers, notes, descriptors, tables): a flip is an error or harmless."""
    good = code_object(many_kernels(3))
    chance = random.Random(5)
    outcomes = set()
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 2, 8))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        outcomes.add(survives(bytes(data)))
    assert outcomes == {True, False}


def test_large_numbers_in_headers() -> None:
    """Sizes and counts at their extremes must neither allocate nor loop."""
    good = code_object(vector_add())
    for at in range(16, 64 + 8 * 56, 2):
        for value in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\x00\x00\x00\x00"):
            survives(good[:at] + value + good[at + 4 :])
