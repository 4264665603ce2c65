"""The lifter and the registers: control flow, EXEC, register aliasing, initial state, counters, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera import llvm
from tessera.errors import LaunchError, SimulatorError, UnsupportedInstructionError
from tessera.runtime.simulator import cache, engine, lifter
from tests import tools
from tests.sim_asm import IDS, POINTERS, build, run

STORE = "  global_store_b32 v10, v11, s[8:9]\n  s_endpgm\n"  # a[v10 bytes] = v11


def out(count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.full(count, 0xDEADBEEF, np.uint32)


def test_work_item_and_workgroup_ids() -> None:
    body = (
        IDS
        + POINTERS
        + """
      s_mul_i32 s5, s4, 6            ; group = z*6 + y*3 + x
      s_mul_i32 s6, s3, 3
      s_add_i32 s5, s5, s6
      s_add_i32 s5, s5, s2
      v_mul_u32_u24 v4, 5, v2        ; item = z*20 + y*5 + x
      v_mul_u32_u24 v5, 20, v3
      v_add3_u32 v4, v4, v5, v1
      v_mov_b32 v6, s5
      v_mad_u32_u24 v10, v6, 60, v4
      v_lshlrev_b32 v10, 2, v10
      v_lshl_or_b32 v11, v1, 0, 0
      v_lshl_or_b32 v11, v2, 4, v11
      v_lshl_or_b32 v11, v3, 8, v11
      v_lshl_or_b32 v11, s2, 12, v11
      v_lshl_or_b32 v11, s3, 16, v11
      v_lshl_or_b32 v11, s4, 20, v11
    """
        + STORE
    )
    a = out(12 * 60)
    run(build(body), [a], grid=(3, 2, 2), block=(5, 4, 3))
    z, y, x, tz, ty, tx = np.indices((2, 2, 3, 3, 4, 5))
    expected = tx | ty << 4 | tz << 8 | x << 12 | y << 16 | z << 20
    np.testing.assert_array_equal(a, expected.reshape(-1))


@pytest.mark.parametrize("threads", [1, 31, 32, 33, 70])
def test_partial_last_wave(threads: int) -> None:
    body = IDS + POINTERS + "v_lshlrev_b32 v10, 2, v1\nv_add_nc_u32 v11, 100, v1\n" + STORE
    a = out(96)
    report = run(build(body), [a], block=(threads, 1, 1))
    np.testing.assert_array_equal(a[:threads], 100 + np.arange(threads))
    assert (a[threads:] == 0xDEADBEEF).all()
    assert report.counters.bytes_stored == 4 * threads
    assert report.counters.by_mnemonic["global_store_b32"] == -(-threads // 32)


def test_loop_with_a_count_from_the_arguments() -> None:
    body = (
        IDS
        + POINTERS
        + """
      s_load_b32 s6, s[0:1], 0x8
      v_mov_b32 v11, 0
      s_mov_b32 s7, 0
      s_waitcnt lgkmcnt(0)
      s_cmp_eq_u32 s6, 0
      s_cbranch_scc1 done
    again:
      v_add_nc_u32 v11, v11, v1
      s_add_i32 s7, s7, 1
      s_cmp_lt_u32 s7, s6
      s_cbranch_scc1 again
    done:
      v_lshlrev_b32 v10, 2, v1
    """
        + STORE
    )
    for trips in (0, 1, 7):
        a = out(32)
        report = run(build(body), [a], [trips])
        np.testing.assert_array_equal(a, trips * np.arange(32))
        assert report.counters.by_mnemonic.get("s_cmp_lt_u32", 0) == trips


def test_divergent_branches_and_a_loop_until_no_lane_is_left() -> None:
    # Lane i counts its Collatz steps.
    body = (
        IDS
        + POINTERS
        + """
      v_add_nc_u32 v4, 1, v1
      v_mov_b32 v11, 0
      s_mov_b32 s20, exec_lo
    again:
      v_cmp_ne_u32 vcc_lo, 1, v4
      s_and_b32 exec_lo, exec_lo, vcc_lo
      s_cbranch_execz out
      v_and_b32 v5, 1, v4
      v_cmp_eq_u32 vcc_lo, 1, v5
      s_and_saveexec_b32 s21, vcc_lo
      s_xor_b32 s21, exec_lo, s21
      s_cbranch_execz even
      v_mad_u32_u24 v4, v4, 3, 1
    even:
      s_or_saveexec_b32 s21, s21
      s_xor_b32 exec_lo, exec_lo, s21
      v_lshrrev_b32 v4, 1, v4
      s_or_b32 exec_lo, exec_lo, s21
      v_add_nc_u32 v11, 1, v11
      s_branch again
    out:
      s_mov_b32 exec_lo, s20
      v_lshlrev_b32 v10, 2, v1
    """
        + STORE
    )

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n = 3 * n + 1 if n % 2 else n // 2
            count += 1
        return count

    for threads in (32, 27):
        a = out(32)
        run(build(body), [a], block=(threads, 1, 1))
        np.testing.assert_array_equal(a[:threads], [steps(i + 1) for i in range(threads)])
        assert (a[threads:] == 0xDEADBEEF).all()


def test_branches_on_vcc() -> None:
    body = (
        IDS
        + POINTERS
        + """
      v_mov_b32 v11, 0
      v_cmp_gt_u32 vcc_lo, 32, v1
      s_cbranch_vccz skip1
      v_or_b32 v11, 1, v11
    skip1:
      v_cmp_gt_u32 vcc_lo, 0, v1
      s_cbranch_vccz skip2
      v_or_b32 v11, 2, v11
    skip2:
      v_cmp_eq_u32 vcc_lo, 5, v1
      s_cbranch_vccnz skip3
      v_or_b32 v11, 4, v11
    skip3:
      v_cndmask_b32 v12, 0, 8, vcc_lo
      v_or_b32 v11, v11, v12
      v_lshlrev_b32 v10, 2, v1
    """
        + STORE
    )
    a = out(32)
    run(build(body), [a])
    np.testing.assert_array_equal(a, np.where(np.arange(32) == 5, 9, 1))


def test_scalar_registers_alias_as_words_pairs_and_masks() -> None:
    body = (
        IDS
        + POINTERS
        + """
      s_mov_b32 s20, 0x11111111
      s_mov_b32 s21, 0x22222222
      s_lshl_b64 s[22:23], s[20:21], 4      ; 0x22222221_11111110
      s_mov_b32 s23, 5                      ; the low half stays
      s_add_u32 s24, s22, s23
      v_cmp_lt_u32 s20, 15, v1              ; a mask over half of a pair
      s_lshr_b64 s[26:27], s[20:21], 8      ; 0x00222222_22ffff00
      v_cmp_lt_u32 vcc_lo, 3, v1
      s_mov_b32 s28, vcc_lo
      s_mov_b32 vcc_lo, 0x0f0f0f0f
      v_cndmask_b32 v12, 1, 2, vcc_lo
      s_not_b32 s29, vcc_lo
      v_writelane_b32 v11, s24, 0
      v_writelane_b32 v11, s26, 1
      v_writelane_b32 v11, s27, 2
      v_writelane_b32 v11, s28, 3
      v_writelane_b32 v11, s29, 4
      v_writelane_b32 v11, s20, 5
      v_lshlrev_b32 v10, 2, v1
      global_store_b32 v10, v12, s[8:9] offset:128
    """
        + STORE
    )
    a = out(64)
    run(build(body), [a])
    assert [hex(x) for x in a[:6].tolist()] == [
        "0x11111115",
        "0x22ffff00",
        "0x222222",
        "0xfffffff0",
        "0xf0f0f0f0",
        "0xffff0000",
    ]
    np.testing.assert_array_equal(a[32:], [2 if i % 8 < 4 else 1 for i in range(32)])


def test_masks_are_pairs_in_wave64(tmp_path: Path) -> None:
    """Compiled for wave64 of RDNA: each lane of a divergent branch stores the ballot of a comparison, the others something else."""
    text = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @kernel(ptr addrspace(1) %a) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %late = icmp ugt i32 %t, 20
  %ballot = call i64 @llvm.amdgcn.ballot.i64(i1 %late)
  %p = getelementptr i64, ptr addrspace(1) %a, i32 %t
  %r = urem i32 %t, 3
  %third = icmp eq i32 %r, 0
  br i1 %third, label %yes, label %no
yes:
  store i64 %ballot, ptr addrspace(1) %p
  ret void
no:
  %inner = call i64 @llvm.amdgcn.ballot.i64(i1 true)
  store i64 %inner, ptr addrspace(1) %p
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i64 @llvm.amdgcn.ballot.i64(i1)
attributes #0 = { "amdgpu-flat-work-group-size"="1,128" "target-features"="+wavefrontsize64" "amdgpu-no-implicitarg-ptr" }
"""
    code = tools.lld(llvm.compile_device(text, "gfx1151", features="+dumpcode,+wavefrontsize64"), tmp_path)
    a = np.zeros(128, np.uint64)
    run(code, [a], block=(101, 1, 1))
    others = sum(1 << i for i in range(64) if i % 3)
    others_second = sum(1 << i for i in range(37) if (i + 64) % 3)
    for i in range(101):
        late = (1 << 64) - (1 << 21) if i < 64 else (1 << 37) - 1
        assert int(a[i]) == (late if i % 3 == 0 else others if i < 64 else others_second)
    assert (a[101:] == 0).all()


def test_constant_data_is_reached_from_the_program_counter() -> None:
    body = (
        IDS
        + POINTERS
        + """
      s_getpc_b64 s[20:21]
      s_add_u32 s20, s20, table@rel32@lo+4
      s_addc_u32 s21, s21, table@rel32@hi+12
      v_lshlrev_b32 v10, 2, v1
      global_load_b32 v11, v10, s[20:21]
      s_waitcnt vmcnt(0)
    """
        + STORE
    )
    data = (
        '.section .rodata.table,"a",@progbits\n.globl table\n.protected table\n.p2align 4\n.type table,@object\n.size table,128\ntable:\n'
    )
    data += "\n".join(f"  .long {7 * i * i + 3}" for i in range(32))
    a = out(32)
    run(build(body, data=data), [a])
    np.testing.assert_array_equal(a, 7 * np.arange(32) ** 2 + 3)


def test_dual_issue_reads_before_it_writes() -> None:
    body = (
        IDS
        + POINTERS
        + """
      v_add_nc_u32 v5, 40, v1
      v_mov_b32 v4, v1
      v_dual_mov_b32 v4, v5 :: v_dual_mov_b32 v5, v4
      v_lshl_or_b32 v11, v4, 16, v5
      v_lshlrev_b32 v10, 2, v1
    """
        + STORE
    )
    a = out(32)
    report = run(build(body), [a])
    i = np.arange(32)
    np.testing.assert_array_equal(a, (i + 40) << 16 | i)
    assert report.counters.by_mnemonic["v_mov_b32"] == 3


def test_counts_by_class() -> None:
    body = IDS + POINTERS + "v_lshlrev_b32 v10, 2, v1\nv_mov_b32 v11, 1\n" + STORE
    report = run(build(body), [out(64)], grid=(3, 1, 1), block=(64, 1, 1))
    counted = report.counters
    assert counted.by_class == {"vector": 30, "scalar load": 12, "wait": 6, "global store": 6, "branch": 6}
    assert counted.instructions == 60
    assert counted.bytes_stored == 3 * 64 * 4
    assert counted.lds_conflicts is None


# ---- errors ---------------------------------------------------------------------------------------------------------------------------


def test_unknown_instructions_are_refused_when_the_program_is_prepared() -> None:
    with pytest.raises(UnsupportedInstructionError, match=r"ds_append.*gfx1151") as caught:
        engine.prepare(build("ds_append v1 offset:4\ns_endpgm", lds=64))
    assert caught.value.mnemonic == "ds_append"
    assert caught.value.pc is not None


def test_unreachable_code_is_not_lifted() -> None:
    run(build("s_endpgm\nds_append v1\ns_endpgm"), [])


def test_computed_jumps_are_refused() -> None:
    with pytest.raises(UnsupportedInstructionError, match="fully inlined"):
        engine.prepare(build("s_getpc_b64 s[4:5]\ns_setpc_b64 s[4:5]\ns_endpgm"))


def test_rounding_modes_are_refused() -> None:
    with pytest.raises(UnsupportedInstructionError, match="rounding"):
        engine.prepare(build("s_round_mode 3\ns_endpgm"))
    with pytest.raises(SimulatorError, match="rounding"):
        engine.prepare(build("s_endpgm", directives="  .amdhsa_float_round_mode_32 1"))


def test_a_trap_names_its_place() -> None:
    with pytest.raises(SimulatorError, match=r"trapped: s_trap at pc 0x[0-9a-f]+, wave 1 of workgroup \(0, 0, 0\)"):
        run(build("v_cmp_gt_u32 vcc_lo, 32, v0\ns_cbranch_vccnz fine\ns_trap 2\nfine:\ns_endpgm"), [], block=(64, 1, 1))


def test_the_mode_register_can_be_read_and_its_denormal_bits_set() -> None:
    body = (
        IDS
        + POINTERS
        + """
      s_getreg_b32 s20, hwreg(HW_REG_MODE, 4, 4)
      s_denorm_mode 5
      s_getreg_b32 s21, hwreg(HW_REG_MODE, 4, 4)
      s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 2
      s_getreg_b32 s22, hwreg(HW_REG_MODE)
      v_mov_b32 v11, 0
      v_writelane_b32 v11, s20, 0
      v_writelane_b32 v11, s21, 1
      v_writelane_b32 v11, s22, 2
      v_lshlrev_b32 v10, 2, v1
    """
        + STORE
    )
    a = out(32)
    run(build(body, directives="  .amdhsa_float_denorm_mode_32 3\n  .amdhsa_float_denorm_mode_16_64 3"), [a])
    assert a[0] == 15
    assert a[1] == 5
    assert a[2] & 0xFF == 0x60


@pytest.mark.parametrize(
    ("grid", "block", "kernarg", "message"),
    [
        ((1, 1, 1), (2048, 1, 1), b"", "at most 1024"),
        ((-1, 1, 1), (32, 1, 1), b"", "negative"),
        ((1, 1, 1), (0, 1, 1), b"", "empty"),
    ],
)
def test_launches_that_cannot_be(grid: tuple[int, int, int], block: tuple[int, int, int], kernarg: bytes, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        engine.prepare(build("s_endpgm")).run(grid, block, kernarg, [])


def test_an_empty_grid_does_nothing() -> None:
    body = IDS + POINTERS + "v_lshlrev_b32 v10, 2, v1\nv_mov_b32 v11, 1\n" + STORE
    a = out(32)
    report = run(build(body), [a], grid=(0, 5, 1))
    assert (a == 0xDEADBEEF).all()
    assert report.counters.instructions == 0


# ---- the cache ------------------------------------------------------------------------------------------------------------------------


def test_host_code_is_kept_and_damage_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    cache.forget()
    body = IDS + POINTERS + "v_lshlrev_b32 v10, 2, v1\nv_mov_b32 v11, 77\n" + STORE
    code = build(body)
    lifted: list[int] = []
    original = lifter.lift

    def counted(kernel: lifter.Kernel) -> lifter.Lifted:
        lifted.append(1)
        return original(kernel)

    monkeypatch.setattr(lifter, "lift", counted)

    def go() -> None:
        a = out(32)
        run(code, [a])
        assert (a == 77).all()

    go()
    assert len(lifted) == 1
    cache.forget()
    go()
    assert len(lifted) == 1  # from disk
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 0x40
        path.write_bytes(raw)
    cache.forget()
    go()
    assert len(lifted) == 2  # made again
    for path in files:
        path.write_bytes(b"")
    cache.forget()
    go()
    assert len(lifted) == 3
    monkeypatch.setenv("TESSERA_CACHE_DIR", "")
    cache.forget()
    go()
    assert len(lifted) == 4
