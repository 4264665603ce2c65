"""The checking mode's undefined data: where it comes from, how it travels, what uses are reported, and what isn't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.errors import UninitializedDataError
from tessera.runtime.simulator import engine
from tessera.runtime.simulator.checking.rules import RULES
from tessera.runtime.simulator.semantics import lookup
from tessera.runtime.simulator.semantics.table import Generation
from tests import sim_asm, tools
from tests.sim_asm import POINTERS, build, run

# v1: the work-item, v2: four times that. Nothing has written v20 to v40 and s30 to s60.
HEAD = POINTERS + "  v_and_b32 v1, 0x3ff, v0\n  v_lshlrev_b32 v2, 2, v1\n"
OUT = "  global_store_b32 v2, v10, s[8:9]\n  s_endpgm\n"
WAIT = "  s_waitcnt lgkmcnt(0)\n"


def checked(body: str, block: int = 32, **options: Any) -> np.ndarray[Any, Any]:
    given = [np.zeros(256, np.uint32), np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)]
    run(build(HEAD + body, lds=4096, scratch=64, **options), given, block=(block, 1, 1), check=True)
    return given[0]


def undefined(body: str, block: int = 32, **options: Any) -> str:
    with pytest.raises(UninitializedDataError) as caught:
        checked(body, block, **options)
    return str(caught.value)


# ---- uses -----------------------------------------------------------------------------------------------------------------------------


def test_a_store_of_a_register_that_nothing_set() -> None:
    text = undefined("  v_mov_b32 v10, v20\n" + OUT)
    assert text.startswith("global_store_b32 at pc 0x")
    assert "uses undefined data as the data that it stores: wave 0 of workgroup (0, 0, 0), lane 0" in text


@pytest.mark.parametrize(
    ("body", "mnemonic", "use"),
    [
        ("  v_mov_b32 v10, 0\n  global_store_b32 v20, v10, s[8:9]\n  s_endpgm\n", "global_store_b32", "an address"),
        ("  global_load_b32 v10, v20, s[10:11]\n  s_waitcnt vmcnt(0)\n" + OUT, "global_load_b32", "an address"),
        ("  v_mov_b32 v10, 0\n  global_store_b32 v2, v10, s[30:31]\n  s_endpgm\n", "global_store_b32", "an address"),
        ("  s_load_b32 s20, s[30:31], 0x0\n" + WAIT + "  v_mov_b32 v10, s20\n" + OUT, "s_load_b32", "an address"),
        ("  ds_load_b32 v10, v20\n" + WAIT + "  v_mov_b32 v10, 0\n" + OUT, "ds_load_b32", "an address"),
        ("  v_mov_b32 v10, 0\n  ds_store_b32 v20, v10\n" + WAIT + OUT, "ds_store_b32", "an address"),
        ("  v_mov_b32 v10, 0\n  s_cmp_lg_u32 s30, 0\n  s_cbranch_scc1 x\nx:\n" + OUT, "s_cbranch_scc1", "a branch condition"),
        ("  v_mov_b32 v10, 0\n  v_cmp_gt_u32 vcc_lo, 5, v20\n  s_cbranch_vccz x\nx:\n" + OUT, "s_cbranch_vccz", "a branch condition"),
        ("  v_mov_b32 v10, 0\n  v_cmp_gt_u32 s5, 5, v20\n  s_and_saveexec_b32 s6, s5\n" + OUT, "s_and_saveexec_b32", "the EXEC mask"),
        ("  v_mov_b32 v10, 0\n  s_mov_b32 exec_lo, s30\n" + OUT, "s_mov_b32", "the EXEC mask"),
        ("  v_mov_b32 v10, 0\n  v_cmpx_gt_u32 5, v20\n" + OUT, "v_cmpx_gt_u32", "the EXEC mask"),
        (
            "  v_mov_b32 v10, 0\n  global_atomic_add_u32 v2, v20, s[8:9]\n  s_endpgm\n",
            "global_atomic_add_u32",
            "the data that it stores",
        ),
        ("  v_mov_b32 v10, 0\n  s_mov_b32 m0, s30\n  v_movrels_b32 v10, v1\n" + OUT, "v_movrels_b32", "a register number"),
    ],
)
def test_uses(body: str, mnemonic: str, use: str) -> None:
    text = undefined(body)
    assert text.startswith(f"{mnemonic} at pc 0x")
    assert f"uses undefined data as {use}: " in text


def test_the_lane_is_named() -> None:
    """Only lanes from 5 on are undefined: the others were written under EXEC."""
    body = "  v_cmp_gt_u32 s5, 5, v1\n  s_and_saveexec_b32 s6, s5\n  v_mov_b32 v10, v1\n  s_mov_b32 exec_lo, s6\n"
    assert "lane 5;" in undefined(body + OUT)
    out = checked(body + "  v_cmp_gt_u32 s5, 5, v1\n  s_mov_b32 exec_lo, s5\n" + OUT)
    assert out[:6].tolist() == [0, 1, 2, 3, 4, 0]


def test_lanes_outside_a_buffer_may_store_anything() -> None:
    """A buffer store of which only the first four lanes are in range."""
    body = """
      v_cmp_gt_u32 s5, 4, v1
      s_and_saveexec_b32 s6, s5
      v_mov_b32 v10, 9
      s_mov_b32 exec_lo, s6
      s_mov_b32 s24, s8
      s_mov_b32 s25, s9
      s_mov_b32 s26, {size}
      s_mov_b32 s27, 0x31027000
      buffer_store_b32 v10, v2, s[24:27], 0 offen
      s_endpgm
    """
    assert checked(body.format(size=16))[:5].tolist() == [9, 9, 9, 9, 0]
    assert "lane 4;" in undefined(body.format(size=20))


# ---- sources --------------------------------------------------------------------------------------------------------------------------


def test_what_the_abi_sets_is_defined() -> None:
    checked("  v_add_nc_u32 v10, s2, v0\n  v_add3_u32 v10, v10, s3, s4\n" + OUT)
    assert "global_store_b32" in undefined("  v_mov_b32 v10, s5\n" + OUT)


def test_lds_that_nothing_wrote() -> None:
    assert "the data that it stores" in undefined("  ds_load_b32 v10, v2\n" + WAIT + OUT)
    checked("  ds_store_b32 v2, v1\n" + WAIT + "  ds_load_b32 v10, v2\n" + WAIT + OUT)
    # Byte by byte: three of four bytes are written.
    part = "  ds_store_b16 v2, v1\n  ds_store_b8 v2, v1 offset:2\n" + WAIT
    assert "the data that it stores" in undefined(part + "  ds_load_b32 v10, v2\n" + WAIT + OUT)
    checked(part + "  ds_load_b32 v10, v2\n" + WAIT + "  v_and_b32 v10, 0xffffff, v10\n" + OUT)
    checked(part + "  ds_load_u16 v10, v2\n" + WAIT + OUT)


def test_lds_hands_undefined_data_on() -> None:
    body = "  ds_store_b32 v2, v20\n" + WAIT + "  ds_load_b32 v10, v2\n" + WAIT + OUT
    assert "the data that it stores" in undefined(body)
    wide = "  v_mov_b32 v20, 1\n  v_mov_b32 v21, 2\n  v_mov_b32 v23, 4\n  v_lshlrev_b32 v3, 4, v1\n  ds_store_b128 v3, v[20:23]\n" + WAIT
    for offset in (0, 4, 12):
        checked(wide + f"  ds_load_b32 v10, v3 offset:{offset}\n" + WAIT + OUT)
    assert "the data that it stores" in undefined(wide + "  ds_load_b32 v10, v3 offset:8\n" + WAIT + OUT)


def test_two_addresses_at_once() -> None:
    store = "  v_mov_b32 v20, 1\n  ds_store_2addr_b32 v2, v20, v21 offset1:64\n" + WAIT
    load = "  ds_load_2addr_b32 v[24:25], v2 offset1:64\n" + WAIT
    checked(store + load + "  v_mov_b32 v10, v24\n" + OUT)
    assert "the data that it stores" in undefined(store + load + "  v_mov_b32 v10, v25\n" + OUT)


def test_each_workgroup_begins_with_undefined_lds() -> None:
    body = "  s_cmp_lg_u32 s2, 0\n  s_cbranch_scc1 skip\n  ds_store_b32 v2, v1\n" + WAIT + "skip:\n  ds_load_b32 v10, v2\n" + WAIT
    body += "  v_lshl_add_u32 v2, s2, 8, v2\n" + OUT
    checked(body)
    given = [np.zeros(128, np.uint32) for _ in range(3)]
    with pytest.raises(UninitializedDataError, match=r"wave 0 of workgroup \(1, 0, 0\)"):
        run(build(HEAD + body, lds=4096), given, grid=(2, 1, 1), check=True)


def test_lds_atomics() -> None:
    zeroed = "  ds_store_b32 v2, v2\n" + WAIT
    add = "  ds_add_u32 v2, v1\n" + WAIT + "  ds_load_b32 v10, v2\n" + WAIT
    checked(zeroed + add + OUT)
    assert "the data that it stores" in undefined(add + OUT)
    assert "the data that it stores" in undefined(zeroed + add.replace("v1\n", "v20\n", 1) + OUT)
    assert "the data that it stores" in undefined("  ds_add_rtn_u32 v10, v2, v1\n" + WAIT + OUT)
    checked(zeroed + "  ds_add_rtn_u32 v10, v2, v1\n" + WAIT + OUT)


def test_scratch() -> None:
    spill = "  scratch_store_b32 off, v1, off offset:8\n  s_waitcnt_vscnt null, 0x0\n"
    checked(spill + "  scratch_load_b32 v10, off, off offset:8\n  s_waitcnt vmcnt(0)\n" + OUT)
    assert "the data that it stores" in undefined(spill + "  scratch_load_b32 v10, off, off offset:12\n  s_waitcnt vmcnt(0)\n" + OUT)
    assert "the data that it stores" in undefined(
        spill.replace("v1,", "v20,") + "  scratch_load_b32 v10, off, off offset:8\n  s_waitcnt vmcnt(0)\n" + OUT
    )


def test_loads_define_their_registers() -> None:
    checked("  global_load_b32 v10, v2, s[10:11]\n  s_waitcnt vmcnt(0)\n" + OUT)
    half = "  global_load_d16_b16 v10, v2, s[10:11]\n  s_waitcnt vmcnt(0)\n"
    assert "the data that it stores" in undefined(half + OUT)
    checked(half + "  v_and_b32 v10, 0xffff, v10\n" + OUT)
    checked(half + "  global_load_d16_hi_b16 v10, v2, s[10:11]\n  s_waitcnt vmcnt(0)\n" + OUT)
    checked(half + "  global_store_b16 v2, v10, s[8:9]\n  s_endpgm\n")
    assert "the data that it stores" in undefined(half + "  global_store_d16_hi_b16 v2, v10, s[8:9]\n  s_endpgm\n")


# ---- how it travels -------------------------------------------------------------------------------------------------------------------

# v20 is undefined; v21 has a defined low half, v22 a defined low byte.
PARTLY = "  v_mov_b16 v21.l, v1.l\n  ds_store_b8 v2, v1\n" + WAIT + "  ds_load_b32 v22, v2\n" + WAIT

DEFINED = [
    "v_xor_b32 v10, v20, v20",
    "v_sub_nc_u32 v10, v20, v20",
    "v_and_b32 v10, 0, v20",
    "v_and_b32 v10, 0xffff, v21",
    "v_or_b32 v10, 0xffff0000, v21",
    "v_or_b32 v10, -1, v20",
    "v_and_or_b32 v10, v22, 0xff, v1",
    "v_bfe_u32 v10, v21, 3, 9",
    "v_bfe_i32 v10, v22, 0, 8",
    "v_lshlrev_b32 v10, 16, v21",
    "v_lshlrev_b32 v10, 24, v22",
    "v_perm_b32 v10, v1, v21, 0x05040100",
    "v_perm_b32 v10, v20, v21, 0x0c0c0100",
    "v_bfi_b32 v10, 0xffff, v21, v1",
    "v_bfi_b32 v10, 0xffff0000, v1, v21",
    "v_lshl_or_b32 v10, v21, 16, v1",
    "v_cvt_f32_ubyte0 v10, v22",
    "v_mov_b32 v30, v1\n  v_mad_u64_u32 v[10:11], null, v1, 12, v[30:31]",
    "v_cvt_f32_f16 v10, v21.l",
    "v_pack_b32_f16 v10, v21.l, v1.l",
    "v_add_nc_u32 v21, v21, v1\n  v_and_b32 v10, 0xffff, v21",
    "v_mul_lo_u32 v21, v21, v21\n  v_and_b32 v10, 0xffff, v21",
    "v_lshl_add_u32 v22, v22, 4, v1\n  v_and_b32 v10, 0xfff, v22",
    "v_mad_u32_u24 v10, v21, v1, v1\n  v_and_b32 v10, 0xffff, v10",
    "v_add_nc_u16 v21.l, v21.l, v1.l\n  v_and_b32 v10, 0xffff, v21",
    "v_fma_f16 v21.l, v21.l, v21.l, v21.l\n  v_and_b32 v10, 0xffff, v21",
    "v_pk_add_f16 v21, v21, v1\n  v_and_b32 v10, 0xffff, v21",
    "v_pk_mul_lo_u16 v10, v21, v21 op_sel_hi:[0,0]",
    "v_cmp_ge_u32 vcc_lo, v1, v1\n  v_cndmask_b32 v10, v20, v1, vcc_lo",
    "v_cmp_ge_u32 s5, v1, v1\n  v_cndmask_b32 v10, v1, v20, s5\n  v_cndmask_b32 v10, v10, v1, s5",
    "v_dual_mov_b32 v10, v1 :: v_dual_mov_b32 v31, v20",
    "v_readfirstlane_b32 s5, v1\n  v_mov_b32 v10, s5",
    "v_writelane_b32 v20, 5, 3\n  v_readlane_b32 s5, v20, 3\n  v_mov_b32 v10, s5",
    "v_mov_b32_dpp v10, v1 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
    "ds_bpermute_b32 v10, v2, v1\n  s_waitcnt lgkmcnt(0)",
    "ds_swizzle_b32 v10, v1 offset:swizzle(SWAP,1)\n  s_waitcnt lgkmcnt(0)",
    "v_swap_b32 v1, v20\n  v_mov_b32 v10, v20",
    "s_and_b32 s5, s30, 0\n  v_mov_b32 v10, s5",
    "s_or_b32 s5, s30, -1\n  s_cmp_eq_u32 s5, -1\n  s_cselect_b32 s5, 3, s31\n  v_mov_b32 v10, s5",
    "s_mov_b32 s33, 7\n  s_lshl_b64 s[32:33], s[32:33], 32\n  v_mov_b32 v10, s32",
    "s_bitset1_b32 s34, 3\n  s_movk_i32 s34, 5\n  v_mov_b32 v10, s34",
]
UNDEFINED = [
    "v_xor_b32 v10, v20, v24",
    "v_and_b32 v10, 0x1ffff, v21",
    "v_and_b32 v10, v1, v20",
    "v_or_b32 v10, 0xfff00000, v21",
    "v_bfe_u32 v10, v21, 3, 14",
    "v_bfe_u32 v10, v1, v20, 4",
    "v_lshlrev_b32 v10, 15, v21",
    "v_lshrrev_b32 v10, v20, v1",
    "v_perm_b32 v10, v1, v21, 0x05040201",
    "v_perm_b32 v10, v1, v1, v20",
    "v_cvt_f32_ubyte1 v10, v22",
    "v_cvt_f32_f16 v10, v21.h",
    "v_add_nc_u32 v10, v21, v1",
    "v_mul_f32 v10, v20, v1",
    "v_fma_f32 v10, v1, v1, v20",
    "v_pk_add_f16 v10, v21, v1",
    "v_cmp_ge_u32 vcc_lo, v1, v1\n  v_cndmask_b32 v10, v1, v20, vcc_lo",
    "v_cmp_ge_u32 vcc_lo, v20, v1\n  v_cndmask_b32 v10, v1, v2, vcc_lo",
    "v_dual_mov_b32 v10, v20 :: v_dual_mov_b32 v31, v1",
    "v_readfirstlane_b32 s5, v20\n  v_mov_b32 v10, s5",
    "v_writelane_b32 v20, 5, 3\n  v_readlane_b32 s5, v20, 4\n  v_mov_b32 v10, s5",
    "v_mov_b32_dpp v10, v1 row_shr:1 row_mask:0xf bank_mask:0xf",
    "v_mov_b32_dpp v10, v20 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
    "ds_bpermute_b32 v10, v2, v20\n  s_waitcnt lgkmcnt(0)",
    "ds_bpermute_b32 v10, v20, v1\n  s_waitcnt lgkmcnt(0)",
    "ds_swizzle_b32 v10, v20 offset:swizzle(SWAP,1)\n  s_waitcnt lgkmcnt(0)",
    "v_swap_b32 v1, v20\n  v_mov_b32 v10, v1",
    "v_permlanex16_b32 v10, v20, 0, 0",
    "s_add_u32 s5, s30, 1\n  v_mov_b32 v10, s5",
    "s_cmp_eq_u32 s30, 0\n  s_cselect_b32 s5, 3, 4\n  v_mov_b32 v10, s5",
    "s_mov_b32 s33, 7\n  s_lshl_b64 s[32:33], s[32:33], 16\n  v_mov_b32 v10, s33",
    "v_mad_u64_u32 v[10:11], null, v1, v20, 0",
    "v_mov_b32 v30, v1\n  v_mad_u64_u32 v[10:11], null, v1, 12, v[30:31]\n  v_mov_b32 v10, v11",
]


@pytest.mark.parametrize("body", DEFINED)
def test_results_that_are_defined(body: str) -> None:
    checked(PARTLY + "  " + body + "\n" + OUT)


@pytest.mark.parametrize("body", UNDEFINED)
def test_results_that_are_not(body: str) -> None:
    assert "the data that it stores" in undefined(PARTLY + "  " + body + "\n" + OUT)


def test_a_branch_that_a_defined_bit_decides() -> None:
    body = "  v_mov_b32 v10, 0\n  v_cmp_gt_u32 vcc_lo, 5, v20\n  s_or_b32 vcc_lo, vcc_lo, 4\n  s_cbranch_vccz x\nx:\n"
    checked(body + OUT)
    assert "a branch condition" in undefined(body.replace(", 4\n", ", 0\n") + OUT)


def test_undefined_on_one_path_only() -> None:
    """Static knowledge of a join: v20 is set on one side."""
    body = "  s_cmp_eq_u32 s2, {number}\n  s_cbranch_scc1 skip\n  v_mov_b32 v20, 3\nskip:\n  v_mov_b32 v10, v20\n"
    checked(body.format(number=1) + OUT)
    assert "the data that it stores" in undefined(body.format(number=0) + OUT)


def test_through_a_loop() -> None:
    """The last iteration's value goes round; only the first iteration may read what nothing set."""
    body = """
      s_mov_b32 s20, 3
      v_mov_b32 v10, 0
      {first}
    loop:
      v_add_nc_u32 v10, v10, v20
      v_mov_b32 v20, v1
      s_sub_u32 s20, s20, 1
      s_cmp_lg_u32 s20, 0
      s_cbranch_scc1 loop
    """
    assert checked(body.format(first="v_mov_b32 v20, 1") + OUT)[:32].tolist() == [1 + 2 * i for i in range(32)]
    assert "the data that it stores" in undefined(body.format(first="s_nop 0") + OUT)


def test_matrix_products() -> None:
    """Row 3 of A and column 5 of B decide which elements are undefined; C adds its own."""
    setup = "".join(f"  v_mov_b32 v{r}, 0\n" for r in range(40, 64))
    product = "  v_wmma_f32_16x16x16_f16 v[56:63], v[40:47], v[48:55], v[56:63]\n"
    # v64 is undefined in lane 3 and 19 (A) or 5 and 21 (B) only.
    some = "  s_mov_b32 exec_lo, {mask}\n  v_mov_b32 {register}, v20\n  s_mov_b32 exec_lo, -1\n"
    keep = "  s_mov_b32 exec_lo, {lanes}\n  v_mov_b32 v10, v{register}\n"
    row3 = some.format(mask="0x80008", register="v43")
    # Row 3 of D is register 1 of lanes 16 to 31.
    for register in range(8):
        body = setup + row3 + product
        checked(body + keep.format(lanes="0xffff", register=56 + register) + OUT)
        high = body + keep.format(lanes="0xffff0000", register=56 + register) + OUT
        if register == 1:
            assert "lane 16;" in undefined(high)
        else:
            checked(high)
    column5 = setup + some.format(mask="0x200020", register="v50") + product
    for register in (56, 63):
        assert "lane 5;" in undefined(column5 + keep.format(lanes="0xffff", register=register) + OUT)
        assert "lane 21;" in undefined(column5 + keep.format(lanes="0xffff0000", register=register) + OUT)
        checked(column5 + keep.format(lanes="0xffdfffdf", register=register) + OUT)
    c = setup + some.format(mask="0x40", register="v58") + product
    assert "lane 6;" in undefined(c + keep.format(lanes="-1", register=58) + OUT)
    checked(c + keep.format(lanes="-1", register=59) + OUT)


def test_partial_last_wave() -> None:
    checked("  v_mov_b32 v10, v1\n" + OUT, block=37)
    assert "wave 0" in undefined("  v_mov_b32 v10, v20\n" + OUT, block=37)


def test_rules_are_for_instructions_that_exist() -> None:
    for mnemonic in RULES:
        assert any(lookup(mnemonic, generation) is not None for generation in Generation), mnemonic


def test_wave64(tmp_path: Path) -> None:
    """EXEC and masks are pairs of registers."""

    def program(body: str) -> engine.Program:
        source = sim_asm._FRAME.format(  # pyright: ignore[reportPrivateUsage]
            body=HEAD + body + OUT, arch="gfx1151", lds=0, scratch=0, wave=64, wave32=0, data="", directives=""
        )
        arguments = ("-triple=amdgcn-amd-amdhsa", "-mcpu=gfx1151", "-mattr=+wavefrontsize64", "-filetype=obj", "-o", "-", "-")
        return engine.prepare(tools.lld(tools.run("llvm-mc", *arguments, input=source.encode()), tmp_path), check=True)

    def go(body: str) -> None:
        a = np.zeros(64, np.uint32)
        buffers = [engine.Buffer("a", a.ctypes.data, a.nbytes)]
        program(body).run((1, 1, 1), (64, 1, 1), a.ctypes.data.to_bytes(8, "little") * 3, buffers, check=True)

    branch = "  v_mov_b32 v10, v1\n  v_cmp_gt_u32 vcc, 5, {}\n  s_and_saveexec_b64 s[20:21], vcc\n"
    go(branch.format("v1"))
    with pytest.raises(UninitializedDataError, match="the EXEC mask"):
        go(branch.format("v20"))
    with pytest.raises(UninitializedDataError, match="lane 40;"):
        go("  v_cmp_gt_u32 vcc, 40, v1\n  v_cndmask_b32 v10, v20, v1, vcc\n")
