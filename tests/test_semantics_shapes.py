"""What surrounds an instruction's meaning: operand kinds, modifiers, halves, EXEC, data-parallel primitives, dual issue, the float mode."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from semantics_harness import EXEC, VCC, State, build, decode, encode, fma

from tessera.errors import UnsupportedArchError, UnsupportedInstructionError
from tessera.runtime.simulator import shapes
from tessera.runtime.simulator.asmtext import parse_instruction
from tessera.runtime.simulator.semantics import FloatMode, Generation, generation_of
from tessera.runtime.simulator.state import M0, Field

M = 0xFFFFFFFF
GFX9, GFX11 = Generation.GFX9, Generation.GFX11


def f32(*values: float) -> list[int]:
    return [encode("f32", v) for v in values]


def f16(value: float) -> int:
    return encode("f16", value)


def start(wave: int = 32) -> State:
    """Unique values everywhere: v[r] lane l holds r*1000 + l, s[n] holds 5000 + n."""
    state = State(wave)
    for register in range(state.v.shape[0]):
        state.v[register] = np.arange(wave) + 1000 * register
    state.s[:106] = np.arange(106) + 5000
    return state


def run(text: str, state: State, generation: Generation = GFX11, mode: FloatMode | None = None) -> State:
    after = state.copy()
    build([text], state.wave, generation, mode)[0](after)
    return after


def run_all(pieces: dict[str, int], prepare: Callable[[State], None] = lambda s: None, generation: Generation = GFX11) -> None:
    """Each piece leaves its value in lane 3 of v0."""
    program = build(list(pieces), 32, generation)
    for number, (piece, want) in enumerate(pieces.items()):
        state = start()
        prepare(state)
        program[number](state)
        assert int(state.v[0][3]) == want, f"{piece}: {int(state.v[0][3]):#x}, not {want:#x}"


# ---- constants and scalar sources --------------------------------------------------------------------------------------------------


def test_constants_have_the_operands_width() -> None:
    run_all(
        {
            "v_mov_b32 v0, 1.0": 0x3F800000,
            "v_mov_b32 v0, -16": M - 15,
            "v_mov_b32 v0, 0x12345678": 0x12345678,
            "v_mov_b32 v0, 0.15915494": 0x3E22F983,
            "v_add_f32 v0, 1, 0": 1,  # an integer is bits
            "v_add_f32 v0, 2.0, 0.5": encode("f32", 2.5),
            "v_mov_b32 v0, 0\nv_add_f16 v0.l, 1.0, 2.0": f16(3.0),
            "v_mov_b32 v0, 0\nv_mul_f16 v0.l, 0.15915494, 1.0": 0x3118,
            "v_mov_b32 v0, 0\nv_add_nc_u16 v0.l, -1, 3": 2,
            "v_lshlrev_b64 v[1:2], 0, -2\nv_mov_b32 v0, v2": M,
            "v_lshlrev_b64 v[1:2], 0, 1.0\nv_mov_b32 v0, v2": 0x3FF00000,
            "v_add_f64 v[1:2], 0x40080000, 0\nv_mov_b32 v0, v2": 0x40080000,
            "v_add_f64 v[1:2], 1.0, 1.0\nv_mov_b32 v0, v2": 0x40000000,
            "v_mul_f64 v[1:2], 0.15915494309189532, 1.0\nv_mov_b32 v0, v1": 0x6DC9C882,
            "v_pk_add_f16 v0, 0, 1.0": f16(1.0),  # the high half of an inline float is zero
            "v_pk_add_f16 v0, 0, 1.0 op_sel_hi:[1,0]": f16(1.0) | f16(1.0) << 16,
            "v_pk_add_f16 v0, 0, 0x42004000": 0x42004000,
            "v_pk_add_u16 v0, -1, 5 op_sel_hi:[1,0]": 0x00040004,
            "s_mov_b64 s[0:1], 1.0\nv_mov_b32 v0, s1": 0x3FF00000,
            "s_mov_b64 s[0:1], 0x87654321\nv_mov_b32 v0, s1": 0,
            "s_mov_b64 s[0:1], -3\nv_mov_b32 v0, s1": M,
            "s_and_b64 s[0:1], 1.0, -1\nv_mov_b32 v0, s1": 0x3FF00000,
            "v_fmaak_f32 v0, 2.0, 2.0, 0x3f800000": encode("f32", 5.0),
            "v_fmamk_f32 v0, 2.0, 0x40400000, v1": encode("f32", 6.0) + 0,
            "v_mov_b32 v0, 0\nv_fmaak_f16 v0.l, 2.0, 2.0, 0x3c00": f16(5.0),
            "v_mov_b32 v0, 0\nv_fmamk_f16 v0.l, 2.0, 0x4200, v1.l": f16(6.0),
        },
        lambda state: state.v.__setitem__(1, 0),
    )


def test_scalar_sources() -> None:
    def prepare(state: State) -> None:
        state.s[VCC], state.s[M0] = 0x123, 0x456
        state.scc = 1

    run_all(
        {
            "v_mov_b32 v0, s7": 5007,
            "v_mov_b32 v0, vcc_lo": 0x123,
            "v_mov_b32 v0, m0": 0x456,
            "v_mov_b32 v0, exec_lo": M,
            "v_mov_b32 v0, src_scc": 1,
            "v_mov_b32 v0, null": 0,
            "v_lshlrev_b64 v[0:1], 0, s[8:9]": 5008,
            "v_mov_b32 v0, 0\nv_add_nc_u16 v0.l, s7, 1": 5008,
            "v_mov_b32 v0, 0\ns_mov_b32 s1, 0x50007\nv_add_nc_u16 v0.l, s1, 1 op_sel:[1,0,0]": 6,
            "v_pk_add_u16 v0, s7, 1 op_sel_hi:[1,0]": 5008 | 1 << 16,
        },
        prepare,
    )


# ---- modifiers ---------------------------------------------------------------------------------------------------------------------


def test_sign_modifiers_and_output_modifiers() -> None:
    def prepare(state: State) -> None:
        state.v[1], state.v[2], state.v[3] = f32(-3.5, 2.0, math.nan)
        state.v[4] = f16(-1.5) | f16(2.5) << 16
        state.v[5] = encode("f32", -0.0)

    one = encode("f32", 1.0)
    run_all(
        {
            "v_add_f32 v0, -v1, v2": encode("f32", 5.5),
            "v_add_f32 v0, |v1|, v2": encode("f32", 5.5),
            "v_add_f32 v0, -|v1|, v2": encode("f32", -1.5),
            "v_cndmask_b32 v0, -v1, v2, s40": encode("f32", 3.5),
            "v_add_f32 v0, v1, v2 clamp": 0,
            "v_add_f32 v0, |v1|, v2 clamp": one,
            "v_add_f32 v0, v3, v2 clamp": 0,  # NaN, under DX10_CLAMP
            "v_mul_f32 v0, v5, v2 clamp": 0,
            "v_add_f32 v0, v1, v2 mul:4": encode("f32", -6.0),
            "v_add_f32 v0, v1, v2 mul:2": encode("f32", -3.0),
            "v_add_f32 v0, v1, v2 div:2": encode("f32", -0.75),
            "v_mov_b32 v0, 0\nv_add_f16 v0.l, -v4.l, |v4.h|": f16(4.0),
            "v_mov_b32 v0, 0\nv_max_f16 v0.l, -v4.l, -v4.h clamp": 0x3C00,
            "v_mov_b32 v0, 0\nv_max_f16 v0.l, v4.l, v4.l clamp": 0,
            "v_pk_add_f16 v0, v4, v4 neg_lo:[1,0] neg_hi:[0,1]": 0,
            "v_pk_mul_f16 v0, v4, v4 op_sel:[1,0] op_sel_hi:[0,0]": f16(-3.75) | f16(2.25) << 16,
            "v_pk_add_f16 v0, v4, v4 clamp": f16(1.0) << 16,
            "v_cvt_f32_f16 v0, -v4.h": encode("f32", -2.5),
            "v_cvt_f32_f16 v0, v4 op_sel:[1,0]": encode("f32", 2.5),
        },
        lambda state: (prepare(state), state.s.__setitem__(40, 0))[0],
    )


def test_saturating_integers() -> None:
    def prepare(state: State) -> None:
        state.v[1], state.v[2], state.v[3] = 0xFFFFFFF0, 0x7FFFFFF0, 0x80000005
        state.v[4], state.v[5] = 0x7FF0FFF0, 0x00200020
        state.v[6], state.v[7] = 0x80FF7F01, 0x807F7F80

    run_all(
        {
            "v_add_nc_u32 v0, v1, v1 clamp": M,
            "v_sub_nc_u32 v0, v2, v1 clamp": 0,
            "v_subrev_nc_u32 v0, v1, v2 clamp": 0,
            "v_add_nc_i32 v0, v2, v2 clamp": 0x7FFFFFFF,
            "v_sub_nc_i32 v0, v3, v2 clamp": 0x80000000,
            "v_pk_add_u16 v0, v4, v5 clamp": 0x8010FFFF,
            "v_pk_add_i16 v0, v4, v5 clamp": 0x7FFF0010,
            "v_pk_sub_u16 v0, v5, v4 clamp": 0x00000000,
            "v_pk_sub_i16 v0, v5, v4 clamp": 0x80300030,
            "v_mov_b32 v0, 0\nv_add_nc_u16 v0.l, v4.l, v5.l clamp": 0xFFFF,
            "v_mov_b32 v0, 0\nv_sub_nc_u16 v0.l, v5.l, v4.l clamp": 0,
            "v_mov_b32 v0, 0\nv_add_nc_i16 v0.l, v4.h, v5.h clamp": 0x7FFF,
            "v_dot4_i32_iu8 v0, v6, v7, v2": 0x7FFFFFF0 + 1 * 128 + 127 * 127 + 255 * 127 + 128 * 128 & M,
            "v_dot4_i32_iu8 v0, v6, v7, v2 neg_lo:[1,1,0]": 0x7FFFFFF0 - 128 + 127 * 127 - 127 + 128 * 128 & M,
            "v_dot4_i32_iu8 v0, v6, v7, v2 neg_lo:[1,0,0]": 0x7FFFFFF0 + 128 + 127 * 127 - 127 - 128 * 128 & M,
            "v_dot4_i32_iu8 v0, v6, v7, v2 neg_lo:[1,1,0] clamp": 0x7FFFFFFF,
            "v_dot4_u32_u8 v0, v6, v7, v1 clamp": M,
            "v_dot8_i32_iu4 v0, v6, v7, 0 neg_lo:[1,1,0]": sum(
                (a - 16 if a > 7 else a) * (b - 16 if b > 7 else b)
                for a, b in zip((1, 0, 15, 7, 15, 15, 0, 8), (0, 8, 15, 7, 15, 7, 0, 8), strict=True)
            )
            & M,
        },
        prepare,
    )


def test_mixed_precision_sources() -> None:
    def prepare(state: State) -> None:
        (state.v[1],) = f32(1.25)
        state.v[2] = f16(3.0) | f16(-0.5) << 16
        state.v[3] = f16(7.0) | f16(10.0) << 16
        state.v[0] = 0xAAAA5555

    run_all(
        {
            "v_fma_mix_f32 v0, v1, v2, v3 op_sel_hi:[0,1,1]": encode("f32", 1.25 * 3 + 7),
            "v_fma_mix_f32 v0, v1, v2, v3 op_sel:[0,1,1] op_sel_hi:[0,1,1]": encode("f32", 1.25 * -0.5 + 10),
            "v_fma_mix_f32 v0, -v1, |v2|, v3 op_sel:[0,1,0] op_sel_hi:[0,1,1]": encode("f32", -1.25 * 0.5 + 7),
            "v_fma_mix_f32 v0, v1, v1, 1.0": encode("f32", 1.25 * 1.25 + 1),
            "v_fma_mix_f32 v0, v1, v1, 1.0 op_sel_hi:[0,0,1]": encode("f32", 1.25 * 1.25 + 1),
            "v_fma_mixlo_f16 v0, v1, v2, v3 op_sel_hi:[0,1,1]": 0xAAAA0000 | f16(1.25 * 3 + 7),
            "v_fma_mixhi_f16 v0, v1, v2, v3 op_sel_hi:[0,1,1]": 0x5555 | f16(1.25 * 3 + 7) << 16,
            "v_fma_mixlo_f16 v0, v1, v2, v3 op_sel_hi:[0,1,1] clamp": 0xAAAA0000 | f16(1.0),
        },
        prepare,
    )


def test_halves_of_registers() -> None:
    """A 16-bit result leaves the other half alone, however the half is spelled."""

    def prepare(state: State) -> None:
        state.v[0] = 0xAAAA5555
        state.v[1], state.v[2] = 0x00020001, 0x00200010

    run_all(
        {
            "v_add_nc_u16 v0.l, v1.h, v2.l": 0xAAAA0012,
            "v_add_nc_u16 v0.h, v1.l, v2.h": 0x00215555,
            "v_add_nc_u16 v0, v1, v2 op_sel:[1,0,0]": 0xAAAA0012,
            "v_add_nc_u16 v0, v1, v2 op_sel:[0,1,1]": 0x00215555,
            "v_mov_b16 v0.h, v1.l": 0x00015555,
            "v_cndmask_b16 v0.h, v1.l, v2.h, s40": 0x00205555,
            "v_mad_u16 v0.h, v1.l, v2.l, v2.h": 0x00305555,
            "v_mad_u32_u16 v0, v1, v2, v1 op_sel:[1,1,0]": 0x00020041,
            "v_cvt_f16_u16 v0.h, v2.l": 0x5555 | f16(16.0) << 16,
            "v_pack_b32_f16 v0, v1.h, v2.l": 0x00100002,
            "v_pack_b32_f16 v0, v1, v2 op_sel:[1,1,0]": 0x00200002,
            "v_swap_b16 v0.l, v1.h": 0xAAAA0002,
            "v_lshlrev_b16 v0.h, v1.l, v2.l": 0x00205555,
        },
        lambda state: (prepare(state), state.s.__setitem__(40, M))[0],
    )


def test_cdna_clears_the_upper_half_and_selects_bytes() -> None:
    """Before gfx10, 16-bit results clear the upper half; SDWA picks parts of sources and of the destination."""

    def prepare(state: State) -> None:
        state.v[0] = 0xAAAA5555
        state.v[1], state.v[2] = 0x00020001, 0x80FF0010

    run_all(
        {
            "v_add_u16 v0, v1, v2": 0x0011,
            "v_add_u32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:BYTE_2": 0x101,
            "v_add_u32_sdwa v0, v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:BYTE_3": 1 - 128 & M,
            "v_add_u32_sdwa v0, v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 src1_sel:BYTE_2": 0xAAAA0055,
            "v_mov_b32_sdwa v0, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_2": 0x00FF0000,
            "v_mov_b32_sdwa v0, v2 dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:WORD_1": 0xFFFF80FF,
            "v_cmpx_gt_u32 vcc, v2, v1\nv_mov_b32 v0, vcc_lo": M,
        },
        prepare,
        GFX9,
    )


# ---- masks and EXEC ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wave", [32, 64])
def test_masks_and_exec(wave: int) -> None:
    state = start(wave)
    active = 0x0F0F_3C3C_A5A5_9669 & ((1 << wave) - 1)
    state.set_mask(EXEC, active)
    vcc = "vcc_lo" if wave == 32 else "vcc"
    after = run(f"v_cmp_gt_u32 {vcc}, 10, v0", state)
    assert after.vcc == active & 0x3FF
    after = run("v_cmpx_gt_u32 10, v0", state)
    assert after.exec == active & 0x3FF
    after = run("v_cmp_class_f32 null, v0, 1", state)
    assert (after.block == state.block).all()
    after = run("v_cmpx_gt_u32 10, v0\nv_mov_b32 v0, 7", state)
    for lane in range(wave):
        assert after.v[0][lane] == (7 if active >> lane & 1 and lane < 10 else lane)
    nothing = state.copy()
    nothing.set_mask(EXEC, 0)
    after = run("v_mov_b32 v0, 1\nv_pk_add_u16 v1, v1, v1\nv_add_f64 v[2:3], v[2:3], 1.0\nv_swap_b32 v4, v5", nothing)
    assert (after.v == nothing.v).all()
    full = f"s_mov_b{wave} {'exec_lo' if wave == 32 else 'exec'}, -1\nv_mov_b32 v0, v1"
    assert (run(full, state).v[0] == state.v[1]).all()


@pytest.mark.parametrize("wave", [32, 64])
def test_moves_between_lanes_and_scalars(wave: int) -> None:
    state = start(wave)
    state.s[2], state.s[3] = wave + 5, 9  # a lane number counts modulo the wave
    state.set_mask(EXEC, 0b101000)
    assert run("v_readlane_b32 s0, v7, s2", state).s[0] == 7005
    assert run("v_readlane_b32 s0, v7, 9", state).s[0] == 7009
    assert run("v_readfirstlane_b32 s0, v7", state).s[0] == 7003
    after = run("v_writelane_b32 v7, s3, s2", state)  # EXEC doesn't matter
    assert after.v[7].tolist() == [9 if lane == 5 else 7000 + lane for lane in range(wave)]
    state.set_mask(EXEC, 0)
    assert run("v_readfirstlane_b32 s0, v7", state).s[0] == 7000
    if wave == 64:
        state.set_mask(EXEC, 1 << 40)
        assert run("v_readfirstlane_b32 s0, v7", state).s[0] == 7040


@pytest.mark.parametrize("wave", [32, 64])
def test_counting_lower_lanes(wave: int) -> None:
    state = start(wave)
    state.s[0], state.s[1] = 0x80F00F05, 0xF000000F
    after = run("v_mbcnt_lo_u32_b32 v0, s0, 100\nv_mbcnt_hi_u32_b32 v0, s1, v0", state)
    whole = int(state.s[0]) | int(state.s[1]) << 32
    for lane in range(wave):
        assert after.v[0][lane] == 100 + (whole & ((1 << lane) - 1)).bit_count()


# ---- data-parallel primitives ------------------------------------------------------------------------------------------------------

# What lane i of a row of 16 reads, None where that is outside.
CONTROLS: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[3,0,2,1]": lambda i: i // 4 * 4 + [3, 0, 2, 1][i % 4],
    "row_shl:3": lambda i: i + 3 if i + 3 < 16 else None,
    "row_shr:5": lambda i: i - 5 if i >= 5 else None,
    "row_ror:4": lambda i: (i + 12) % 16,
    "row_mirror": lambda i: 15 - i,
    "row_half_mirror": lambda i: i // 8 * 8 + 7 - i % 8,
    "row_share:11": lambda i: 11,
    "row_xmask:6": lambda i: i ^ 6,
}


@pytest.mark.parametrize("wave", [32, 64])
def test_dpp_controls(wave: int) -> None:
    masks = [
        "row_mask:0xf bank_mask:0xf",
        "row_mask:0x5 bank_mask:0xb",
        "row_mask:0xf bank_mask:0xf bound_ctrl:1",
        "row_mask:0xf bank_mask:0xf fi:1",
    ]
    pieces = [(control, mask) for control in CONTROLS for mask in masks]
    program = build([f"v_add_nc_u32_dpp v0, v1, v2 {control} {mask}" for control, mask in pieces], wave)
    for active in ((1 << wave) - 1, 0xC3A5_0FF0_3C5A_9669 & ((1 << wave) - 1)):
        for number, (control, mask) in enumerate(pieces):
            state = start(wave)
            state.set_mask(EXEC, active)
            program[number](state)
            rows, banks = int(mask.split("row_mask:0x")[1][0], 16), int(mask.split("bank_mask:0x")[1][0], 16)
            for lane in range(wave):
                reads = CONTROLS[control](lane % 16)
                source = None if reads is None else lane // 16 * 16 + reads
                if source is not None and not active >> source & 1 and "fi:1" not in mask:
                    source = None
                writes = bool(active >> lane & rows >> lane // 16 & banks >> lane % 16 // 4 & 1)
                writes = writes and (source is not None or "bound_ctrl" in mask)
                want = (1000 + source if source is not None else 0) + 2000 + lane if writes else lane
                assert state.v[0][lane] == want, f"{control} {mask} lane {lane}"


def test_dpp_of_eight_lanes_and_of_other_shapes() -> None:
    state = start()
    state.set_mask(EXEC, ~0b100 & M)
    order = [7, 5, 3, 1, 0, 2, 4, 6]
    after = run("v_mov_b32_dpp v0, v1 dpp8:[7,5,3,1,0,2,4,6]", state)
    for lane in range(32):
        source = lane // 8 * 8 + order[lane % 8]
        want = lane if lane == 2 else 0 if source == 2 else 1000 + source
        assert after.v[0][lane] == want
    assert run("v_mov_b32_dpp v0, v1 dpp8:[7,5,3,1,0,2,4,6] fi:1", state).v[0][5] == 1002

    state = start()
    state.v[1] = [encode("f32", float(lane)) for lane in range(32)]
    state.v[3] = [f16(lane) | f16(-lane) << 16 for lane in range(32)]
    suffix = "row_xmask:1 row_mask:0xf bank_mask:0xf"
    after = run(f"v_max_f32_dpp v0, -v1, v1 {suffix}", state)
    assert decode("f32", int(after.v[0][6])) == 6.0
    after = run(f"v_add_f16_dpp v0.h, v3.h, v3.l {suffix}", state)
    assert decode("f16", int(after.v[0][6]) >> 16) == -1.0
    after = run(f"v_cmp_gt_u32_e64_dpp s0, v1, v1 {suffix}", state)
    assert after.s[0] == 0x55555555
    after = run(f"v_fma_mix_f32_e64_dpp v0, v3, 1.0, v1 op_sel_hi:[1,0,0] {suffix}", state)
    assert decode("f32", int(after.v[0][6])) == 13.0
    after = run(f"v_dot2_f32_f16_e64_dpp v0, v3, v3, v1 {suffix}", state)
    assert decode("f32", int(after.v[0][6])) == 2 * 6 * 7 + 6


@pytest.mark.parametrize("wave", [32, 64])
def test_permutations_of_rows(wave: int) -> None:
    """v_permlane16 and v_permlanex16, with selectors known as the code is built and not."""
    low, high = 0x76120458, 0xFEDCBA93
    nibbles = [low >> 4 * i & 15 for i in range(8)] + [high >> 4 * i & 15 for i in range(8)]
    known = f"s_mov_b32 s2, {low:#x}\ns_mov_b32 s3, {high:#x}\n"
    pieces = [
        (f"{prefix}{name} v0, v1, s2, s3{flags}", name, flags)
        for prefix in (known, "")
        for name in ("v_permlane16_b32", "v_permlanex16_b32")
        for flags in ("", " op_sel:[1,0]", " op_sel:[0,1]")
    ]
    program = build([text for text, _, _ in pieces], wave)
    active = 0xC3A5_0FF0_3C5A_9669 & ((1 << wave) - 1)
    for number, (text, name, flags) in enumerate(pieces):
        state = start(wave)
        state.s[2], state.s[3] = low, high
        state.set_mask(EXEC, active)
        program[number](state)
        for lane in range(wave):
            source = (lane // 16 ^ (1 if "x16" in name else 0)) * 16 + nibbles[lane % 16]
            if not active >> lane & 1:
                want = lane
            elif active >> source & 1 or "[1,0]" in flags:
                want = 1000 + source
            else:
                want = 0 if "[0,1]" in flags else lane
            assert state.v[0][lane] == want, f"{text} lane {lane}"
    state = start(wave)
    after = run("v_permlane64_b32 v0, v1", state)
    assert after.v[0].tolist() == [1000 + (lane ^ 32 if wave == 64 else lane) for lane in range(wave)]


# ---- dual issue, swaps, computed registers -----------------------------------------------------------------------------------------


def test_dual_issue_reads_before_it_writes() -> None:
    state = start()
    after = run("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0", state)
    assert (after.v[0] == state.v[1]).all()
    assert (after.v[1] == state.v[0]).all()
    state.v[4:8] = [[x] * 32 for x in f32(1.5, 2.0, -3.0, 0.25)]
    state.set_mask(VCC, 0xF0)
    after = run("v_dual_fmac_f32 v4, v5, v6 :: v_dual_cndmask_b32 v5, v6, v4", state)
    assert decode("f32", int(after.v[4][0])) == 1.5 + 2.0 * -3.0
    assert [decode("f32", int(x)) for x in after.v[5][3:5]] == [-3.0, 1.5]
    after = run("v_dual_fmaak_f32 v4, v5, v6, 0x40400000 :: v_dual_fmamk_f32 v5, v6, 0x40400000, v7", state)
    assert decode("f32", int(after.v[4][0])) == 2.0 * -3.0 + 3
    assert decode("f32", int(after.v[5][0])) == -3.0 * 3 + 0.25
    state.v[8] = encode("bf16", 2.0) | encode("bf16", -3.0) << 16
    after = run("v_dual_dot2acc_f32_bf16 v4, v8, v8 :: v_dual_mov_b32 v5, 0", state)
    assert decode("f32", int(after.v[4][0])) == 1.5 + 4 + 9


def test_swaps_and_computed_vector_registers() -> None:
    state = start()
    state.set_mask(EXEC, 0xFFFF)
    state.s[M0] = 3
    lanes = np.arange(32)
    after = run("v_swap_b32 v2, v5", state)
    assert after.v[2].tolist() == np.where(lanes < 16, 5000 + lanes, 2000 + lanes).tolist()
    assert after.v[5].tolist() == np.where(lanes < 16, 2000 + lanes, 5000 + lanes).tolist()
    after = run("v_mov_b32 v8, 77\nv_movrels_b32 v0, v5", state)  # v[5 + 3], as just written
    assert after.v[0].tolist() == np.where(lanes < 16, 77, lanes).tolist()
    after = run("v_mov_b32 v9, 78\nv_movreld_b32 v6, v1\nv_add_nc_u32 v0, v9, 1", state)
    assert after.v[9].tolist() == np.where(lanes < 16, 1000 + lanes, 9000 + lanes).tolist()
    assert after.v[0][4] == 1005
    after = run("v_movreld_b32 v6, s9", state)
    assert after.v[9][4] == 5009
    after = run("v_movrelsd_b32 v1, v5", state)
    assert after.v[4][7] == 8007
    state.s[M0] = 2 << 16 | 1
    after = run("v_movrelsd_2_b32 v1, v5", state)
    assert after.v[3][7] == 6007
    after = run("v_swaprel_b32 v1, v5", state)
    assert (after.v[3][7], after.v[6][7]) == (6007, 3007)
    state.s[M0] = 1000  # past the last register: v0
    assert run("v_movrels_b32 v1, v5", state).v[1][7] == 7


# ---- the float mode ----------------------------------------------------------------------------------------------------------------


def test_float_modes() -> None:
    tiny, signalling = 1, 0x7F800001
    state = start()
    state.v[1], state.v[2] = tiny | 1 << 31, encode("f32", 1.0)
    state.v[3] = encode("f32", 2.0**-126)
    state.v[4], state.v[5] = signalling, encode("f32", math.nan)
    state.v[6] = 0x03FF | 0x8001 << 16
    state.v[8], state.v[9] = 1, 0
    flushing = FloatMode(flush32=True)
    assert run("v_mul_f32 v0, v1, v2", state).v[0][0] == tiny | 1 << 31
    assert run("v_mul_f32 v0, v1, v2", state, mode=flushing).v[0][0] == 1 << 31
    assert run("v_mul_f32 v0, 0.5, v3", state, mode=flushing).v[0][0] == 0
    assert run("v_mov_b32 v0, v1", state, mode=flushing).v[0][0] == tiny | 1 << 31
    assert run("v_pk_max_f16 v0, v6, v6", state, mode=FloatMode(flush64=True)).v[0][0] == 0x80000000
    assert run("v_pk_add_f16 v0, v6, 0", state, mode=FloatMode(flush64=True)).v[0][0] & 0x7FFF7FFF == 0
    assert run("v_pk_add_f16 v0, v6, 0", state, mode=flushing).v[0][0] == 0x800103FF
    assert run("v_add_f64 v[0:1], v[8:9], 0", state, mode=FloatMode(flush64=True)).v[0][0] == 0
    assert math.isnan(decode("f32", int(run("v_max_f32 v0, v4, v2", state).v[0][0])))
    assert run("v_max_f32 v0, v4, v2", state, mode=FloatMode(ieee=False)).v[0][0] == encode("f32", 1.0)
    after = run("v_add_f32 v0, v5, v2 clamp", state, mode=FloatMode(dx10_clamp=False))
    assert math.isnan(decode("f32", int(after.v[0][0])))


def test_a_mode_that_changes_is_looked_up() -> None:
    state = start()
    state.v[1], state.v[6] = 1, 0x83FF
    program = build(["v_mul_f32 v0, 1.0, v1\nv_max_f16 v2.l, v6.l, v6.l"], 32, mode=FloatMode(dynamic=True))
    for denormals, want in ((0xF0, (1, 0x83FF)), (0xC0, (0, 0x83FF)), (0x30, (1, 0x8000)), (0, (0, 0x8000))):
        after = state.copy()
        after.block[Field.MODE // 4] = 0x300 | denormals
        program[0](after)
        assert (int(after.v[0][0]), int(after.v[2][0]) & 0xFFFF) == want


# ---- refusals ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("v_add_nc_u32 v0, -v1, v2", "a sign modifier of an integer"),
        ("v_xor_b32 v0, v1, v2 clamp", "clamp"),
        ("v_add_f32 v0, v1", "2 operands"),
        ("v_add_f32 v0, v1, v2, v3", "4 operands"),
        ("v_add_f32 s0, v1, v2", "destination"),
        ("v_mov_b32_dpp v0, s1 row_shr:1 row_mask:0xf bank_mask:0xf", "DPP of a scalar source"),
        ("v_mov_b32_dpp v0, v1 row_unknown:1 row_mask:0xf bank_mask:0xf", "does not know the DPP control"),
        ("v_pk_add_f16 v0, -v1, v2", "a sign modifier of a packed operand"),
        ("v_movrels_b32 v0, s1", "operand"),
    ],
)
def test_what_is_refused(text: str, what: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=what) as caught:
        build([text], 32)
    assert caught.value.mnemonic == text.split()[0].removesuffix("_dpp")
    assert "gfx11" in str(caught.value) or "simulator" in str(caught.value)


def test_instructions_of_others_are_left_to_them() -> None:
    for text in ("global_load_b32 v0, v1, s[0:1]", "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", "s_endpgm"):
        instruction = parse_instruction(text, 0, (0xDC000000, 0))
        assert not shapes.known(instruction, GFX11)
    missing = parse_instruction("v_maximum_f32 v0, v1, v2", 0, (0xD5000000, 0))
    assert not shapes.known(missing, GFX11)
    assert shapes.known(missing, Generation.GFX12)


def test_generations_go_by_exact_name() -> None:
    assert generation_of("gfx1151") is GFX11
    assert generation_of("gfx942") is GFX9
    with pytest.raises(UnsupportedArchError, match="gfx1151"):
        generation_of("gfx115")


def test_a_chain_of_halves() -> None:
    """f16 arithmetic through several registers rounds once an instruction."""
    state = start()
    x, y, z = 0x3555, 0x2E66, 0xB266
    state.v[1] = x | y << 16
    state.v[2] = z
    after = run("v_fma_f16 v0.l, v1.l, v1.h, v2.l\nv_mul_f16 v0.h, v0.l, v1.h\nv_cvt_f32_f16 v3, v0.h", state)
    first = fma("f16", decode("f16", x), decode("f16", y), decode("f16", z))
    second = encode("f16", decode("f16", first) * decode("f16", y))
    assert int(after.v[0][5]) == first | second << 16
    assert decode("f32", int(after.v[3][5])) == decode("f16", second)
