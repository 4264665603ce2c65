"""The GPU architectures, one row each. Code asks a row (`arch.matrix_core`, `arch.has_permlanex16`), never a name or a part of one.

Sources of the numbers: LLVM 22's AMDGPU backend (AMDGPUBaseInfo.cpp: register files and granules; AMDGPU.td: features, LDS sizes),
AMDGPUUsage, AMD's CDNA1-4 and RDNA2-4 ISA guides, and for the LDS granule of RDNA the RDNA2 ISA guide §3.6.6 (1024 bytes; LLVM counts
in 512).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Literal

from tessera.errors import UnsupportedArchError

MatrixCore = Literal["wmma", "mfma"]


class Family(Enum):
    """A generation that shares an instruction set; the value is its public name."""

    CDNA1 = "CDNA1"
    CDNA2 = "CDNA2"
    CDNA3 = "CDNA3"
    CDNA4 = "CDNA4"
    RDNA2 = "RDNA2"
    RDNA3 = "RDNA3"
    RDNA35 = "RDNA3.5"
    RDNA4 = "RDNA4"
    GFX125 = "gfx125x"  # WMMA with wave32 and no AGPRs, whatever the marketing name


@dataclass(frozen=True, slots=True)
class Arch:
    """What the compiler has to know about one arch.

    Registers are counted per lane. A *processor* is what runs a workgroup and owns its LDS: a compute unit on CDNA, a work-group
    processor (two compute units, the mode LLVM compiles for) on RDNA.
    """

    name: str
    family: Family
    matrix_core: MatrixCore | None
    wave_size: int  # lanes; the one that we compile for
    vgprs_per_simd: int  # that the waves of a SIMD share, AGPRs included where the file is unified
    vgpr_granule: int  # registers are given out in multiples of this
    addressable_vgprs: int  # that one wave can use, AGPRs not counted
    agprs: int  # accumulation registers per wave; 0 on RDNA and gfx125x
    max_waves_per_simd: int
    simds: int  # per processor
    lds_bytes: int  # limit of one workgroup
    lds_bytes_per_processor: int
    lds_granule: int  # bytes
    lds_banks: int  # that one access can use, 4 bytes each
    buffer_flags: int  # word 3 of a raw buffer descriptor: 32-bit data, bounds checked in bytes
    supported: bool = False  # whether this version compiles for it
    has_permlanex16: bool = False  # v_permlanex16_b32: reads the other 16 lanes of 32
    has_permlane64: bool = False
    has_permlane_swap: bool = False  # v_permlane16_swap_b32
    has_dpp_row_xmask: bool = False  # DPP reads lane ^ mask within 16 lanes
    has_dual_issue: bool = False
    has_packed_f32: bool = False
    has_bf16_conversion: bool = False  # v_cvt_pk_bf16_f32
    has_fp8_conversion: bool = False
    has_split_barrier: bool = False
    max_workgroup_threads: int = 1024

    @property
    def executor(self) -> str:
        """The name of the executor that runs code objects of this arch on hardware."""
        return "rocm_mfma" if self.matrix_core == "mfma" else "rocm_wmma"

    @property
    def max_waves(self) -> int:
        """Waves in the largest workgroup."""
        return self.max_workgroup_threads // self.wave_size

    def waves_per_simd(self, vgprs: int) -> int:
        """How many waves that use `vgprs` registers each fit a SIMD's register file, at most `max_waves_per_simd`."""
        rounded = max(1, -(-vgprs // self.vgpr_granule)) * self.vgpr_granule
        return min(self.max_waves_per_simd, self.vgprs_per_simd // rounded)

    def __str__(self) -> str:
        return self.name


_KIB = 1024
_RAW_GFX9, _RAW_GFX10, _RAW_GFX125 = 0x0002_7000, 0x3102_7000, 0


def _cdna(
    name: str, family: Family, *, vgprs: int, granule: int, waves: int, lds: int, lds_granule: int, banks: int, **features: bool
) -> Arch:
    return Arch(
        name, family, "mfma", 64, vgprs, granule, 256, 256, waves, 4, lds, lds, lds_granule, banks, _RAW_GFX9, **features
    )  # fmt: skip


def _rdna(name: str, family: Family, core: MatrixCore | None, *, vgprs: int, supported: bool = False, **features: bool) -> Arch:
    # A CU's half of the LDS has 32 banks; a workgroup in WGP mode reaches both halves, one access reaches one.
    return Arch(
        name, family, core, 32, vgprs, vgprs // 64, 256, 0, 16, 4, 64 * _KIB, 128 * _KIB, 1024, 32, _RAW_GFX10, supported,
        has_permlanex16=True, has_dpp_row_xmask=True, **features,
    )  # fmt: skip


def _rdna3(name: str, family: Family, vgprs: int) -> Arch:
    return _rdna(name, family, "wmma", vgprs=vgprs, supported=True, has_permlane64=True, has_dual_issue=True)


def _rdna4(name: str) -> Arch:
    return _rdna(
        name, Family.RDNA4, "wmma", vgprs=1536, has_permlane64=True, has_dual_issue=True, has_fp8_conversion=True, has_split_barrier=True
    )  # fmt: skip


def _gfx125(name: str) -> Arch:
    # 64 banks by IREE's tables, 32 by LLVM's feature list: 64 here decides only paddings. The descriptor flags have no public source.
    return Arch(
        name, Family.GFX125, "wmma", 32, 1024, 16, 1024, 0, 16, 4, 320 * _KIB, 320 * _KIB, 2048, 64, _RAW_GFX125,
        has_permlanex16=True, has_permlane64=True, has_permlane_swap=True, has_dpp_row_xmask=True, has_dual_issue=True,
        has_packed_f32=True, has_bf16_conversion=True, has_fp8_conversion=True, has_split_barrier=True,
    )  # fmt: skip


_ROWS = (
    _cdna("gfx908", Family.CDNA1, vgprs=256, granule=4, waves=10, lds=64 * _KIB, lds_granule=512, banks=32),
    _cdna("gfx90a", Family.CDNA2, vgprs=512, granule=8, waves=8, lds=64 * _KIB, lds_granule=512, banks=32, has_packed_f32=True),
    _cdna(
        "gfx942", Family.CDNA3, vgprs=512, granule=8, waves=8, lds=64 * _KIB, lds_granule=512, banks=32,
        has_packed_f32=True, has_fp8_conversion=True,
    ),
    _cdna(
        "gfx950", Family.CDNA4, vgprs=512, granule=8, waves=8, lds=160 * _KIB, lds_granule=1280, banks=64,
        has_packed_f32=True, has_fp8_conversion=True, has_bf16_conversion=True, has_permlane_swap=True,
    ),
    _rdna("gfx1030", Family.RDNA2, None, vgprs=1024),
    _rdna3("gfx1100", Family.RDNA3, 1536),
    _rdna3("gfx1101", Family.RDNA3, 1536),
    _rdna3("gfx1102", Family.RDNA3, 1024),
    _rdna3("gfx1103", Family.RDNA3, 1024),
    _rdna3("gfx1150", Family.RDNA35, 1024),
    _rdna3("gfx1151", Family.RDNA35, 1536),
    _rdna3("gfx1152", Family.RDNA35, 1024),
    _rdna3("gfx1153", Family.RDNA35, 1024),
    _rdna4("gfx1200"),
    _rdna4("gfx1201"),
    _gfx125("gfx1250"),
    _gfx125("gfx1251"),
)  # fmt: skip

_BY_NAME = {row.name: row for row in _ROWS}


def _check_rows() -> None:
    if len(_BY_NAME) != len(_ROWS):
        raise ValueError("an arch has two rows")
    for row in _ROWS:
        mfma = row.matrix_core == "mfma"
        if mfma != (row.wave_size == 64) or mfma != (row.agprs > 0):
            raise ValueError(f"{row}: MFMA, wave64 and AGPRs go together")
        if row.vgprs_per_simd % row.vgpr_granule or row.lds_bytes > row.lds_bytes_per_processor:
            raise ValueError(f"{row}: register or LDS sizes contradict each other")


_check_rows()

DEFAULT = "gfx1151"


def arches() -> tuple[Arch, ...]:
    """All rows, those that this version doesn't compile for included."""
    return _ROWS


def supported_names() -> tuple[str, ...]:
    """The names of the arches that this version compiles for."""
    return tuple(row.name for row in _ROWS if row.supported)


@cache
def arch(name: str) -> Arch:
    """The row of an arch, by its exact name; feature suffixes as the HIP runtime reports them ("gfx942:sramecc+:xnack-") are left out.

    Raises UnsupportedArchError for a name that isn't in the table, listing what is and what looks alike. The row may be one that this
    version doesn't compile for: see `compilable`.
    """
    base = name.split(":", 1)[0]
    row = _BY_NAME.get(base)
    if row is None:
        close = difflib.get_close_matches(base, _BY_NAME, n=3, cutoff=0.7)
        hint = f" Close to it: {', '.join(close)}." if close else ""
        raise UnsupportedArchError(f"there is no arch {name!r}.{hint} Known: {', '.join(_BY_NAME)}")
    return row


def compilable(name: str) -> Arch:
    """The row of an arch that this version compiles for. Raises UnsupportedArchError for any other."""
    row = arch(name)
    if not row.supported:
        raise UnsupportedArchError(
            f"{row} ({row.family.value}) is known but this version doesn't compile for it yet; "
            f"it compiles for {', '.join(supported_names())}"
        )
    return row
