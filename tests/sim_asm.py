"""Kernels written in assembly, for the simulator's tests: assembled by llvm-mc, linked by ld.lld, run on arrays.

Every kernel has the same frame: s[0:1] points at the arguments, s2, s3, s4 are the workgroup's ids, v0 holds the packed work-item ids.
Arguments are pointers to the given arrays, 8 bytes each, then the given integers, 4 bytes each.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tessera.runtime.simulator import engine
from tests import tools

_FRAME = """
.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
.amdhsa_code_object_version 5
.text
.globl kernel
.p2align 8
.type kernel,@function
kernel:
{body}
.Lend:
.size kernel, .Lend-kernel
{data}
.section .rodata,"a",@progbits
.p2align 6
.amdhsa_kernel kernel
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_count 2
  .amdhsa_next_free_vgpr 128
  .amdhsa_next_free_sgpr 100
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {scratch}
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_system_sgpr_workgroup_id_y 1
  .amdhsa_system_sgpr_workgroup_id_z 1
  .amdhsa_system_vgpr_workitem_id 2
  .amdhsa_wavefront_size32 {wave32}
{directives}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--{arch}
amdhsa.kernels:
  - .name: kernel
    .symbol: kernel.kd
    .kernarg_segment_size: 64
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {scratch}
    .wavefront_size: {wave}
    .sgpr_count: 100
    .vgpr_count: 128
    .max_flat_workgroup_size: 1024
...
.end_amdgpu_metadata
"""


@cache
def build(body: str, arch: str = "gfx1151", lds: int = 0, scratch: int = 0, wave: int = 32, data: str = "", directives: str = "") -> bytes:
    """The code object of a kernel with this body."""
    source = _FRAME.format(
        body=body, arch=arch, lds=lds, scratch=scratch, wave=wave, wave32=int(wave == 32), data=data, directives=directives
    )
    with tempfile.TemporaryDirectory() as folder:
        return tools.lld(tools.assemble(source, arch), Path(folder))


def run(
    code: bytes,
    arrays: Sequence[np.ndarray[Any, Any]],
    integers: Sequence[int] = (),
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    **options: Any,
) -> engine.RunReport:
    """Run a kernel on arrays, in place. Each array is a buffer of the launch, named a, b, c …"""
    buffers = [engine.Buffer(chr(97 + i), a.ctypes.data, a.nbytes, a.flags.writeable) for i, a in enumerate(arrays)]
    kernarg = struct.pack(f"<{len(arrays)}Q", *(a.ctypes.data for a in arrays))
    kernarg += struct.pack(f"<{len(integers)}I", *(n & 0xFFFFFFFF for n in integers))
    return engine.prepare(code).run(grid, block, kernarg, buffers, **options)


# v1 = x, v2 = y, v3 = z of the work-item; s[8:9], s[10:11], s[12:13] the first three pointers.
IDS = """
  v_and_b32 v1, 0x3ff, v0
  v_bfe_u32 v2, v0, 10, 10
  v_bfe_u32 v3, v0, 20, 10
"""
POINTERS = """
  s_load_b128 s[8:11], s[0:1], 0x0
  s_load_b64 s[12:13], s[0:1], 0x10
  s_waitcnt lgkmcnt(0)
"""
