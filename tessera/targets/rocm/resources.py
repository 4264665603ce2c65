"""What a compiled kernel uses and how many waves that leaves room for: read from the finished code object, not estimated."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ...errors import CompilerBug
from . import elf
from .arch import Arch

# A workgroup of more than one wave needs a barrier resource, of which a compute unit has 16 (LLVM, AMDGPUBaseInfo.cpp,
# getMaxWorkGroupsPerCU); a work-group processor is two compute units with two SIMDs each.
_BARRIERS_PER_SIMD = {64: 4, 32: 8}

Limit = Literal["registers", "LDS", "waves", "workgroups"]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The 64 bytes that the hardware starts a kernel from (LLVM, AMDGPUUsage, "Kernel Descriptor"), as far as we need them. Bytes."""

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    entry_offset: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int

    @property
    def wave32(self) -> bool:
        return bool(self.properties >> 10 & 1)

    @property
    def user_sgprs(self) -> int:
        return self.rsrc2 >> 1 & 0x1F


@dataclass(frozen=True, slots=True)
class Resources:
    """Registers are per lane (VGPRs, AGPRs) or per wave (SGPRs); spills count registers; `lds_bytes` is per workgroup, `scratch_bytes` per
    work-item. `waves_per_simd` is how many waves a SIMD holds at once when whole workgroups of this kernel fill the processor, rounded
    up; `limit` is what allows no more: registers, LDS, the hardware's wave slots, or its number of workgroups."""

    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    vgpr_spills: int
    sgpr_spills: int
    waves_per_simd: int
    limit: Limit


def kernel_metadata(code: bytes) -> dict[str, Mapping[str, Any]]:
    """The metadata of each kernel by name: the maps of `amdhsa.kernels`. Works on relocatable and linked objects."""
    import msgpack  # pyright: ignore[reportMissingTypeStubs]

    unpack = cast("Any", msgpack.unpackb)  # pyright: ignore[reportUnknownMemberType]
    section = elf.read(code).section(".note")
    notes, at = (section.data if section is not None else b""), 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        start = at + 12 + (name_size + 3) // 4 * 4
        if kind == elf.NT_AMDGPU_METADATA and notes[at + 12 : at + 12 + name_size].rstrip(b"\0") == b"AMDGPU":
            return {kernel[".name"]: kernel for kernel in unpack(notes[start : start + size])["amdhsa.kernels"]}
        at = start + (size + 3) // 4 * 4
    raise CompilerBug("the code object has no AMDGPU metadata")


def _symbol(source: elf.Elf, name: str) -> elf.Symbol:
    found = next((symbol for symbol in source.symbols if symbol.name == name), None)
    if found is None:
        raise CompilerBug(f"the code object has no symbol {name!r}")
    return found


def kernel_descriptor(code: bytes, name: str) -> Descriptor:
    """The descriptor of kernel `name`. Works on relocatable objects (where `entry_offset` is 0) and linked ones."""
    source = elf.read(code)
    symbol = _symbol(source, name + ".kd")
    section = source.sections[symbol.section]
    raw = section.data[symbol.value - section.address :][:64]
    lds, scratch, kernarg, entry = struct.unpack_from("<III4xq", raw)
    rsrc3, rsrc1, rsrc2, properties = struct.unpack_from("<IIIH", raw, 44)
    return Descriptor(lds, scratch, kernarg, entry, rsrc1, rsrc2, rsrc3, properties)


def waves_per_simd(arch: Arch, registers: int, lds_bytes: int, waves_per_workgroup: int) -> tuple[int, Limit]:
    """Waves that a SIMD holds, and what limits them. `registers` counts what a lane takes of the file: VGPRs, and AGPRs where it is
    unified. Only whole workgroups run; their waves are spread evenly over the SIMDs of a processor."""
    by_registers = arch.waves_per_simd(registers) * arch.simds // waves_per_workgroup
    slots = arch.max_waves_per_simd * arch.simds // waves_per_workgroup
    lds = -(-lds_bytes // arch.lds_granule) * arch.lds_granule
    by_lds = arch.lds_bytes_per_processor // lds if lds else slots
    by_barriers = _BARRIERS_PER_SIMD[arch.wave_size] * arch.simds if waves_per_workgroup > 1 else slots
    limits: tuple[tuple[int, Limit], ...] = ((slots, "waves"), (by_barriers, "workgroups"), (by_registers, "registers"), (by_lds, "LDS"))
    workgroups, limit = min(limits, key=lambda pair: pair[0])
    return -(-workgroups * waves_per_workgroup // arch.simds), limit


def resources(code: bytes, kernel: str, arch: Arch) -> Resources:
    """The verdict on kernel `kernel` of a linked code object, whose workgroups have the size that its metadata records."""
    entry = kernel_metadata(code)[kernel]
    descriptor = kernel_descriptor(code, kernel)
    waves = -(-int(entry[".max_flat_workgroup_size"]) // arch.wave_size)
    # On arches with a unified file .vgpr_count counts both kinds, on gfx908 the larger: what the allocation goes by.
    per_simd, limit = waves_per_simd(arch, int(entry[".vgpr_count"]), descriptor.lds_bytes, waves)
    return Resources(
        vgprs=_symbol(elf.read(code), kernel + ".num_vgpr").value,
        agprs=int(entry.get(".agpr_count", 0)),
        sgprs=int(entry[".sgpr_count"]),
        lds_bytes=descriptor.lds_bytes,
        scratch_bytes=descriptor.scratch_bytes,
        vgpr_spills=int(entry[".vgpr_spill_count"]),
        sgpr_spills=int(entry[".sgpr_spill_count"]),
        waves_per_simd=per_simd,
        limit=limit,
    )
