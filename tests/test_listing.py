"""Listings: each spelling that LLVM prints, the two sources against each other, and the check against the machine code."""

from __future__ import annotations

import dataclasses
import struct
from itertools import pairwise
from pathlib import Path

import pytest
import tools
from llvm_kernels import lds_reverse, many_kernels, tables, vector_add, wmma_loop

from tessera import llvm
from tessera.errors import SimulatorError
from tessera.runtime.simulator import listing
from tessera.runtime.simulator.asmtext import parse_instruction
from tessera.runtime.simulator.instruction import File, Instruction, Named, Number, Operand, Registers, Symbol
from tessera.runtime.simulator.listing import decode, decode_lines, parse_objdump, run_objdump
from tessera.runtime.simulator.loader import CodeObject, load_code_object
from tessera.targets.rocm.codeobject import link

HEAD = 'target triple = "amdgcn-amd-amdhsa"\n'


def v(first: int, count: int = 1, **modifiers: object) -> Operand:
    return Operand(Registers(File.VGPR, first, count), **modifiers)  # type: ignore[arg-type]


def s(first: int, count: int = 1, **modifiers: object) -> Operand:
    return Operand(Registers(File.SGPR, first, count), **modifiers)  # type: ignore[arg-type]


def n(text: str, value: float, literal: bool = False, **modifiers: object) -> Operand:
    return Operand(Number(text, value, literal), **modifiers)  # type: ignore[arg-type]


VCC_LO, EXEC_LO, NULL, OFF = (Operand(name) for name in (Named.VCC_LO, Named.EXEC_LO, Named.NULL, Named.OFF))

# text, machine words, mnemonic, suffix, operands, modifiers; each is what llvm-mc 22 prints for the words (tested below), except where
# the words are empty: then the spelling is of an older or another printer.
# ruff: noqa: E501
FORMS: list[tuple[str, str, str, str, str, tuple[Operand, ...], dict[str, object]]] = [
    # registers and numbers
    ("gfx1151", "v_add_f32_e32 v1, v2, v255", "02 FF 03 06", "v_add_f32", "_e32", (v(1), v(2), v(255)), {}),
    ("gfx1151", "s_lshl_b64 s[2:3], s[34:35], 1", "22 81 82 84", "s_lshl_b64", "", (s(2, 2), s(34, 2), n("1", 1)), {}),
    ("gfx1151", "s_mov_b32 s0, ttmp9", "75 00 80 BE", "s_mov_b32", "", (s(0), Operand(Registers(File.TTMP, 9))), {}),
    ("gfx1151", "s_mov_b64 s[0:1], exec", "7E 01 80 BE", "s_mov_b64", "", (s(0, 2), Operand(Named.EXEC)), {}),
    ("gfx1151", "s_mov_b32 m0, -16", "D0 00 FD BE", "s_mov_b32", "", (Operand(Named.M0), n("-16", -16)), {}),
    ("gfx1151", "s_mov_b32 s5, 0x12345", "FF 00 85 BE 45 23 01 00", "s_mov_b32", "", (s(5), n("0x12345", 0x12345, True)), {}),
    ("gfx1151", "s_mov_b64 s[0:1], src_private_base", "ED 01 80 BE", "s_mov_b64", "", (s(0, 2), Operand(Named.PRIVATE_BASE)), {}),
    ("gfx1151", "v_mul_f32_e32 v3, 0.15915494, v2", "F8 04 06 10", "v_mul_f32", "_e32", (v(3), n("0.15915494", 0.15915494), v(2)), {}),
    ("gfx1151", "v_add_f32_e32 v3, lit(0x3f800000), v2", "FF 04 06 06 00 00 80 3F", "v_add_f32", "_e32", (v(3), n("0x3f800000", 0x3F800000, True), v(2)), {}),
    ("gfx1151", "v_cndmask_b32_e32 v1, 0x80000000, v5, vcc_lo", "FF 0A 02 02 00 00 00 80", "v_cndmask_b32", "_e32", (v(1), n("0x80000000", 0x80000000, True), v(5), VCC_LO), {}),
    ("gfx1151", "v_fmaak_f32 v0, s2, v3, 0x42", "02 06 00 5A 42 00 00 00", "v_fmaak_f32", "", (v(0), s(2), v(3), n("0x42", 0x42, True)), {}),
    # operand modifiers
    ("gfx1151", "v_add_f32_e64 v1, -v2, |v3|", "01 02 03 D5 02 07 02 20", "v_add_f32", "_e64", (v(1), v(2, neg=True), v(3, abs=True)), {}),
    ("gfx1151", "v_add_f32_e64 v1, -|v2|, s3 clamp mul:4", "01 81 03 D5 02 07 00 30", "v_add_f32", "_e64", (v(1), v(2, neg=True, abs=True), s(3)), {"clamp": True, "omod": "mul:4"}),
    ("gfx1151", "v_mul_f32_e64 v1, -1.0, v2 div:2", "01 00 08 D5 F3 04 02 18", "v_mul_f32", "_e64", (v(1), n("-1.0", -1.0), v(2)), {"omod": "div:2"}),
    ("gfx1151", "v_add_f32_e64 v1, neg(2), v2", "01 00 03 D5 82 04 02 20", "v_add_f32", "_e64", (v(1), n("2", 2, neg=True), v(2)), {}),
    ("gfx1151", "v_cmp_class_f32_e64 s2, |v1|, 0x204", "02 01 7E D4 01 FF 01 00 04 02 00 00", "v_cmp_class_f32", "_e64", (s(2), v(1, abs=True), n("0x204", 0x204, True)), {}),
    # true16
    ("gfx1151", "v_add_f16_e32 v0.l, v1.h, v2.l", "81 05 00 64", "v_add_f16", "_e32", (v(0, half="l"), v(1, half="h"), v(2, half="l")), {}),
    ("gfx1151", "v_cvt_f32_f16_e32 v5, v6.h", "86 17 0A 7E", "v_cvt_f32_f16", "_e32", (v(5), v(6, half="h")), {}),
    ("gfx1151", "v_add_f16_e64 v1.h, -v2.l, v3.h op_sel:[0,1,1]", "01 50 32 D5 02 07 02 20", "v_add_f16", "_e64", (v(1, half="h"), v(2, half="l", neg=True), v(3, half="h")), {}),
    ("gfx1151", "v_add_f16_e64 v1.h, s2, v3.h op_sel:[1,1,1]", "", "v_add_f16", "_e64", (v(1, half="h"), s(2), v(3, half="h")), {"op_sel": (1, 0, 0)}),
    ("gfx1151", "v_cmpx_lt_f16_e64 v1.h, s3 op_sel:[1,1,0]", "", "v_cmpx_lt_f16", "_e64", (v(1, half="h"), s(3)), {"op_sel": (0, 1, 0)}),
    # packed, mixed, dot, matrix
    ("gfx1151", "v_pk_add_f16 v0, v1, v2 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[1,0] clamp", "00 C9 0F CC 01 05 02 50", "v_pk_add_f16", "", (v(0), v(1), v(2)), {"op_sel": (1, 0), "op_sel_hi": (0, 1), "neg_lo": (0, 1), "neg_hi": (1, 0), "clamp": True}),
    ("gfx1151", "v_fma_mix_f32 v0, v1, -v2, |v3| op_sel:[0,1,0] op_sel_hi:[1,1,0]", "00 14 20 CC 01 05 0E 5C", "v_fma_mix_f32", "", (v(0), v(1), v(2, neg=True), v(3, abs=True)), {"op_sel": (0, 1, 0), "op_sel_hi": (1, 1, 0)}),
    ("gfx1151", "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:11], v[12:15], v[0:7] neg_lo:[1,1,0]", "00 40 44 CC 08 19 02 7C", "v_wmma_i32_16x16x16_iu8", "", (v(0, 8), v(8, 4), v(12, 4), v(0, 8)), {"neg_lo": (1, 1, 0)}),
    ("gfx942", "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15] cbsz:1 abid:2 blgp:3", "00 91 CC D3 00 05 02 64", "v_mfma_f32_32x32x8_f16", "", (Operand(Registers(File.AGPR, 0, 16)), v(0, 2), v(2, 2), Operand(Registers(File.AGPR, 0, 16))), {"cbsz": 1, "abid": 2, "blgp": 3}),
    # DPP and SDWA
    ("gfx1151", "v_mov_b32_dpp v1, v2 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xe bound_ctrl:1", "FA 02 02 7E 02 E4 08 FE", "v_mov_b32", "_dpp", (v(1), v(2)), {"quad_perm": (0, 1, 2, 3), "row_mask": 15, "bank_mask": 14, "bound_ctrl": 1}),
    ("gfx1151", "v_add_f32_dpp v1, -v2, |v3| row_shr:1 row_mask:0xf bank_mask:0xf", "FA 06 02 06 02 11 91 FF", "v_add_f32", "_dpp", (v(1), v(2, neg=True), v(3, abs=True)), {"row_shr": 1, "row_mask": 15, "bank_mask": 15}),
    ("gfx1151", "v_mov_b32_dpp v1, v2 row_xmask:8 row_mask:0xf bank_mask:0xf fi:1", "FA 02 02 7E 02 68 05 FF", "v_mov_b32", "_dpp", (v(1), v(2)), {"row_xmask": 8, "row_mask": 15, "bank_mask": 15, "fi": 1}),
    ("gfx1151", "v_mov_b32_dpp v1, v2 row_half_mirror row_mask:0xf bank_mask:0xf", "FA 02 02 7E 02 41 01 FF", "v_mov_b32", "_dpp", (v(1), v(2)), {"row_half_mirror": True, "row_mask": 15, "bank_mask": 15}),
    ("gfx1151", "v_mov_b32_dpp v1, v2 dpp8:[7,6,5,4,3,2,1,0]", "E9 02 02 7E 02 77 39 05", "v_mov_b32", "_dpp", (v(1), v(2)), {"dpp8": (7, 6, 5, 4, 3, 2, 1, 0)}),
    ("gfx1151", "v_add_f32_e64_dpp v1, v2, v3 clamp row_ror:3 row_mask:0x3 bank_mask:0xf", "01 80 03 D5 FA 06 02 00 02 23 01 3F", "v_add_f32", "_e64_dpp", (v(1), v(2), v(3)), {"clamp": True, "row_ror": 3, "row_mask": 3, "bank_mask": 15}),
    ("gfx90a", "v_mov_b32_dpp v1, v2 row_newbcast:5 row_mask:0xf bank_mask:0xf", "FA 02 02 7E 02 55 01 FF", "v_mov_b32", "_dpp", (v(1), v(2)), {"row_newbcast": 5, "row_mask": 15, "bank_mask": 15}),
    ("gfx90a", "v_mov_b32_dpp v1, v2 row_bcast:15 row_mask:0xa bank_mask:0xf bound_ctrl:0", "", "v_mov_b32", "_dpp", (v(1), v(2)), {"row_bcast": 15, "row_mask": 10, "bank_mask": 15, "bound_ctrl": 1}),
    ("gfx90a", "v_add_u32_sdwa v1, sext(v2), v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD", "F9 06 02 68 02 05 09 06", "v_add_u32", "_sdwa", (v(1), v(2, sext=True), v(3)), {"dst_sel": "WORD_1", "dst_unused": "UNUSED_PAD", "src0_sel": "BYTE_1", "src1_sel": "DWORD"}),
    # memory
    ("gfx1151", "s_load_b256 s[4:11], s[0:1], 0x20", "00 01 0C F4 20 00 00 F8", "s_load_b256", "", (s(4, 8), s(0, 2), n("0x20", 32)), {}),
    ("gfx1151", "s_load_b32 s4, s[0:1], null", "00 01 00 F4 00 00 00 F8", "s_load_b32", "", (s(4), s(0, 2), n("0x0", 0)), {}),
    ("gfx1151", "s_load_b32 s4, s[0:1], s5 offset:0x10 glc", "00 41 00 F4 10 00 00 0A", "s_load_b32", "", (s(4), s(0, 2), s(5)), {"offset": 16, "glc": True}),
    ("gfx1151", "s_buffer_load_b64 s[4:5], s[8:11], -0x4", "", "s_buffer_load_b64", "", (s(4, 2), s(8, 4), n("-0x4", -4)), {}),
    ("gfx1151", "global_load_b128 v[4:7], v2, s[0:1] offset:-16 glc slc dlc", "F0 FF 5E DC 02 00 00 04", "global_load_b128", "", (v(4, 4), v(2), s(0, 2)), {"offset": -16, "glc": True, "slc": True, "dlc": True}),
    ("gfx1151", "global_store_b32 v[2:3], v4, off", "00 00 6A DC 02 04 7C 00", "global_store_b32", "", (v(2, 2), v(4), OFF), {}),
    ("gfx1151", "buffer_load_b128 v[144:147], v161, s[12:15], 0 offen offset:2048", "00 08 5C E0 A1 90 43 80", "buffer_load_b128", "", (v(144, 4), v(161), s(12, 4), n("0", 0)), {"offen": True, "offset": 2048}),
    ("gfx1151", "buffer_store_b32 v1, off, s[4:7], null offset:4", "04 00 68 E0 00 01 01 7C", "buffer_store_b32", "", (v(1), OFF, s(4, 4), NULL), {"offset": 4}),
    ("gfx1151", "tbuffer_load_format_x v1, v2, s[4:7], s3 format:[BUF_FMT_32_FLOAT] idxen", "00 00 B0 E8 02 01 81 03", "tbuffer_load_format_x", "", (v(1), v(2), s(4, 4), s(3)), {"format": "BUF_FMT_32_FLOAT", "idxen": True}),
    ("gfx1151", "ds_load_2addr_b32 v[1:2], v3 offset0:4 offset1:255", "04 FF DC D8 03 00 00 01", "ds_load_2addr_b32", "", (v(1, 2), v(3)), {"offset0": 4, "offset1": 255}),
    ("gfx1151", "ds_store_b64 v0, v[1:2] offset:65528", "F8 FF 34 D9 00 01 00 00", "ds_store_b64", "", (v(0), v(1, 2)), {"offset": 65528}),
    ("gfx1151", "ds_add_u32 v0, v1 gds", "00 00 02 D8 00 01 00 00", "ds_add_u32", "", (v(0), v(1)), {"gds": True}),
    ("gfx1151", "scratch_load_b32 v1, off, s2 offset:12", "0C 00 51 DC 00 00 02 01", "scratch_load_b32", "", (v(1), OFF, s(2)), {"offset": 12}),
    ("gfx942", "global_load_dword v1, v2, s[0:1] sc0 nt sc1", "00 80 53 DE 02 00 00 01", "global_load_dword", "", (v(1), v(2), s(0, 2)), {"sc0": True, "nt": True, "sc1": True}),
    ("gfx942", "buffer_wbl2 sc1", "00 80 A0 E0 00 00 00 00", "buffer_wbl2", "", (), {"sc1": True}),
    ("gfx1201", "global_load_b32 v0, v[2:3], off th:TH_LOAD_NT scope:SCOPE_SE", "7C 00 05 EE 00 00 14 00 02 00 00 00", "global_load_b32", "", (v(0), v(2, 2), OFF), {"th": "TH_LOAD_NT", "scope": "SCOPE_SE"}),
    # waits, messages, modes, phrases
    ("gfx1151", "s_waitcnt vmcnt(3) lgkmcnt(0)", "07 0C 89 BF", "s_waitcnt", "", (), {"vmcnt": 3, "lgkmcnt": 0}),
    ("gfx1151", "s_waitcnt lgkmcnt(15)", "F7 FC 89 BF", "s_waitcnt", "", (), {"lgkmcnt": 15}),
    ("gfx1151", "s_waitcnt_vscnt null, 0x2", "02 00 7C BC", "s_waitcnt_vscnt", "", (NULL, n("0x2", 2)), {"vscnt": 2}),
    ("gfx1201", "s_wait_loadcnt_dscnt 0x103", "03 01 C8 BF", "s_wait_loadcnt_dscnt", "", (n("0x103", 0x103),), {"loadcnt": 1, "dscnt": 3}),
    ("gfx1201", "s_wait_kmcnt 0x0", "00 00 C7 BF", "s_wait_kmcnt", "", (n("0x0", 0),), {"kmcnt": 0}),
    ("gfx1201", "s_barrier_wait 0xffff", "FF FF 94 BF", "s_barrier_wait", "", (n("0xffff", 0xFFFF),), {}),
    ("gfx1151", "s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)", "91 04 87 BF", "s_delay_alu", "", (n("instid0(VALU_DEP_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)", 0x491),), {}),
    ("gfx1151", "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)", "03 00 B6 BF", "s_sendmsg", "", (n("sendmsg(MSG_DEALLOC_VGPRS)", 3),), {}),
    ("gfx1151", "s_sendmsg_rtn_b32 s0, sendmsg(MSG_RTN_GET_DOORBELL)", "80 4C 80 BE", "s_sendmsg_rtn_b32", "", (s(0), n("sendmsg(MSG_RTN_GET_DOORBELL)", 128)), {}),
    ("gfx1151", "s_waitcnt_depctr depctr_va_vdst(0)", "9F 0F 88 BF", "s_waitcnt_depctr", "", (n("depctr_va_vdst(0)", 0xF9F),), {}),
    ("gfx1151", "s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s5", "01 18 05 B9", "s_setreg_b32", "", (n("hwreg(HW_REG_MODE, 0, 4)", 0x1801), s(5)), {}),
    ("gfx1151", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 3", "01 19 80 B9 03 00 00 00", "s_setreg_imm32_b32", "", (n("hwreg(HW_REG_MODE, 4, 4)", 0x1901), n("3", 3, True)), {}),
    ("gfx1151", "s_getreg_b32 s3, hwreg(HW_REG_SHADER_CYCLES)", "1D F8 83 B8", "s_getreg_b32", "", (s(3), n("hwreg(HW_REG_SHADER_CYCLES)", 0xF81D)), {}),
    ("gfx1151", "s_movk_i32 s1, 0xfff0", "F0 FF 01 B0", "s_movk_i32", "", (s(1), n("-16", -16)), {}),
    ("gfx1151", "s_cmpk_lt_u32 s1, 0xfff0", "F0 FF 81 B6", "s_cmpk_lt_u32", "", (s(1), n("65520", 65520)), {}),
    ("gfx1151", "s_clause 0x3", "03 00 85 BF", "s_clause", "", (n("0x3", 3),), {}),
    ("gfx1151", "s_nop 1", "01 00 80 BF", "s_nop", "", (n("0x1", 1),), {}),
    # high registers of gfx125x, and what is left as a symbol
    ("gfx1250", "v_add_f32_e32 v0 /*v256*/, v1 /*v513*/, v2", "", "v_add_f32", "_e32", (v(256), v(513), v(2)), {}),
    ("gfx1250", "v_wmma_f32_16x16x32_f16 v[0:7] /*v[256:263]*/, v[8:15], v[16:23], v[0:7] matrix_a_reuse", "", "v_wmma_f32_16x16x32_f16", "", (v(256, 8), v(8, 8), v(16, 8), v(0, 8)), {"matrix_a_reuse": True}),
    ("gfx90a", "s_set_gpr_idx_on s0, gpr_idx(SRC0)", "00 01 11 BF", "s_set_gpr_idx_on", "", (s(0), Operand(Symbol("gpr_idx(SRC0)"))), {}),
]  # fmt: skip


def words(text: str) -> tuple[int, ...]:
    """Little-endian bytes in hex to words; one zero word where there are none."""
    data = bytes.fromhex(text) or bytes(4)
    return struct.unpack(f"<{len(data) // 4}I", data)


@pytest.mark.parametrize(("arch", "text", "code", "mnemonic", "suffix", "operands", "modifiers"), FORMS, ids=[f[1] for f in FORMS])
def test_forms(
    arch: str, text: str, code: str, mnemonic: str, suffix: str, operands: tuple[Operand, ...], modifiers: dict[str, object]
) -> None:
    found = parse_instruction(text, 0x1700, words(code))
    assert (found.mnemonic, found.suffix, found.target, found.second) == (mnemonic, suffix, None, None)
    assert found.operands == operands
    assert dict(found.modifiers) == modifiers
    assert (found.pc, found.text, found.size) == (0x1700, text, 4 * len(words(code)))


def test_forms_are_llvms() -> None:
    """Each text above is what LLVM's disassembler makes of its words."""
    for arch in {form[0] for form in FORMS}:
        forms = [form for form in FORMS if form[0] == arch and form[2]]
        if not forms:
            continue
        source = "\n".join(" ".join("0x" + byte for byte in form[2].split()) for form in forms)
        output = tools.run("llvm-mc", "-triple=amdgcn", f"-mcpu={arch}", "-disassemble", input=source.encode()).decode()
        assert [line.strip() for line in output.splitlines() if line.strip()] == [form[1] for form in forms]


def test_dual_issue() -> None:
    code = words("01 A2 24 CA FF 00 00 A7 F0 00 00 00".replace("01 A2 24 CA", "A2 01 24 CA"))
    text = "v_dual_mov_b32 v167, v162 :: v_dual_and_b32 v0, 0xf0, v0"
    found = parse_instruction(text, 0x100, code)
    assert (found.mnemonic, found.operands, found.size, found.text) == ("v_mov_b32", (v(167), v(162)), 12, text)
    assert found.second is not None
    assert (found.second.mnemonic, found.second.operands) == ("v_and_b32", (v(0), n("0xf0", 0xF0, True), v(0)))
    assert (found.second.pc, found.second.words) == (0x100, code)


def test_dual_issue_conditions_are_explicit() -> None:
    found = parse_instruction("v_dual_cndmask_b32 v1, v2, v3 :: v_dual_cndmask_b32 v4, 0, v6", 0, (0xCA520000, 0))
    assert found.second is not None
    assert found.operands == (v(1), v(2), v(3), VCC_LO)
    assert found.second.operands == (v(4), n("0", 0), v(6), VCC_LO)


@pytest.mark.parametrize(("text", "word", "target"), [
    ('s_cbranch_scc1 ""', 0xBFA2FF14, 0x1000 + 4 - 4 * 0xEC),
    ("s_cbranch_scc1 65300", 0xBFA2FF14, 0x1000 + 4 - 4 * 0xEC),
    ("s_branch 64", 0xBFA00040, 0x1000 + 4 + 4 * 64),
    ("s_branch", 0xBFA00000, 0x1004),
])  # fmt: skip
def test_branches(text: str, word: int, target: int) -> None:
    found = parse_instruction(text, 0x1000, (word,))
    assert (found.target, found.operands) == (target, ())


def test_call_keeps_its_return_address() -> None:
    found = parse_instruction('s_call_b64 s[4:5], ""', 0x1000, (0xBA040002,))
    assert (found.operands, found.target) == ((s(4, 2),), 0x100C)


@pytest.mark.parametrize("text", ["", "1234", "V_ADD_F32 v0, v1", "s_waitcnt 0x0", "<unknown>"])
def test_what_is_not_an_instruction(text: str) -> None:
    with pytest.raises(SimulatorError):
        parse_instruction(text, 0, (0,))


# ---- whole code objects --------------------------------------------------------------------------------------------------------


def operations() -> str:
    """A kernel per operation and type, on pairs of elements: to see many encodings, not to compute anything."""
    kinds = {"i16": "i", "i32": "i", "i64": "i", "half": "f", "float": "f", "double": "f"}
    integer = ("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "udiv", "srem")
    floating = ("fadd", "fsub", "fmul", "fdiv", "frem")
    intrinsics = {"i": ("smax", "umin", "abs", "ctpop", "bitreverse"), "f": ("fma", "sqrt", "floor", "fabs", "maxnum", "canonicalize")}
    body: list[str] = []
    declared: set[str] = set()

    def kernel(name: str, vector: str, line: str) -> None:
        body.append(
            f"define amdgpu_kernel void @{name}(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %o) #0 {{\n"
            "  %t = call i32 @llvm.amdgcn.workitem.id.x()\n"
            f"  %pa = getelementptr {vector}, ptr addrspace(1) %a, i32 %t\n  %pb = getelementptr {vector}, ptr addrspace(1) %b, i32 %t\n"
            f"  %x = load {vector}, ptr addrspace(1) %pa\n  %y = load {vector}, ptr addrspace(1) %pb\n"
            f"  %r = {line}\n  %po = getelementptr {vector}, ptr addrspace(1) %o, i32 %t\n"
            f"  store {vector} %r, ptr addrspace(1) %po\n  ret void\n}}\n"
        )

    for scalar, kind in kinds.items():
        vector = f"<2 x {scalar}>"
        for op in integer if kind == "i" else floating:
            kernel(f"{op}_{scalar}", vector, f"{op} {vector} %x, %y")
        for op in intrinsics[kind]:
            suffix = {"half": "f16", "float": "f32", "double": "f64"}.get(scalar, scalar)
            count = {"fma": 3, "smax": 2, "umin": 2, "maxnum": 2, "abs": 1}.get(op, 1)
            arguments = ", ".join((f"{vector} %x", f"{vector} %y", f"{vector} %x")[:count])
            types = ", ".join([vector] * count)
            flag, flag_type = (", i1 false", ", i1") if op == "abs" else ("", "")
            kernel(f"{op}_{scalar}", vector, f"call {vector} @llvm.{op}.v2{suffix}({arguments}{flag})")
            declared.add(f"declare {vector} @llvm.{op}.v2{suffix}({types}{flag_type})")
    casts = {
        "uitofp i32": ("i32", "float"), "fptosi float": ("float", "i32"), "fptrunc float": ("float", "half"), "fpext half": ("half", "float"),
        "sitofp i16": ("i16", "half"), "fptoui double": ("double", "i64"), "sext i16": ("i16", "i64"), "trunc i64": ("i64", "i16"),
    }  # fmt: skip
    for number, (cast, (source, target)) in enumerate(casts.items()):
        body.append(
            f"define amdgpu_kernel void @cast_{number}(ptr addrspace(1) %a, ptr addrspace(1) %o) #0 {{\n"
            f"  %t = call i32 @llvm.amdgcn.workitem.id.x()\n  %pa = getelementptr {source}, ptr addrspace(1) %a, i32 %t\n"
            f"  %x = load {source}, ptr addrspace(1) %pa\n  %r = {cast.split()[0]} {source} %x to {target}\n"
            f"  %po = getelementptr {target}, ptr addrspace(1) %o, i32 %t\n  store {target} %r, ptr addrspace(1) %po\n  ret void\n}}\n"
        )
    body.append("""
define amdgpu_kernel void @lanes(ptr addrspace(1) %a, i32 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %a, i32 %t
  %x = load i32, ptr addrspace(1) %p
  %d = call i32 @llvm.amdgcn.update.dpp.i32(i32 %x, i32 %x, i32 273, i32 15, i32 15, i1 true)
  %e = call i32 @llvm.amdgcn.mov.dpp8.i32(i32 %d, i32 342391)
  %f = call i32 @llvm.amdgcn.permlanex16(i32 %e, i32 %e, i32 1985229328, i32 -19088744, i1 false, i1 false)
  %g = call i32 @llvm.amdgcn.ds.bpermute(i32 %f, i32 %x)
  %h = call i32 @llvm.amdgcn.ds.swizzle(i32 %g, i32 1055)
  %i = call i32 @llvm.amdgcn.readlane.i32(i32 %h, i32 %n)
  %j = atomicrmw add ptr addrspace(1) %p, i32 %i syncscope("agent") monotonic
  %k = call i32 @llvm.amdgcn.perm(i32 %j, i32 %h, i32 50463234)
  call void @llvm.amdgcn.s.setreg(i32 6145, i32 %n)
  call void @llvm.amdgcn.s.sleep(i32 2)
  store i32 %k, ptr addrspace(1) %p
  ret void
}
define amdgpu_kernel void @buffers(ptr addrspace(8) %r, i32 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %x = call <4 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v4i32(ptr addrspace(8) %r, i32 %t, i32 %n, i32 1)
  %y = call i16 @llvm.amdgcn.raw.ptr.buffer.load.i16(ptr addrspace(8) %r, i32 64, i32 0, i32 0)
  %z = zext i16 %y to i32
  %w = insertelement <4 x i32> %x, i32 %z, i32 1
  call void @llvm.amdgcn.raw.ptr.buffer.store.v4i32(<4 x i32> %w, ptr addrspace(8) %r, i32 %t, i32 16, i32 0)
  ret void
}
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32 immarg, i32 immarg, i32 immarg, i1 immarg)
declare i32 @llvm.amdgcn.mov.dpp8.i32(i32, i32 immarg)
declare i32 @llvm.amdgcn.permlanex16(i32, i32, i32, i32, i1 immarg, i1 immarg)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.ds.swizzle(i32, i32 immarg)
declare i32 @llvm.amdgcn.readlane.i32(i32, i32)
declare i32 @llvm.amdgcn.perm(i32, i32, i32)
declare void @llvm.amdgcn.s.setreg(i32 immarg, i32)
declare void @llvm.amdgcn.s.sleep(i32 immarg)
declare <4 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v4i32(ptr addrspace(8), i32, i32, i32 immarg)
declare i16 @llvm.amdgcn.raw.ptr.buffer.load.i16(ptr addrspace(8), i32, i32, i32 immarg)
declare void @llvm.amdgcn.raw.ptr.buffer.store.v4i32(<4 x i32>, ptr addrspace(8), i32, i32, i32 immarg)
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
""")
    return HEAD + "".join(body) + "\n".join(sorted(declared)) + "\n"


KERNELS = {
    "vector_add": vector_add,
    "lds_reverse": lds_reverse,
    "tables": tables,
    "many": lambda: many_kernels(7),
    "wmma_loop": wmma_loop,
    "operations": operations,
}


def load(text: str, arch: str = "gfx1151", optimize: int = 1, features: str = "+dumpcode") -> CodeObject:
    return load_code_object(link(llvm.compile_device(text, arch, optimize=optimize, features=features)))


def flat(functions: dict[str, list[Instruction]]) -> list[Instruction]:
    return [instruction for instructions in functions.values() for instruction in instructions]


def without_text(instruction: Instruction) -> Instruction:
    second = without_text(instruction.second) if instruction.second is not None else None
    return dataclasses.replace(instruction, text="", second=second)


@pytest.fixture
def objdump(monkeypatch: pytest.MonkeyPatch) -> str:
    path = tools.need("llvm-objdump")
    monkeypatch.setenv("TESSERA_OBJDUMP", path)
    return path


@pytest.mark.parametrize("optimize", [0, 3])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("arch", ["gfx1151", "gfx1102"])
def test_both_sources_agree(name: str, arch: str, optimize: int, objdump: str) -> None:
    code = load(KERNELS[name](), arch, optimize)
    ours = decode(code)
    theirs = decode_lines(code, list(parse_objdump(run_objdump(code.data))))
    assert list(ours) == list(theirs) == [function.name for function in code.functions]
    assert [without_text(i) for i in flat(ours)] == [without_text(i) for i in flat(theirs)]
    assert not any(isinstance(operand.base, Symbol) for i in flat(ours) for operand in i.operands)


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1201", "gfx1250"])
def test_both_sources_agree_on_other_families(arch: str, objdump: str) -> None:
    for text in (vector_add(), lds_reverse(), tables()):
        code = load(text, arch)
        theirs = decode_lines(code, list(parse_objdump(run_objdump(code.data))))
        assert [without_text(i) for i in flat(decode(code))] == [without_text(i) for i in flat(theirs)]


def test_code_without_a_listing_is_disassembled(objdump: str) -> None:
    with_listing, without = load(wmma_loop()), load(wmma_loop(), features="")
    assert without.disassembly is None
    assert without.text == with_listing.text
    assert [without_text(i) for i in flat(decode(without))] == [without_text(i) for i in flat(decode(with_listing))]


def test_every_byte_of_a_function_is_decoded() -> None:
    code = load(operations())
    for function, instructions in decode(code).items():
        symbol = next(f for f in code.functions if f.name == function)
        assert instructions[0].pc == symbol.address
        for before, after in pairwise(instructions):
            assert before.next_pc == after.pc
        assert instructions[-1].next_pc == symbol.address + symbol.size
        for i in instructions:
            at = i.pc - code.text_address
            assert struct.pack(f"<{len(i.words)}I", *i.words) == code.text[at : at + i.size]


def test_padding_is_decoded_too() -> None:
    """Kernarg preloading begins with code for old firmware, padded to 256 bytes: the listing leaves the padding out."""
    body = """
define amdgpu_kernel void @k(ptr addrspace(1) inreg %out, i32 inreg %n) #0 {
  store i32 %n, ptr addrspace(1) %out
  ret void
}
attributes #0 = { "amdgpu-no-implicitarg-ptr" "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" }
"""
    code = load(HEAD + body, "gfx942")
    instructions = decode(code)["k"]
    branch = next(i for i in instructions if i.mnemonic == "s_branch")
    assert branch.target == code.kernel("k").entry + 256
    padding = [i for i in instructions if branch.pc < i.pc < branch.target]
    assert len(padding) > 40
    assert all(i.mnemonic == "s_nop" for i in padding)
    assert next(i for i in instructions if i.pc == branch.target).mnemonic != "s_nop"


def test_symbols_become_what_the_linker_wrote() -> None:
    code = load(tables())
    literals = [o.base.value for i in decode(code)["lookup"] for o in i.operands if isinstance(o.base, Number) and o.base.literal]
    getpc = [i.next_pc for i in decode(code)["lookup"] if i.mnemonic == "s_getpc_b64"]
    primes = next(symbol.address for symbol in code.symbols if symbol.name == "primes")
    assert any((pc + int(value)) & 0xFFFFFFFF == primes for pc in getpc for value in literals)


# ---- damage --------------------------------------------------------------------------------------------------------------------


def test_any_flipped_bit_of_the_code_is_noticed() -> None:
    """All but branch offsets and literals that the linker fills in: those the listing doesn't hold."""
    code = load(lds_reverse())
    original = decode(code)["reverse"]
    for i in original:
        for byte in range(i.size):
            for bit in (0, 5):
                text = bytearray(code.text)
                text[i.pc - code.text_address + byte] ^= 1 << bit
                damaged = dataclasses.replace(code, text=bytes(text))
                if i.target is not None and byte < 2:
                    continue
                with pytest.raises(SimulatorError, match=r"doesn't agree with \.text in 'reverse' at 0x"):
                    decode(damaged)


def test_branches_into_the_middle_of_instructions() -> None:
    code = load(lds_reverse())
    branch = next(i for i in decode(code)["reverse"] if i.target is not None)
    long = next(i for i in decode(code)["reverse"] if i.size == 8)
    text = bytearray(code.text)
    struct.pack_into("<h", text, branch.pc - code.text_address, (long.pc + 4 - branch.next_pc) // 4)
    with pytest.raises(SimulatorError, match=f"goes to 0x{long.pc + 4:x}, where no instruction"):
        decode(dataclasses.replace(code, text=bytes(text)))


def test_missing_and_additional_lines() -> None:
    code = load(vector_add())
    assert code.disassembly is not None
    lines = code.disassembly.splitlines(keepends=True)
    with pytest.raises(SimulatorError, match="doesn't agree"):
        decode(dataclasses.replace(code, disassembly="".join(lines[:4] + lines[5:])))
    with pytest.raises(SimulatorError, match=r"goes on after the last function: 's_endpgm'"):
        decode(dataclasses.replace(code, disassembly="".join([*lines, lines[-1]])))
    with pytest.raises(SimulatorError, match="neither an instruction nor a label"):
        decode(dataclasses.replace(code, disassembly="".join([*lines, "s_endpgm\n"])))
    with pytest.raises(SimulatorError, match="nothing in the listing"):
        decode(dataclasses.replace(code, disassembly="".join(lines[:-1])))


def test_no_objdump_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = load(vector_add(), features="")
    monkeypatch.delenv("TESSERA_OBJDUMP", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    with pytest.raises(SimulatorError, match="has no listing, so it needs llvm-objdump, which was not found"):
        decode(code)
    monkeypatch.setenv("TESSERA_OBJDUMP", str(tmp_path / "nowhere"))
    with pytest.raises(SimulatorError, match=r"TESSERA_OBJDUMP is .*nowhere"):
        decode(code)


def test_a_failing_objdump_is_a_clear_error(objdump: str) -> None:
    with pytest.raises(SimulatorError, match="could not disassemble"):
        listing.run_objdump(b"not an ELF file")
