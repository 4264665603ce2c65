"""Code objects of other compilers through `launch`: arguments by their metadata, workgroup sizes, hidden arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tools

import tessera as ts
from tessera.errors import LaunchError, MemoryFaultError, SimulatorError
from tessera.runtime.foreign import find_kernel
from tessera.runtime.launch import launch
from tessera.runtime.simulator.loader import CodeObject, load_code_object

# out[i] = i * n + (number of workgroups along x) for every work-item i of the grid; `n` is an i32.
SOURCE = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx1151"
.text
.globl fill
.p2align 8
.type fill,@function
fill:
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b32 s8, s[0:1], 0x10
  v_and_b32 v0, 0x3ff, v0
  s_lshl_b32 s2, s2, 5
  v_add_nc_u32 v0, s2, v0
  s_waitcnt lgkmcnt(0)
  v_mul_lo_u32 v1, v0, s6
  v_add_nc_u32 v1, s8, v1
  v_lshlrev_b32 v0, 2, v0
  global_store_b32 v0, v1, s[4:5]
  s_endpgm
.Lend:
.size fill, .Lend-fill
.rodata
.p2align 6
.amdhsa_kernel fill
  .amdhsa_kernarg_size 24
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_next_free_vgpr 2
  .amdhsa_next_free_sgpr 9
  .amdhsa_wavefront_size32 1
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx1151
amdhsa.kernels:
  - .name: fill
    .symbol: fill.kd
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 32
    .sgpr_count: 9
    .vgpr_count: 2
    .max_flat_workgroup_size: 256
REQUIRED
    .args:
      - {.name: out, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: n, .offset: 8, .size: 4, .value_kind: by_value}
      - {.offset: 16, .size: 4, .value_kind: hidden_block_count_x}
...
.end_amdgpu_metadata
"""


def code(folder: Path, required: str = "") -> CodeObject:
    return load_code_object(tools.lld(tools.assemble(SOURCE.replace("REQUIRED\n", required), "gfx1151"), folder))


def test_runs_on_the_simulator(tmp_path: Path) -> None:
    tools.need("llvm-objdump")
    made = code(tmp_path)
    out = np.full(96, -1, np.int32)
    result = launch(made, 3, (out, 7), block=32)
    assert out.tolist() == [7 * i + 3 for i in range(96)]
    assert (result.executor, str(result.device), result.kernel, result.arch) == ("rocm_sim", "sim:gfx1151", "fill", "gfx1151")
    out[:] = -1
    launch(made, (2, 1), {"n": np.int32(-4), "out": out}, block=(32, 1, 1), kernel="fill", device="sim:gfx1151")
    assert out.tolist() == [2 - 4 * i for i in range(64)] + [-1] * 32
    launch(made, 0, (out, 7), block=32)
    with pytest.raises(MemoryFaultError, match="out"):
        launch(made, 4, (out, 7), block=32)


def test_what_doesnt_fit(tmp_path: Path) -> None:
    made = code(tmp_path)
    out = np.zeros(96, np.int32)
    for match, args, options in (
        ("doesn't fix its workgroup size .at most 256 threads.; pass block=", (out, 7), {}),
        ("which takes up to 256 threads", (out, 7), {"block": 512}),
        ("block of kernel 'fill' must be an integer", (out, 7), {"block": "x"}),
        ("has no kernel 'other'; it has fill", (out, 7), {"block": 32, "kernel": "other"}),
        (r"takes 2 arguments \(out, n\), not 1", (out,), {"block": 32}),
        ("takes out, n; given out", {"out": out}, {"block": 32}),
        ("out of kernel 'fill' is a pointer and takes an array, not 5", (5, 7), {"block": 32}),
        ("n of kernel 'fill' is a number of 4 bytes, not ndarray", (out, out), {"block": 32}),
        ("n of kernel 'fill' is a number of 4 bytes, not NumPy's int64", (out, np.int64(7)), {"block": 32}),
        ("4 bytes; 4294967296 doesn't fit", (out, 2**32), {"block": 32}),
        ("compiled for gfx1151, but device sim:gfx1100", (out, 7), {"block": 32, "device": "sim:gfx1100"}),
    ):
        with pytest.raises(LaunchError, match=match):
            launch(made, 1, args, **options)
    assert not out.any()


def test_a_required_workgroup_size(tmp_path: Path) -> None:
    made = code(tmp_path, "    .reqd_workgroup_size: [32, 1, 1]\n")
    _, kernel = find_kernel(made, None)
    assert kernel.workgroup_size == (32, 1, 1)
    with pytest.raises(LaunchError, match=r"compiled for workgroups of \(32, 1, 1\) threads, not \(64, 1, 1\)"):
        launch(made, 1, (np.zeros(96, np.int32), 7), block=64)


def test_load_takes_paths_and_bytes(tmp_path: Path) -> None:
    tools.need("llvm-objdump")
    data = tools.lld(tools.assemble(SOURCE.replace("REQUIRED\n", ""), "gfx1151"), tmp_path)
    path = tmp_path / "fill.hsaco"
    path.write_bytes(data)
    for source in (data, path, str(path)):
        out = np.full(64, -1, np.int32)
        ts.runtime.launch(ts.runtime.simulator.load(source), 2, (out, 5), block=32)
        assert out.tolist() == [5 * i + 2 for i in range(64)]
    with pytest.raises(SimulatorError, match="ELF"):
        ts.runtime.simulator.load(b"not a code object")
    with pytest.raises(FileNotFoundError):
        ts.runtime.simulator.load(tmp_path / "absent.hsaco")
